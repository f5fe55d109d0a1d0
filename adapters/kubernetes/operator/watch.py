"""Watches of the custom resources that may be jobs, each in the newest version that is served."""

import asyncio
import logging
from collections.abc import Callable, Sequence

from adapters.kubernetes.api.connection import Connection
from adapters.kubernetes.api.errors import ApiError, NotFound
from adapters.kubernetes.api.reflector import Change, Key, Reflector
from adapters.kubernetes.observe.labels import Document
from adapters.kubernetes.operator.parse import trimming
from adapters.kubernetes.operator.resource import JobResource

# How often the cluster is checked for a definition that it does not have.
LOOK_S_FIRST = 2.0
LOOK_S_MAX = 60.0
RESYNC_S = 300.0

_log = logging.getLogger("muster.kubernetes")

OnChange = Callable[[JobResource, Change], None]
OnSynced = Callable[[JobResource], None]


class Watch:
    """The watch of one resource, in `namespaces` or, if that is empty, in all.

    `on_change` is called with each change and `on_synced` after each list.
    """

    def __init__(
        self,
        connection: Connection,
        resource: JobResource,
        *,
        namespaces: Sequence[str] = (),
        on_change: OnChange,
        on_synced: OnSynced,
        resync_s: float = RESYNC_S,
        look_s_first: float = LOOK_S_FIRST,
    ) -> None:
        self.resource = resource
        # The versions of the kind that the cluster serves, newest first; empty until known.
        self.versions: tuple[str, ...] = ()
        self._connection = connection
        self._namespaces = tuple(namespaces)
        self._on_change = on_change
        self._on_synced = on_synced
        self._resync_s = resync_s
        self._look_s_first = look_s_first
        self._reflectors: list[Reflector] = []

    @property
    def version(self) -> str:
        """The version that is watched; "" if the cluster serves none."""
        return self.versions[0] if self.versions else ""

    @property
    def synced(self) -> bool:
        """Whether everything has been listed, so that a missing object does not exist."""
        reflectors = self._reflectors
        return bool(reflectors) and all(each.synced.is_set() for each in reflectors)

    def item(self, key: Key) -> Document | None:
        """Return the object with this key, or None."""
        return next((each.items[key] for each in self._reflectors if key in each.items), None)

    def path(self, key: Key, version: str = "") -> str:
        """Return the path of an object in `version`; "" means the version that is watched."""
        return f"{self._path(version or self.version, key.namespace)}/{key.name}"

    def _path(self, version: str, namespace: str = "") -> str:
        group = f"/apis/{self.resource.group}/{version}"
        within = f"/namespaces/{namespace}" if namespace else ""
        return f"{group}{within}/{self.resource.plural}"

    async def run(self) -> None:
        """Watch until cancelled; wait for the definition while the cluster does not have it."""
        look_s, is_logged = self._look_s_first, False
        while True:
            self.versions = await self._served()
            if self.versions:
                look_s, is_logged = self._look_s_first, False
                await self._watch()
                continue
            if not is_logged:
                _log.info("the cluster does not know %s; `muster crds`", self.resource.name)
                is_logged = True
            await asyncio.sleep(look_s)
            look_s = min(2 * look_s, LOOK_S_MAX)

    async def _served(self) -> tuple[str, ...]:
        namespace = self._namespaces[0] if self._namespaces else ""
        served = []
        for version in self.resource.versions:
            try:
                await self._connection.get(self._path(version, namespace), {"limit": 1})
            except NotFound:
                continue
            except ApiError as error:
                _log.warning("%s: %s", self.resource.name, error)
                return ()
            served.append(version)
        return tuple(served)

    async def _watch(self) -> None:
        """Watch until the definition is deleted; jobs of its objects are not touched."""
        self._reflectors = [self._reflector(each) for each in self._namespaces or ("",)]
        tasks = [asyncio.create_task(each.run()) for each in self._reflectors]
        try:
            while not any(isinstance(each.trouble, NotFound) for each in self._reflectors):
                done, _ = await asyncio.wait(tasks, timeout=self._look_s_first)
                for task in done:
                    task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        _log.warning("%s is no longer served", self.resource.name)
        self._reflectors = []

    def _reflector(self, namespace: str) -> Reflector:
        return Reflector(
            self._connection,
            self._path(self.version, namespace),
            on_change=lambda change: self._on_change(self.resource, change),
            on_synced=lambda: self._on_synced(self.resource),
            trim=trimming(self.resource),
            resync_s=self._resync_s,
        )
