"""Every resource of the cluster that may be a job, watched in the newest version that is served."""

import asyncio
import logging
from collections.abc import Callable, Sequence

from adapters.kubernetes.connection import Connection
from adapters.kubernetes.errors import ApiError, NotFound
from adapters.kubernetes.marks import Document
from adapters.kubernetes.operator.reading import trimming
from adapters.kubernetes.operator.resources import Resource
from adapters.kubernetes.reflector import Change, Key, Reflector

# How often a definition that the cluster does not have is looked for.
LOOK_S_FIRST = 2.0
LOOK_S_MAX = 60.0
RESYNC_S = 300.0

_log = logging.getLogger("muster.kubernetes")

OnChange = Callable[[Resource, Change], None]
OnSynced = Callable[[Resource], None]


class Watch:
    """One resource, in all namespaces or in some."""

    def __init__(
        self,
        connection: Connection,
        resource: Resource,
        *,
        namespaces: Sequence[str] = (),
        on_change: OnChange,
        on_synced: OnSynced,
        resync_s: float = RESYNC_S,
        look_s_first: float = LOOK_S_FIRST,
    ) -> None:
        self.resource = resource
        # Our versions that the cluster serves, newest first; none before they are known.
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
        """The version in which it is watched."""
        return self.versions[0] if self.versions else ""

    @property
    def synced(self) -> bool:
        """Whether everything has been listed, so that what is missing is not there."""
        found = self._reflectors
        return bool(found) and all(each.synced.is_set() for each in found)

    def item(self, key: Key) -> Document | None:
        return next((each.items[key] for each in self._reflectors if key in each.items), None)

    def path(self, key: Key, version: str = "") -> str:
        """Where an object is; it is written in the version that it was written in at first."""
        return f"{self._path(version or self.version, key.namespace)}/{key.name}"

    def _path(self, version: str, namespace: str = "") -> str:
        group = f"/apis/{self.resource.group}/{version}"
        within = f"/namespaces/{namespace}" if namespace else ""
        return f"{group}{within}/{self.resource.plural}"

    async def run(self) -> None:
        """Watches for ever, whether the definition is there already or comes later."""
        look_s, is_told = self._look_s_first, False
        while True:
            self.versions = await self._served()
            if self.versions:
                look_s, is_told = self._look_s_first, False
                await self._watch()
                continue
            if not is_told:
                _log.info("the cluster does not know %s; `muster crds`", self.resource.name)
                is_told = True
            await asyncio.sleep(look_s)
            look_s = min(2 * look_s, LOOK_S_MAX)

    async def _served(self) -> tuple[str, ...]:
        namespace = self._namespaces[0] if self._namespaces else ""
        found = []
        for version in self.resource.versions:
            try:
                await self._connection.get(self._path(version, namespace), {"limit": 1})
            except NotFound:
                continue
            except ApiError as error:
                _log.warning("%s: %s", self.resource.name, error)
                return ()
            found.append(version)
        return tuple(found)

    async def _watch(self) -> None:
        """Until the definition is gone; what was made of its objects is left as it is."""
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
