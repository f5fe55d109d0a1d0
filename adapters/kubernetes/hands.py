"""Plans carried out: what is to be made, changed, bound and deleted, in parallel and in order."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from adapters.kubernetes.binding import Bind
from adapters.kubernetes.connection import Connection
from adapters.kubernetes.errors import AlreadyExists, ApiError, Conflict, NotFound, Refused
from adapters.kubernetes.eyes import WATCHED, Eyes
from adapters.kubernetes.marks import INSTANCE, JOB_ID, Document, labels_of, name_of
from adapters.kubernetes.plan import Patch, Ref
from adapters.kubernetes.reflector import uid_of
from adapters.kubernetes.resources import PRIORITY_CLASSES, RESOURCES, Resource, resource_of

_log = logging.getLogger("muster.kubernetes")

# Whether what was begun is still wanted; asked before each request.
StillWanted = Callable[[], bool]
_T = TypeVar("_T")


class Hands:
    """Every method may be called again with the same: what is done already is left as it is."""

    def __init__(self, connection: Connection, eyes: Eyes, *, pod_groups: str = "") -> None:
        self._connection = connection
        self._eyes = eyes
        self._pod_groups = pod_groups
        # The value of a priority class never changes, so each is asked for once.
        self._priorities: dict[str, int] = {}

    async def priorities(self, names: Iterable[str]) -> dict[str, int]:
        """The values of the priority classes that the cluster has; others are left out.

        Raises ApiError if the server could not be asked. A server that does not let us look is
        one without classes.
        """
        await _together(self._priority(name) for name in names if name not in self._priorities)
        return {name: self._priorities[name] for name in names if name in self._priorities}

    async def _priority(self, name: str) -> None:
        try:
            found = await self._connection.get(PRIORITY_CLASSES.one("", name))
        except NotFound:
            return
        except Refused as error:
            _log.warning(
                "priority class %s counts as 0, because it cannot be read: %s", name, error
            )
            return
        self._priorities[name] = int(found.get("value") or 0)

    async def create(
        self, documents: Sequence[Mapping[str, Any]], still: StillWanted
    ) -> "list[Outcome]":
        """Makes objects, all at once; those that are there already are left as they are."""
        return await _together(self._create(document, still) for document in documents)

    async def _create(self, document: Mapping[str, Any], still: StillWanted) -> "Outcome":
        ref = Ref(document["kind"], name_of(document))
        if not still():
            return Outcome(ref)
        path = _resource(document).all(document["metadata"]["namespace"])
        try:
            made = await self._connection.create(path, document)
        except AlreadyExists:
            return await self.find(document)
        except ApiError as error:
            return Outcome(ref, error=error)
        self._eyes.put(made)
        return Outcome(ref, made)

    async def find(self, document: Mapping[str, Any]) -> "Outcome":
        """The object that has this name now."""
        ref = Ref(document["kind"], name_of(document))
        path = _resource(document).one(document["metadata"]["namespace"], ref.name)
        try:
            found = await self._connection.get(path)
        except NotFound:
            return Outcome(ref)
        except ApiError as error:
            return Outcome(ref, error=error)
        found.setdefault("kind", ref.kind)
        if labels_of(found).get(JOB_ID) == labels_of(document).get(JOB_ID):
            self._eyes.put(found)
        return Outcome(ref, found)

    async def delete(
        self, documents: Iterable[Document], namespace: str, *, at_once: bool = False
    ) -> None:
        """Deletes these very objects, not others that have got their names since.

        With `at_once` a pod goes without waiting for its kubelet to say that it has ended.
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
            self._eyes.forget(document)
        except Conflict:
            # Another one has the name now. The watch will tell of both.
            pass
        except ApiError as error:
            _log.warning("%s: %s; it will be tried again", name_of(document), error)
        else:
            if left.get("kind") == "Pod":
                # It goes on until its time of grace is over.
                self._eyes.put(left)

    async def patch(self, patches: Iterable[Patch], namespace: str) -> None:
        await _together(self._patch(patch, namespace) for patch in patches)

    async def _patch(self, patch: Patch, namespace: str) -> None:
        path = resource_of(patch.kind, self._pod_groups).one(namespace, patch.name)
        try:
            self._eyes.put(await self._connection.patch(path, patch.body))
        except NotFound:
            pass
        except ApiError as error:
            _log.warning("%s %s: %s; it will be tried again", patch.kind, patch.name, error)

    async def bind(
        self, binds: Sequence[Bind], namespace: str, still: StillWanted
    ) -> list[ApiError]:
        """What could not be bound, and why."""
        told = await _together(self._bind(each, namespace, still) for each in binds)
        return [error for error in told if error is not None]

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
            # Bound already, being deleted, or gone: the watch tells which.
            return None
        except ApiError as error:
            return error
        return None

    async def sweep(self, job: str, namespace: str, kinds: Iterable[str]) -> list[str]:
        """Deletes all of ours that carries a job's label, of kinds that are not watched.

        Returns the kinds of which something may be left that another try would remove.
        """
        ours = f"{INSTANCE}={self._eyes.instance},{JOB_ID}={job}"
        left: list[str] = []
        for kind in kinds:
            path = RESOURCES[kind].all(namespace)
            try:
                await self._connection.delete(path, query={"labelSelector": ours})
            except ApiError as error:
                _log.warning("%s of job %s: %s", kind, job, error)
                left += [kind] if error.passes else []
        return left


# Kinds of which a job may have some that nobody watches.
UNWATCHED = tuple(kind for kind in RESOURCES if kind not in (*WATCHED, "Node"))
# Those of them that only processes which run have a use for.
ACCOUNTS = ("ServiceAccount", "Role", "RoleBinding", "Secret")


class Outcome:
    """What became of making an object: it is there (`found`), or why that is not known or not so."""

    __slots__ = ("error", "found", "ref")

    def __init__(
        self, ref: Ref, found: dict[str, Any] | None = None, error: ApiError | None = None
    ) -> None:
        self.ref = ref
        self.found = found
        self.error = error

    @property
    def is_unsure(self) -> bool:
        """Whether it may be there without our knowing."""
        return self.error is not None and self.error.passes


def _resource(document: Mapping[str, Any]) -> Resource:
    return resource_of(document["kind"], document.get("apiVersion", ""))


async def _together(work: Iterable[Awaitable[_T]]) -> list[_T]:
    return list(await asyncio.gather(*work))
