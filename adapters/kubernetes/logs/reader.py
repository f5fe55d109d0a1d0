"""Logs of ranks: read from their pods, followed, and archived before the pods are deleted."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from adapters.kubernetes.api.connection import Connection
from adapters.kubernetes.api.errors import ApiError
from adapters.kubernetes.api.reflector import uid_of
from adapters.kubernetes.api.resources import RESOURCES
from adapters.kubernetes.observe.labels import Document, name_of, run_of
from adapters.kubernetes.reconcile.desired_pods import is_over
from adapters.kubernetes.render.pods import waiting_name
from controlplane.lifecycle.job import Job
from controlplane.model.commands import ReportRanks
from controlplane.model.failures import PLATFORM_CAUSES, Exit
from controlplane.ports import ContainerRun, RankLogArchive

# The most that is kept per container of a run.
KEPT_LINES_MAX = 5_000
KEPT_BYTES_MAX = 512 * 1024
# The last lines of failed ranks in a report: how long the report is delayed for them at most, for
# how many ranks, and how many lines each.
LAST_WORDS_S_MAX = 2.0
LAST_WORDS_RANKS_MAX = 8
LAST_WORDS_LINES = 20
# The longest time that the deletion of pods is delayed to keep their logs.
BEFORE_DELETION_S_MAX = 5.0

_log = logging.getLogger("muster.kubernetes")


class RankLogReader:
    """Reads logs of pods, and keeps them in `archive`; with None nothing is kept."""

    def __init__(self, connection: Connection, archive: RankLogArchive | None) -> None:
        self._connection = connection
        self._archive = archive
        # The uids of pods whose logs are kept or being kept, oldest first.
        self._kept: dict[str, None] = {}
        # The tasks that keep logs now, by the pod's uid.
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def close(self) -> None:
        """Cancel the tasks that keep logs."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def of_pod(
        self,
        pod: Document,
        container: str,
        lines_max: int,
        *,
        previous: bool = False,
        timeout_s: float | None = None,
    ) -> list[str]:
        """Return the last `lines_max` lines of a container; raise ApiError.

        With `previous`, those of the container's run before its last restart. With `timeout_s` the
        request is tried once instead of three times.
        """
        metadata = pod["metadata"]
        path = f"{RESOURCES['Pod'].one(metadata['namespace'], metadata['name'])}/log"
        query: dict[str, str | int] = {"tailLines": lines_max, "limitBytes": 16 * KEPT_BYTES_MAX}
        if container:
            query["container"] = container
        if previous:
            query["previous"] = "true"
        tries = 1 if timeout_s is not None else 3
        body = await self._connection.request(
            "GET", path, query=query, tries=tries, timeout_s=timeout_s
        )
        return body.decode("utf-8", "replace").splitlines()

    async def follow(self, pod: Document, container: str, lines_max: int) -> AsyncIterator[str]:
        """Yield the last `lines_max` lines, then each new line until the container ends."""
        metadata = pod["metadata"]
        path = f"{RESOURCES['Pod'].one(metadata['namespace'], metadata['name'])}/log"
        query: dict[str, str | int] = {"tailLines": lines_max, "follow": "true"}
        if container:
            query["container"] = container
        rest = b""
        async with self._connection.stream(path, query) as content:
            async for chunk in content.iter_any():
                *whole, rest = (rest + chunk).split(b"\n")
                for line in whole:
                    yield line.decode("utf-8", "replace")
        if rest:
            yield rest.decode("utf-8", "replace")

    # ------------------------------------------------------------------ keeping

    def keep_soon(self, pod: Document) -> None:
        """Start a task that keeps the logs of a pod that is over, unless it was kept already."""
        uid = uid_of(pod)
        if self._archive is None or uid in self._kept or not has_run(pod):
            return
        self._kept[uid] = None
        while len(self._kept) > 50_000:
            del self._kept[next(iter(self._kept))]
        task = self._tasks[uid] = asyncio.create_task(self._keep(pod))
        task.add_done_callback(lambda _: self._tasks.pop(uid, None))

    async def keep_now(self, pods: Iterable[Document]) -> None:
        """Keep the logs of pods that will be deleted, within `BEFORE_DELETION_S_MAX` seconds."""
        if self._archive is None:
            return
        work: list[asyncio.Task[None]] = []
        for pod in pods:
            if (begun := self._tasks.get(uid_of(pod))) is not None:
                work.append(begun)
            elif has_run(pod) and uid_of(pod) not in self._kept:
                work.append(asyncio.create_task(self._keep(pod)))
        if not work:
            return
        _, late = await asyncio.wait(work, timeout=BEFORE_DELETION_S_MAX)
        for task in late:
            task.cancel()
        if late:
            _log.warning("not all logs of %d pods could be kept in time", len(late))

    async def _keep(self, pod: Document) -> None:
        run = run_of(pod)
        if run is None or self._archive is None:
            return
        for place, name in speakers(pod):
            try:
                lines = await self.of_pod(
                    pod, name, KEPT_LINES_MAX, timeout_s=BEFORE_DELETION_S_MAX
                )
            except ApiError as error:
                _log.info("the log of %s (%s) is not kept: %s", name_of(pod), name, error)
            else:
                await self._archive.keep(
                    ContainerRun(*run, place, name), _within(lines, KEPT_BYTES_MAX)
                )

    # ------------------------------------------------------------------ last lines

    async def with_lines(
        self, job: Job, reports: list[ReportRanks], pods: Mapping[str, Document], names: list[str]
    ) -> list[ReportRanks]:
        """Return the reports with the last log lines of ranks that failed by themselves.

        At most `LAST_WORDS_RANKS_MAX` ranks get lines; a rank whose log cannot be read gets none.
        """
        bad = [
            end
            for report in reports
            for end in report.exited
            if end.code and end.cause not in PLATFORM_CAUSES
        ][:LAST_WORDS_RANKS_MAX]
        if not bad:
            return reports
        last = await asyncio.gather(*(self._last(job, end, pods, names) for end in bad))
        with_tail = dict(zip(bad, last, strict=True))
        return [
            replace(report, exited=tuple(with_tail.get(end, end) for end in report.exited))
            for report in reports
        ]

    async def _last(
        self, job: Job, end: Exit, pods: Mapping[str, Document], names: list[str]
    ) -> Exit:
        attempt = job.attempt
        known = attempt is not None and end.rank < len(names)
        pod = pods.get(names[end.rank]) if known else None
        if pod is None:
            return end
        try:
            lines = await self.of_pod(
                pod, container_of(job, end.rank), LAST_WORDS_LINES, timeout_s=LAST_WORDS_S_MAX
            )
        except ApiError:
            return end
        except Exception:  # noqa: BLE001 - an exit is reported even without its last lines
            _log.exception("the last lines of rank %d of job %s", end.rank, job.id)
            return end
        return replace(end, lines=tuple(_within(lines, 8 * 1024)))


def container_of(job: Job, rank: int) -> str:
    """Return the name of the rank's main container; "" if it is the only one."""
    if rank >= job.spec.size:
        return ""
    role = job.spec.role_of(rank)[0]
    containers = (role.template.get("spec") or {}).get("containers") or ()
    if len(containers) < 2:
        return ""
    names = [str(each.get("name", "")) for each in containers]
    return role.container if role.container in names else names[0]


def containers_of(pod: Document) -> list[str]:
    """Return the names of a pod's containers, then those of its init containers."""
    spec: Mapping[str, Any] = pod.get("spec") or {}
    both = (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))
    return [str(each.get("name", "")) for each in both]


def speakers(pod: Document) -> list[tuple[int, str]]:
    """Return (index, name) of the containers whose logs are kept; init containers count from -1.

    Init containers of Muster that wait for other ranks are left out unless they failed.
    """
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    names = [str(each.get("name", "")) for each in spec.get("containers") or ()]
    speaking, waiting = list(enumerate(names)), {waiting_name(name) for name in names}
    for index, each in enumerate(status.get("initContainerStatuses") or ()):
        ended = (each.get("state") or {}).get("terminated") or {}
        if ended and (ended.get("exitCode") or each.get("name") not in waiting):
            speaking.append((-1 - index, str(each.get("name", ""))))
    return speaking


def has_run(pod: Document) -> bool:
    """Return whether a container of the pod has run, and so may have written lines."""
    status: Mapping[str, Any] = pod.get("status") or {}
    if is_over(pod):
        ended = (*_states(status), *(status.get("initContainerStatuses") or ()))
        return any("terminated" in (s.get("state") or {}) for s in ended)
    return any("waiting" not in (s.get("state") or {"waiting": 0}) for s in _states(status))


def _states(status: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    statuses: Iterable[Mapping[str, Any]] = status.get("containerStatuses") or ()
    return statuses


def _within(lines: list[str], bytes_max: int) -> list[str]:
    """Return as many of the last lines as fit into `bytes_max` bytes of UTF-8, with line ends."""
    left = bytes_max
    for index in range(len(lines) - 1, -1, -1):
        left -= len(lines[index].encode()) + 1
        if left < 0:
            return lines[index + 1 :]
    return lines
