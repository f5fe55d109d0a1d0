"""Garbage collection: delete what is left of finished and deleted jobs.

Rule: objects of unwatched kinds (keys, accounts) are deleted before watched objects. After a crash
the watched objects that remain show, at the next survey, that unwatched ones may remain too.
"""

from collections.abc import Awaitable, Callable

from adapters.kubernetes.observe.informers import JobInformers
from adapters.kubernetes.observe.labels import Document, is_terminating
from adapters.kubernetes.reconcile.job_context import JobContext, unwatched_objects
from adapters.kubernetes.reconcile.object_writer import ACCOUNTS, UNWATCHED, ObjectWriter
from adapters.kubernetes.render.objects import Rendering

# Called with pods before they are deleted: it keeps their logs.
BeforeDeletion = Callable[[list[Document]], Awaitable[None]]


class GarbageCollector:
    """Deletes the objects of jobs that are over."""

    def __init__(
        self, informers: JobInformers, writer: ObjectWriter, before_deletion: BeforeDeletion
    ) -> None:
        self._informers = informers
        self._writer = writer
        self._before_deletion = before_deletion
        # The unwatched kinds of which objects may be left, by job that is over; a job without an
        # entry has not been examined. So a survey does not repeat requests for the same job.
        self._left: dict[str, list[str]] = {}

    async def accounts(self, context: JobContext, rendering: Rendering) -> bool:
        """Delete the accounts of a finished job; return False if it must be tried again.

        No process uses them any more, and the next job with the same name needs its own.
        """
        job = rendering.job
        if not (context.is_over and job.finished):
            return True
        if context.id not in self._left:
            self._left[context.id] = sorted(
                {str(each["kind"]) for each in unwatched_objects(rendering)}
            )
        kinds = self._left[context.id]
        accounts = [kind for kind in kinds if kind in ACCOUNTS]
        if not accounts:
            return True
        left = await self._writer.sweep(context.id, job.namespace, accounts)
        self._left[context.id] = [kind for kind in kinds if kind in left or kind not in ACCOUNTS]
        return not left

    async def of_gone(self, context: JobContext) -> None:
        """Delete all objects of a deleted job, after its logs have been kept.

        If unwatched objects could not be deleted, the watched ones stay for the next call.
        """
        objects = list(self._informers.of_job(context.id).values())
        namespaces = {each["metadata"].get("namespace", "") for each in objects}
        objects = [each for each in objects if not is_terminating(each)]
        pods = [each for each in objects if each["kind"] == "Pod"]
        if pods:
            await self._before_deletion(pods)
        unconfirmed = list(UNWATCHED) if context.extra or not context.has_looked else []
        kinds, left = self._left.pop(context.id, unconfirmed), list[str]()
        for namespace in sorted(namespaces):
            left += await self._writer.sweep(context.id, namespace, kinds)
        if left:
            self._left[context.id] = left
            return
        context.extra.clear()
        context.has_looked = True
        for namespace in sorted(namespaces):
            here = [each for each in objects if each["metadata"].get("namespace") == namespace]
            await self._writer.delete(here, namespace)
