"""Requests that carry out plans: create, patch, bind and delete objects, in parallel per call."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from adapters.kubernetes.api.connection import Connection
from adapters.kubernetes.api.errors import AlreadyExists, ApiError, Conflict, NotFound, Refused
from adapters.kubernetes.api.reflector import uid_of
from adapters.kubernetes.api.resources import PRIORITY_CLASSES, RESOURCES, Resource, resource_of
from adapters.kubernetes.observe.informers import WATCHED, JobInformers
from adapters.kubernetes.observe.labels import INSTANCE, JOB_ID, Document, labels_of, name_of
from adapters.kubernetes.reconcile.binding import Bind
from adapters.kubernetes.reconcile.plan import Patch, Ref

_log = logging.getLogger("muster.kubernetes")

# Returns whether the plan is still current; called before each request.
StillWanted = Callable[[], bool]
_T = TypeVar("_T")


class ObjectWriter:
    """Write objects of jobs, and put the answers into the informers' stores.

    Every method is idempotent: calling it again with the same arguments changes nothing.
    """

    def __init__(
        self, connection: Connection, informers: JobInformers, *, pod_groups: str = ""
    ) -> None:
        self._connection = connection
        self._informers = informers
        self._pod_groups = pod_groups
        # The value of a priority class never changes, so each is read once.
        self._priorities: dict[str, int] = {}

    async def priorities(self, names: Iterable[str]) -> dict[str, int]:
        """Return the values of the priority classes in `names` that the cluster has.

        A class that Muster may not read is left out too. Raises ApiError if the server cannot be
        reached.
        """
        await _together(self._priority(name) for name in names if name not in self._priorities)
        return {name: self._priorities[name] for name in names if name in self._priorities}

    async def _priority(self, name: str) -> None:
        try:
            priority_class = await self._connection.get(PRIORITY_CLASSES.one("", name))
        except NotFound:
            return
        except Refused as error:
            _log.warning(
                "priority class %s counts as 0, because it cannot be read: %s", name, error
            )
            return
        self._priorities[name] = int(priority_class.get("value") or 0)

    async def create(
        self, documents: Sequence[Mapping[str, Any]], still: StillWanted
    ) -> "list[Outcome]":
        """Create objects in parallel, and return one outcome each, in order.

        An object that exists already is left as it is and returned. Documents whose turn comes
        after `still()` has become false are skipped: their outcome is empty.
        """
        return await _together(self._create(document, still) for document in documents)

    async def _create(self, document: Mapping[str, Any], still: StillWanted) -> "Outcome":
        ref = Ref(document["kind"], name_of(document))
        if not still():
            return Outcome(ref)
        path = _resource(document).all(document["metadata"]["namespace"])
        try:
            created_runs = await self._connection.create(path, document)
        except AlreadyExists:
            return await self.find(document)
        except ApiError as error:
            return Outcome(ref, error=error)
        self._informers.put(created_runs)
        return Outcome(ref, created_runs)

    async def find(self, document: Mapping[str, Any]) -> "Outcome":
        """Read the object that has the name of `document` now; the outcome is empty if none has."""
        ref = Ref(document["kind"], name_of(document))
        path = _resource(document).one(document["metadata"]["namespace"], ref.name)
        try:
            existing = await self._connection.get(path)
        except NotFound:
            return Outcome(ref)
        except ApiError as error:
            return Outcome(ref, error=error)
        existing.setdefault("kind", ref.kind)
        if labels_of(existing).get(JOB_ID) == labels_of(document).get(JOB_ID):
            self._informers.put(existing)
        return Outcome(ref, existing)

    async def delete(
        self, documents: Iterable[Document], namespace: str, *, at_once: bool = False
    ) -> None:
        """Delete exactly these objects, not newer ones with the same names.

        With `at_once` a pod is deleted without waiting for its kubelet to confirm that it has
        ended. Errors are logged; the next plan deletes again.
        """
        await _together(self._delete(document, namespace, at_once) for document in documents)

    async def _delete(self, document: Document, namespace: str, at_once: bool) -> None:
        path = _resource(document).one(namespace, name_of(document))
        body: dict[str, Any] = {"preconditions": {"uid": uid_of(document)}}
        if at_once:
            body["gracePeriodSeconds"] = 0
        try:
            left = await self._connection.delete(path, body)
        except NotFound:
            self._informers.forget(document)
        except Conflict:
            # Another object has the name now. The watch delivers both changes.
            pass
        except ApiError as error:
            _log.warning("%s: %s; it will be tried again", name_of(document), error)
        else:
            if left.get("kind") == "Pod":
                # The pod runs until its grace period is over.
                self._informers.put(left)

    async def patch(self, patches: Iterable[Patch], namespace: str) -> None:
        """Send merge patches in parallel; errors are logged, and the next plan patches again."""
        await _together(self._patch(patch, namespace) for patch in patches)

    async def _patch(self, patch: Patch, namespace: str) -> None:
        path = resource_of(patch.kind, self._pod_groups).one(namespace, patch.name)
        try:
            self._informers.put(await self._connection.patch(path, patch.body))
        except NotFound:
            pass
        except ApiError as error:
            _log.warning("%s %s: %s; it will be tried again", patch.kind, patch.name, error)

    async def bind(
        self, binds: Sequence[Bind], namespace: str, still: StillWanted
    ) -> list[ApiError]:
        """Bind pods to nodes in parallel, and return the errors of those that failed."""
        errors = await _together(self._bind(each, namespace, still) for each in binds)
        return [error for error in errors if error is not None]

    async def _bind(self, bind: Bind, namespace: str, still: StillWanted) -> ApiError | None:
        if not still():
            return None
        path = f"{RESOURCES['Pod'].one(namespace, bind.pod)}/binding"
        target = {"apiVersion": "v1", "kind": "Node", "name": bind.node}
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": bind.pod, "namespace": namespace},
            "target": target,
        }
        try:
            await self._connection.create(path, body)
        except (Conflict, NotFound):
            # Bound already, being deleted, or gone: the watch shows which.
            return None
        except ApiError as error:
            return error
        return None

    async def sweep(self, job: str, namespace: str, kinds: Iterable[str]) -> list[str]:
        """Delete all objects of `kinds` that carry the labels of this instance and of `job`.

        Returns the kinds that failed with a transient error, so that another call may succeed.
        """
        ours = f"{INSTANCE}={self._informers.instance},{JOB_ID}={job}"
        left: list[str] = []
        for kind in kinds:
            path = RESOURCES[kind].all(namespace)
            try:
                await self._connection.delete(path, query={"labelSelector": ours})
            except ApiError as error:
                _log.warning("%s of job %s: %s", kind, job, error)
                left += [kind] if error.passes else []
        return left


# Kinds of a job's objects that no informer watches.
UNWATCHED = tuple(kind for kind in RESOURCES if kind not in (*WATCHED, "Node"))
# The unwatched kinds that only running processes need.
ACCOUNTS = ("ServiceAccount", "Role", "RoleBinding", "Secret")


class Outcome:
    """The result of creating or reading an object: the object (`document`), an `error`, or neither.

    Neither means that the object does not exist or that the request was skipped.
    """

    __slots__ = ("document", "error", "ref")

    def __init__(
        self, ref: Ref, document: dict[str, Any] | None = None, error: ApiError | None = None
    ) -> None:
        self.ref = ref
        self.document = document
        self.error = error

    @property
    def is_unsure(self) -> bool:
        """Whether the object may exist although the request failed."""
        return self.error is not None and self.error.passes


def _resource(document: Mapping[str, Any]) -> Resource:
    return resource_of(document["kind"], document.get("apiVersion", ""))


async def _together(context: Iterable[Awaitable[_T]]) -> list[_T]:
    return list(await asyncio.gather(*context))
