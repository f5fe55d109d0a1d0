"""What ranks write: read from their pods, and kept before the pods go."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from adapters.kubernetes.connection import Connection
from adapters.kubernetes.errors import ApiError
from adapters.kubernetes.log_archive import LogArchive, Run
from adapters.kubernetes.marks import Document, mark_of, name_of
from adapters.kubernetes.pods import waiting_name
from adapters.kubernetes.reflector import uid_of
from adapters.kubernetes.resources import RESOURCES
from adapters.kubernetes.wishes import is_over
from controlplane.commands import ReportRanks
from controlplane.job import Job
from controlplane.model import PLATFORM_CAUSES, Exit

# Of each run so much is kept at most.
KEPT_LINES_MAX = 5_000
KEPT_BYTES_MAX = 512 * 1024
# How long a rank's end is held back for its last words, and of how many ranks in one report.
LAST_WORDS_S_MAX = 2.0
LAST_WORDS_RANKS_MAX = 8
LAST_WORDS_LINES = 20
# Nobody waits longer than this for logs of pods that are to be deleted.
BEFORE_DELETION_S_MAX = 5.0

_log = logging.getLogger("muster.kubernetes")


class LogReading:
    def __init__(self, connection: Connection, archive: LogArchive | None) -> None:
        self._connection = connection
        self._archive = archive
        # Pods whose last words are kept already, by their uid.
        self._kept: dict[str, None] = {}
        # Those whose last words are being read, by their uid.
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def close(self) -> None:
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
        """The last lines of a container, or of the one before it if it was started again."""
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
        """The last lines, and each further one as it is written, until the container ends."""
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
        """The pod is over: what it wrote is all there is."""
        uid = uid_of(pod)
        if self._archive is None or uid in self._kept or not has_run(pod):
            return
        self._kept[uid] = None
        while len(self._kept) > 50_000:
            del self._kept[next(iter(self._kept))]
        task = self._tasks[uid] = asyncio.create_task(self._keep(pod))
        task.add_done_callback(lambda _: self._tasks.pop(uid, None))

    async def keep_now(self, pods: Iterable[Document]) -> None:
        """These pods are about to be deleted, and their logs with them."""
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
        mark = mark_of(pod)
        if mark is None or self._archive is None:
            return
        for place, name in speakers(pod):
            try:
                lines = await self.of_pod(
                    pod, name, KEPT_LINES_MAX, timeout_s=BEFORE_DELETION_S_MAX
                )
            except ApiError as error:
                _log.info("the log of %s (%s) is not kept: %s", name_of(pod), name, error)
            else:
                await self._archive.keep(Run(*mark, place, name), _within(lines, KEPT_BYTES_MAX))

    # ------------------------------------------------------------------ last words

    async def with_lines(
        self, job: Job, reports: list[ReportRanks], pods: Mapping[str, Document], names: list[str]
    ) -> list[ReportRanks]:
        """The reports, with the last lines of ranks that ended badly by themselves."""
        bad = [
            end
            for report in reports
            for end in report.exited
            if end.code and end.cause not in PLATFORM_CAUSES
        ][:LAST_WORDS_RANKS_MAX]
        if not bad:
            return reports
        last = await asyncio.gather(*(self._last(job, end, pods, names) for end in bad))
        told = dict(zip(bad, last, strict=True))
        return [
            replace(report, exited=tuple(told.get(end, end) for end in report.exited))
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
        except Exception:  # noqa: BLE001 - an end is reported even where its last lines cannot be
            _log.exception("the last lines of rank %d of job %s", end.rank, job.id)
            return end
        return replace(end, lines=tuple(_within(lines, 8 * 1024)))


def container_of(job: Job, rank: int) -> str:
    """The container that speaks for a rank, "" if it is the only one."""
    if rank >= job.spec.size:
        return ""
    role = job.spec.role_of(rank)[0]
    containers = (role.template.get("spec") or {}).get("containers") or ()
    if len(containers) < 2:
        return ""
    names = [str(each.get("name", "")) for each in containers]
    return role.container if role.container in names else names[0]


def containers_of(pod: Document) -> list[str]:
    """Every container of a pod by its name: those that run, then those that ran before them."""
    spec: Mapping[str, Any] = pod.get("spec") or {}
    both = (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))
    return [str(each.get("name", "")) for each in both]


def speakers(pod: Document) -> list[tuple[int, str]]:
    """The containers whose lines are worth keeping, with their places; those before them below 0.

    What waits for others on Muster's behalf has nothing to say, unless it failed.
    """
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    names = [str(each.get("name", "")) for each in spec.get("containers") or ()]
    found, waiting = list(enumerate(names)), {waiting_name(name) for name in names}
    for index, each in enumerate(status.get("initContainerStatuses") or ()):
        ended = (each.get("state") or {}).get("terminated") or {}
        if ended and (ended.get("exitCode") or each.get("name") not in waiting):
            found.append((-1 - index, str(each.get("name", ""))))
    return found


def has_run(pod: Document) -> bool:
    """Whether a container of it has written anything, or may have."""
    status: Mapping[str, Any] = pod.get("status") or {}
    if is_over(pod):
        ended = (*_states(status), *(status.get("initContainerStatuses") or ()))
        return any("terminated" in (s.get("state") or {}) for s in ended)
    return any("waiting" not in (s.get("state") or {"waiting": 0}) for s in _states(status))


def _states(status: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    found: Iterable[Mapping[str, Any]] = status.get("containerStatuses") or ()
    return found


def _within(lines: list[str], bytes_max: int) -> list[str]:
    """The last lines that fit."""
    left = bytes_max
    for index in range(len(lines) - 1, -1, -1):
        left -= len(lines[index]) + 1
        if left < 0:
            return lines[index + 1 :]
    return lines
