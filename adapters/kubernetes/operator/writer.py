"""Writes to the cluster about a resource: events, its status, and its deletion."""

import logging
from collections.abc import Mapping
from typing import Any

from adapters.kubernetes.api.connection import Connection
from adapters.kubernetes.api.errors import AlreadyExists, NotFound, Refused
from adapters.kubernetes.api.reflector import key_of, uid_of, version_of
from adapters.kubernetes.observe.labels import Document
from adapters.kubernetes.operator.k8s_events import EventToEmit, event_document
from adapters.kubernetes.operator.status import status_patch
from adapters.kubernetes.operator.watch import Watch

_log = logging.getLogger("muster.kubernetes")


class Writer:
    """Writes events, statuses and deletions; raises ApiError."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        # By uid: the version of the object after the last status was written, and that status. The
        # watch may not have delivered it yet.
        self._written: dict[str, tuple[str, Mapping[str, Any]]] = {}

    def forget(self, uid: str) -> None:
        self._written.pop(uid, None)

    async def event(self, document: Document, emitted: EventToEmit) -> None:
        """Write an event about a resource; one that exists already is left as it is."""
        body = event_document(document, emitted)
        path = f"/api/v1/namespaces/{body['metadata']['namespace']}/events"
        try:
            await self._connection.create(path, body)
        except AlreadyExists:
            pass
        except (Refused, NotFound) as error:
            # A namespace that is being deleted accepts no events.
            _log.info("no event: %s", error)

    def pending(self, document: Document, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """Return the merge patch from the last known status to `wanted`; empty if they agree."""
        return status_patch(self._observed(document), wanted)

    def _observed(self, document: Document) -> Mapping[str, Any]:
        version, status = self._written.get(uid_of(document), ("", {}))
        if _is_newer(version_of(document), version):
            return document.get("status") or {}
        return status

    async def status(self, watch: Watch, document: Document, wanted: Mapping[str, Any]) -> bool:
        """Write the parts of `wanted` that differ; return False if it should be tried later.

        That is the case if another client has overwritten the status since the last write.
        """
        uid = uid_of(document)
        patch = self.pending(document, wanted)
        if not patch:
            return True
        version, status = self._written.get(uid, ("", {}))
        is_news = version and _is_newer(version_of(document), version)
        if is_news and not status_patch(status, wanted):
            _log.info("%s: another client wrote its status", document["metadata"]["name"])
            self._written[uid] = (version_of(document), document.get("status") or {})
            return False
        path = f"{watch.path(key_of(document), _version(watch, document))}/status"
        try:
            resource = await self._connection.patch(
                path, {"metadata": {"uid": uid}, "status": patch}
            )
        except NotFound as error:
            # The resource was deleted; the watch will deliver that.
            _log.debug("no status: %s", error)
            return True
        self._written[uid] = (version_of(resource), resource.get("status") or {})
        return True

    async def remove(self, watch: Watch, document: Document) -> None:
        """Delete this resource, but not a newer one with the same name."""
        body = {
            "preconditions": {"uid": uid_of(document)},
            "propagationPolicy": "Background",
        }
        try:
            await self._connection.delete(watch.path(key_of(document)), body)
        except NotFound as error:
            _log.debug("not deleted: %s", error)


def _version(watch: Watch, document: Document) -> str:
    """Return the version in which to write: the one it was created in, if the cluster serves it.

    In that version the object passes the validation of its schema.
    """
    version = str(document["apiVersion"]).rpartition("/")[2]
    return version if version in watch.versions else watch.version


def _is_newer(version: str, than: str) -> bool:
    """Return whether `version` is later than `than`; True if either is not a number."""
    if version.isdigit() and than.isdigit():
        return int(version) > int(than)
    return True
