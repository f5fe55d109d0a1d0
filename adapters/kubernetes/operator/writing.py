"""What is written to the cluster about a resource: events, its status, and in the end its deletion."""

import logging
from collections.abc import Mapping
from typing import Any

from adapters.kubernetes.connection import Connection
from adapters.kubernetes.errors import AlreadyExists, NotFound, Refused
from adapters.kubernetes.marks import Document
from adapters.kubernetes.operator.happenings import Happening, event_document
from adapters.kubernetes.operator.statuses import status_patch
from adapters.kubernetes.operator.watching import Watch
from adapters.kubernetes.reflector import key_of, uid_of, version_of

_log = logging.getLogger("muster.kubernetes")


class Writer:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        # The last status that we wrote, and the version of the object that it led to: what the
        # watch has not brought yet.
        self._written: dict[str, tuple[str, Mapping[str, Any]]] = {}

    def forget(self, uid: str) -> None:
        self._written.pop(uid, None)

    async def event(self, document: Document, happening: Happening) -> None:
        """One that is there already is left as it is."""
        body = event_document(document, happening)
        path = f"/api/v1/namespaces/{body['metadata']['namespace']}/events"
        try:
            await self._connection.create(path, body)
        except AlreadyExists:
            pass
        except (Refused, NotFound) as error:
            # A namespace that is going takes no more events, and nobody would read them.
            _log.info("no event: %s", error)

    def pending(self, document: Document, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """What of a status is still to be written, as far as is known."""
        return status_patch(self._observed(document), wanted)

    def _observed(self, document: Document) -> Mapping[str, Any]:
        version, status = self._written.get(uid_of(document), ("", {}))
        if _is_newer(version_of(document), version):
            return document.get("status") or {}
        return status

    async def status(self, watch: Watch, document: Document, wanted: Mapping[str, Any]) -> bool:
        """Writes what differs; False if that is somebody else's doing, and should wait a while."""
        uid = uid_of(document)
        patch = self.pending(document, wanted)
        if not patch:
            return True
        version, status = self._written.get(uid, ("", {}))
        is_news = version and _is_newer(version_of(document), version)
        if is_news and not status_patch(status, wanted):
            _log.info("%s: somebody else wrote its status", document["metadata"]["name"])
            self._written[uid] = (version_of(document), document.get("status") or {})
            return False
        path = f"{watch.path(key_of(document), _version(watch, document))}/status"
        try:
            found = await self._connection.patch(path, {"metadata": {"uid": uid}, "status": patch})
        except NotFound as error:
            # It is gone; the watch will say so.
            _log.debug("no status: %s", error)
            return True
        self._written[uid] = (version_of(found), found.get("status") or {})
        return True

    async def remove(self, watch: Watch, document: Document) -> None:
        """This one, and none that has its name by now."""
        body = {
            "preconditions": {"uid": uid_of(document)},
            "propagationPolicy": "Background",
        }
        try:
            await self._connection.delete(watch.path(key_of(document)), body)
        except NotFound as error:
            _log.debug("not deleted: %s", error)


def _version(watch: Watch, document: Document) -> str:
    """In the version that it was written in, the API server finds no fault with it."""
    version = str(document["apiVersion"]).rpartition("/")[2]
    return version if version in watch.versions else watch.version


def _is_newer(version: str, than: str) -> bool:
    """Versions count up; what is no number is taken for new."""
    if version.isdigit() and than.isdigit():
        return int(version) > int(than)
    return True
