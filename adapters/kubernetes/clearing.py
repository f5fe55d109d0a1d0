"""What is left of jobs that are over goes.

Law: what nobody watches (keys, accounts) goes before what is watched. Whoever comes after a crash
finds by the latter, when the control plane surveys, that there may be some of the former.
"""

from collections.abc import Awaitable, Callable

from adapters.kubernetes.eyes import Eyes
from adapters.kubernetes.glances import rare
from adapters.kubernetes.hands import ACCOUNTS, UNWATCHED, Hands
from adapters.kubernetes.marks import Document, is_terminating
from adapters.kubernetes.objects import Rendering
from adapters.kubernetes.work import Work

# What is to be done before pods are deleted: their logs are kept.
BeforeDeletion = Callable[[list[Document]], Awaitable[None]]


class Clearing:
    def __init__(self, eyes: Eyes, hands: Hands, before_deletion: BeforeDeletion) -> None:
        self._eyes = eyes
        self._hands = hands
        self._before_deletion = before_deletion
        # Of which kinds that nobody watches there may be something of a job that is over; of others,
        # nothing is known. So nothing is asked for again at every survey.
        self._left: dict[str, list[str]] = {}

    async def accounts(self, work: Work, rendering: Rendering) -> bool:
        """The accounts of a finished job go: nothing runs that could use them, and the next job of
        its name will need theirs. False means that it is to be tried again."""
        job = rendering.job
        if not (work.is_over and job.finished):
            return True
        if work.id not in self._left:
            self._left[work.id] = sorted({str(each["kind"]) for each in rare(rendering)})
        kinds = self._left[work.id]
        accounts = [kind for kind in kinds if kind in ACCOUNTS]
        if not accounts:
            return True
        left = await self._hands.sweep(work.id, job.namespace, accounts)
        self._left[work.id] = [kind for kind in kinds if kind in left or kind not in ACCOUNTS]
        return not left

    async def of_gone(self, work: Work) -> None:
        """Nothing is kept of a job that is gone."""
        found = list(self._eyes.of_job(work.id).values())
        namespaces = {each["metadata"].get("namespace", "") for each in found}
        found = [each for each in found if not is_terminating(each)]
        pods = [each for each in found if each["kind"] == "Pod"]
        if pods:
            await self._before_deletion(pods)
        unsure = list(UNWATCHED) if work.extra or not work.has_looked else []
        kinds, left = self._left.pop(work.id, unsure), list[str]()
        for namespace in sorted(namespaces):
            left += await self._hands.sweep(work.id, namespace, kinds)
        if left:
            self._left[work.id] = left
            return
        work.extra.clear()
        work.has_looked = True
        for namespace in sorted(namespaces):
            here = [each for each in found if each["metadata"].get("namespace") == namespace]
            await self._hands.delete(here, namespace)
