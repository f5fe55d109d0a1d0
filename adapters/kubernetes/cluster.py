"""The Cluster port on a real cluster: effects become objects, and what is seen becomes reports.

Nothing is done or told before everything has been listed once, and nothing after `close`. Reads are
watches: when nothing changes, nothing is asked.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import NamedTuple, assert_never

from adapters.kubernetes import gang_schedulers
from adapters.kubernetes.binding import BINDINGS, SCHEDULER
from adapters.kubernetes.connection import Connection
from adapters.kubernetes.errors import ApiError, NotFound
from adapters.kubernetes.eyes import Eyes
from adapters.kubernetes.hands import Hands
from adapters.kubernetes.log_archive import LogArchive
from adapters.kubernetes.log_reading import LogReading, container_of, containers_of
from adapters.kubernetes.machines import Machines
from adapters.kubernetes.marks import Document, mark_of, name_of
from adapters.kubernetes.plan import Plan
from adapters.kubernetes.reflector import Change
from adapters.kubernetes.site import Owner, Site, unbound
from adapters.kubernetes.tending import Tending
from adapters.kubernetes.wishes import is_over
from controlplane.commands import Report, ReportRanks
from controlplane.effects import Effect, LaunchGang, StopGang, Survey, Tidy
from controlplane.errors import Rejected
from controlplane.job import Job
from controlplane.model import JobSpec
from controlplane.ports import PodPlace
from controlplane.unheeded_constraints import refusal

_log = logging.getLogger("muster.kubernetes")


class Options(NamedTuple):
    """How one cluster is driven."""

    # Only these namespaces; none means all of them.
    namespaces: tuple[str, ...] = ()
    # What the cluster's DNS appends to names, such as cluster.local.
    domain: str = ""
    # Muster binds pods where it placed them; otherwise the cluster's scheduler chooses the nodes.
    binds_itself: bool = True
    # Who chooses devices within a node: see `binding.BINDINGS`.
    devices: str = "kubelet"
    # A gang scheduler that gets whole gangs: see `gang_schedulers`.
    gang: str = ""
    # Labels of nodes that say where they stand, outermost first.
    levels: tuple[str, ...] = ()
    resync_s: float = 300.0
    lost_after_s: float = 10.0
    waiting_image: str = Site().waiting_image
    code_image: str = Site().code_image
    board_image: str = Site().board_image


class KubernetesCluster:
    """`instance` names the control plane: objects of others are left alone.

    It is asked when the first effect comes, because the log that it is read from may be empty
    before. `owner_of` is the object that a job's objects hang on, if it has one in this cluster.
    """

    def __init__(
        self,
        connection: Connection,
        instance: Callable[[], Awaitable[str]],
        options: Options | None = None,
        *,
        archive: LogArchive | None = None,
        owner_of: Callable[[Job], Owner | None] = lambda job: None,
        on_planned: Callable[[Job, Plan], None] = lambda job, plan: None,
    ) -> None:
        self._connection = connection
        self._instance = instance
        self._options = options or Options()
        self._owner_of = owner_of
        self._on_planned = on_planned
        self._archive = archive
        self._logs = LogReading(connection, archive)
        self._report: Callable[[Report], None] = lambda report: None
        self._eyes: Eyes | None = None
        self._tending: Tending | None = None
        self._site = Site()
        self._machines: Machines | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def vet(self, spec: JobSpec) -> Rejected | None:
        """Why a job cannot be bound here; see `controlplane.ports.VetsJobs`."""
        return refusal(spec) if self._options.binds_itself else None

    async def connect(self, report: Callable[[Report], None]) -> None:
        """What was under way for who was connected before is dropped, for he may lead no more.

        What is seen is told from then on, but nothing is done for a job before it is asked for
        again. So whoever should do nothing more connects somebody who does not listen.
        """
        if self._tending is not None:
            await self._tending.rest()
        self._report = report

    async def close(self) -> None:
        """Stops looking and acting; whatever runs goes on running."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._machines is not None:
            self._machines.close()
        if self._tending is not None:
            await self._tending.close()
        await self._logs.close()
        if self._archive is not None:
            await self._archive.close()
        await self._connection.close()

    @property
    def trouble(self) -> ApiError | None:
        """Why the cluster cannot be seen now, if so."""
        return None if self._eyes is None else self._eyes.trouble

    # ------------------------------------------------------------------ effects

    async def carry_out(self, effects: Sequence[Effect]) -> None:
        if self._eyes is None:
            await self._begin()
        tending = self._tending
        assert tending is not None
        for effect in effects:
            match effect:
                case LaunchGang():
                    tending.launch(effect)
                case StopGang():
                    tending.stop(effect)
                case Tidy():
                    tending.tidy(effect.job_id, effect.job)
                    if effect.job is None and self._archive is not None:
                        self._spawn(self._archive.forget(effect.job_id))
                case Survey():
                    self._tidy_up(tending, effect)
                    self._spawn(self._survey())
                case _:
                    assert_never(effect)

    async def _begin(self) -> None:
        options, instance = self._options, await self._instance()
        groups = gang_schedulers.version(options.gang) if options.gang else ""
        binds_itself = options.binds_itself and not options.gang
        self._site = Site(
            domain=options.domain,
            scheduler=SCHEDULER if binds_itself else "",
            bind=BINDINGS[options.devices] if binds_itself else unbound,
            gang=options.gang,
            instance=instance,
            waiting_image=options.waiting_image,
            code_image=options.code_image,
            board_image=options.board_image,
        )
        eyes = self._eyes = Eyes(
            self._connection,
            instance=instance,
            namespaces=options.namespaces,
            pod_groups=groups,
            resync_s=options.resync_s,
            on_change=self._changed,
            on_node=lambda change: machines.on_node(change),
            on_other=lambda change: machines.on_other(change),
        )
        machines = self._machines = Machines(
            lambda: eyes,
            lambda report: self._report(report),
            lost_after_s=options.lost_after_s,
            levels=options.levels,
        )
        self._tending = self._new_tending()
        for reflector in eyes.reflectors:
            self._spawn(reflector.run())

    def _new_tending(self) -> Tending:
        assert self._eyes is not None
        site = self._site
        groups = gang_schedulers.version(site.gang) if site.gang else ""
        return Tending(
            self._eyes,
            Hands(self._connection, self._eyes, pod_groups=groups),
            site,
            report=lambda report: self._report(report),
            with_lines=self._with_lines,
            before_deletion=self._before_deletion,
            binds_itself=site.scheduler == SCHEDULER,
            owner_of=self._owner_of,
            on_planned=self._on_planned,
        )

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _tidy_up(self, tending: Tending, survey: Survey) -> None:
        """What is left of jobs that nobody tends: those that have ended, and those that are gone."""
        assert self._eyes is not None
        if survey.known is None:
            return
        found = [(job, survey.known(job)) for job in self._eyes.jobs if not tending.knows(job)]
        for job_id, job in found:
            tending.tidy(job_id, job)

    async def _survey(self) -> None:
        assert self._eyes is not None
        assert self._machines is not None
        await self._eyes.see_nodes()
        self._machines.survey()

    # ------------------------------------------------------------------ what is seen

    def _changed(self, job: str, kind: str, change: Change) -> None:
        assert self._tending is not None
        try:
            self._tending.on_change(job, kind, change)
            if kind == "Pod" and change.now is not None and is_over(change.now):
                self._logs.keep_soon(change.now)
        except Exception:  # noqa: BLE001 - the watch that told it is every job's
            _log.exception("a change of job %s could not be handled; looking at all of it", job)
            self._tending.look_again(job)

    async def _with_lines(self, job: Job, reports: list[ReportRanks]) -> list[ReportRanks]:
        assert self._eyes is not None
        assert self._tending is not None
        pods = self._eyes.pods_of(job.id)
        return await self._logs.with_lines(job, reports, pods, self._tending.names(job.id))

    async def _before_deletion(self, pods: list[Document]) -> None:
        await self._logs.keep_now(pods)

    # ------------------------------------------------------------------ questions

    async def logs(self, job: Job, rank: int, lines_max: int, container: str = "") -> list[str]:
        if job.attempt is None or lines_max <= 0:
            return []
        pod, container = self._pod(job, rank), container or container_of(job, rank)
        if pod is not None:
            try:
                return await self._logs.of_pod(pod, container, lines_max)
            except NotFound:
                pass
            except ApiError as error:
                _log.info("logs of %s/%s rank %d: %s", job.namespace, job.name, rank, error)
        if self._archive is None:
            return []
        return await self._archive.lines(job.id, job.attempt.number, rank, lines_max, container)

    async def containers(self, job: Job, rank: int, attempt: int = 0) -> list[str]:
        pod, latest = self._pod(job, rank), 0 if job.attempt is None else job.attempt.number
        if pod is not None and attempt in (0, latest):
            return containers_of(pod)
        if self._archive is None:
            return []
        return await self._archive.containers(job.id, attempt or latest, rank)

    async def older_logs(
        self,
        job: Job,
        rank: int,
        lines_max: int,
        *,
        attempt: int,
        previous: bool,
        container: str = "",
    ) -> list[str]:
        container = container or container_of(job, rank)
        pod, latest = self._pod(job, rank), 0 if job.attempt is None else job.attempt.number
        if previous and pod is not None and attempt in (0, latest):
            try:
                return await self._logs.of_pod(pod, container, lines_max, previous=True)
            except ApiError as error:
                _log.info("logs of %s/%s rank %d: %s", job.namespace, job.name, rank, error)
                return []
        if attempt in (0, latest):
            return [] if previous else await self.logs(job, rank, lines_max, container)
        if self._archive is None:
            return []
        return await self._archive.lines(job.id, attempt, rank, lines_max, container)

    async def follow(
        self, job: Job, rank: int, lines_max: int, container: str = ""
    ) -> AsyncIterator[str]:
        pod, container = self._pod(job, rank), container or container_of(job, rank)
        if pod is None:
            return
        try:
            async for line in self._logs.follow(pod, container, lines_max):
                yield line
        except ApiError as error:
            _log.info("logs of %s/%s rank %d: %s", job.namespace, job.name, rank, error)

    def place(self, job: Job, rank: int) -> PodPlace | None:
        pod = self._pod(job, rank)
        if pod is None:
            return None
        return PodPlace(
            cluster=self._connection.host,
            namespace=job.namespace,
            pod=name_of(pod),
            container=container_of(job, rank),
            node=str((pod.get("spec") or {}).get("nodeName", "")),
        )

    def _pod(self, job: Job, rank: int) -> Document | None:
        """The pod of a rank in the latest attempt, its latest run."""
        if self._eyes is None or job.attempt is None:
            return None
        number, found = job.attempt.number, dict[int, Document]()
        for pod in self._eyes.pods_of(job.id).values():
            mark = mark_of(pod)
            if mark is not None and (mark.attempt, mark.rank) == (number, rank):
                found[mark.incarnation] = pod
        return found[max(found)] if found else None
