"""The Cluster port on Kubernetes: effects become objects, and observations become reports.

`KubernetesCluster` connects the parts of this package: informers list and watch, the reconciler
writes objects, the node reporter reports nodes, and the log reader reads and keeps logs. Nothing is
written or reported before every watched kind has been listed once, and nothing after `close`. Reads
are watches: when nothing changes, nothing is requested.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import NamedTuple, assert_never

from adapters.kubernetes.api.connection import Connection
from adapters.kubernetes.api.errors import ApiError, NotFound
from adapters.kubernetes.api.reflector import Change
from adapters.kubernetes.logs.reader import RankLogReader, container_of, containers_of
from adapters.kubernetes.observe.informers import JobInformers
from adapters.kubernetes.observe.labels import Document, name_of, run_of
from adapters.kubernetes.observe.node_reporter import NodeReporter
from adapters.kubernetes.reconcile.binding import BINDINGS, SCHEDULER
from adapters.kubernetes.reconcile.desired_pods import is_over
from adapters.kubernetes.reconcile.object_writer import ObjectWriter
from adapters.kubernetes.reconcile.plan import Plan
from adapters.kubernetes.reconcile.reconciler import JobReconciler
from adapters.kubernetes.render import pod_group
from adapters.kubernetes.render.site import Owner, Site, unbound
from controlplane.lifecycle.effects import Effect, LaunchGang, StopGang, Survey, Tidy
from controlplane.lifecycle.job import Job
from controlplane.model.addresses import ServiceNames
from controlplane.model.commands import Report, ReportRanks
from controlplane.model.errors import Rejected
from controlplane.model.spec import JobSpec
from controlplane.model.unsupported_constraints import refusal
from controlplane.ports import RankConsole, RankLogArchive

_log = logging.getLogger("muster.kubernetes")


class Options(NamedTuple):
    """The settings of one cluster."""

    # The namespaces that are watched; empty means all.
    namespaces: tuple[str, ...] = ()
    # What the cluster's DNS appends to names, such as cluster.local.
    domain: str = ""
    # True: Muster binds each pod to the node that it chose. False: the cluster's scheduler chooses.
    binds_itself: bool = True
    # Which component chooses the devices within a node: a key of `binding.BINDINGS`.
    devices: str = "kubelet"
    # The gang scheduler that places gangs instead of Muster, "" for none: see `render.pod_group`.
    gang: str = ""
    # The node labels that name the topology levels, outermost first.
    levels: tuple[str, ...] = ()
    resync_s: float = 300.0
    lost_after_s: float = 10.0
    waiting_image: str = Site().waiting_image
    code_image: str = Site().code_image
    board_image: str = Site().board_image


class KubernetesCluster:
    """The Cluster port for one Kubernetes cluster.

    `instance` returns the name of this control plane; objects of other control planes are not
    touched. It is called at the first effect, because the log that holds the name may be empty
    before. `archive` keeps the logs of ranks whose pods are gone; with None they are lost.
    `owner_of` returns the owner reference for a job's objects, or None for a job that has no object
    in this cluster. `on_planned` is called with each plan after its requests have been sent.
    """

    def __init__(
        self,
        connection: Connection,
        instance: Callable[[], Awaitable[str]],
        options: Options | None = None,
        *,
        archive: RankLogArchive | None = None,
        owner_of: Callable[[Job], Owner | None] = lambda job: None,
        on_planned: Callable[[Job, Plan], None] = lambda job, plan: None,
    ) -> None:
        self._connection = connection
        self._instance = instance
        self._options = options or Options()
        self._owner_of = owner_of
        self._on_planned = on_planned
        self._archive = archive
        self._logs = RankLogReader(connection, archive)
        self._report: Callable[[Report], None] = lambda report: None
        self._informers: JobInformers | None = None
        self._reconciler: JobReconciler | None = None
        self._site = Site()
        self._node_reporter: NodeReporter | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def vet(self, spec: JobSpec) -> Rejected | None:
        """Return why this cluster cannot run `spec`, or None; see `controlplane.ports.VetsJobs`.

        Only a cluster on which Muster binds pods refuses jobs.
        """
        return refusal(spec) if self._options.binds_itself else None

    def addresses(self, job: Job) -> ServiceNames:
        """Return the names of the services and pods of the job's ranks."""
        return ServiceNames(self._options.domain)

    async def connect(self, report: Callable[[Report], None]) -> None:
        """Send reports to `report` from now on, and pause the reconciler.

        Work in progress for the previous listener is cancelled, because its engine may no longer
        lead. Observations are reported at once; a job is reconciled again only after its next
        effect. Connecting a function that ignores reports therefore stops all writes.
        """
        if self._reconciler is not None:
            await self._reconciler.pause()
        self._report = report

    async def close(self) -> None:
        """Stop watching and writing; pods keep running."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._node_reporter is not None:
            self._node_reporter.close()
        if self._reconciler is not None:
            await self._reconciler.close()
        await self._logs.close()
        await self._connection.close()

    @property
    def trouble(self) -> ApiError | None:
        """The error of a reflector that cannot list or watch now; None if all can."""
        return None if self._informers is None else self._informers.trouble

    # ------------------------------------------------------------------ effects

    async def carry_out(self, effects: Sequence[Effect]) -> None:
        """Accept the effects; the first call creates the informers and starts watching."""
        if self._informers is None:
            await self._begin()
        reconciler = self._reconciler
        assert reconciler is not None
        for effect in effects:
            match effect:
                case LaunchGang():
                    reconciler.launch(effect)
                case StopGang():
                    reconciler.stop(effect)
                case Tidy():
                    reconciler.tidy(effect.job_id, effect.job)
                    if effect.job is None and self._archive is not None:
                        self._spawn(self._archive.forget(effect.job_id))
                case Survey():
                    self._tidy_up(reconciler, effect)
                    self._spawn(self._survey())
                case _:
                    assert_never(effect)

    async def _begin(self) -> None:
        options, instance = self._options, await self._instance()
        groups = pod_group.version(options.gang) if options.gang else ""
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
        informers = self._informers = JobInformers(
            self._connection,
            instance=instance,
            namespaces=options.namespaces,
            pod_groups=groups,
            resync_s=options.resync_s,
            on_change=self._changed,
            on_node=lambda change: node_reporter.on_node(change),
            on_other=lambda change: node_reporter.on_other(change),
        )
        node_reporter = self._node_reporter = NodeReporter(
            lambda: informers,
            lambda report: self._report(report),
            lost_after_s=options.lost_after_s,
            levels=options.levels,
        )
        self._reconciler = self._new_tending()
        for reflector in informers.reflectors:
            self._spawn(reflector.run())

    def _new_tending(self) -> JobReconciler:
        assert self._informers is not None
        site = self._site
        groups = pod_group.version(site.gang) if site.gang else ""
        return JobReconciler(
            self._informers,
            ObjectWriter(self._connection, self._informers, pod_groups=groups),
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

    def _tidy_up(self, reconciler: JobReconciler, survey: Survey) -> None:
        """Collect the objects of jobs without a reconcile context: finished or unknown jobs."""
        assert self._informers is not None
        if survey.known is None:
            return
        unknown = [
            (job, survey.known(job)) for job in self._informers.jobs if not reconciler.knows(job)
        ]
        for job_id, job in unknown:
            reconciler.tidy(job_id, job)

    async def _survey(self) -> None:
        assert self._informers is not None
        assert self._node_reporter is not None
        await self._informers.see_nodes()
        self._node_reporter.survey()

    # ------------------------------------------------------------------ observations

    def _changed(self, job: str, kind: str, change: Change) -> None:
        assert self._reconciler is not None
        try:
            self._reconciler.on_change(job, kind, change)
            if kind == "Pod" and change.now is not None and is_over(change.now):
                self._logs.keep_soon(change.now)
        except Exception:  # noqa: BLE001 - all jobs share the watch, so it must not end
            _log.exception("a change of job %s could not be handled; looking at all of it", job)
            self._reconciler.look_again(job)

    async def _with_lines(self, job: Job, reports: list[ReportRanks]) -> list[ReportRanks]:
        assert self._informers is not None
        assert self._reconciler is not None
        pods = self._informers.pods_of(job.id)
        return await self._logs.with_lines(job, reports, pods, self._reconciler.names(job.id))

    async def _before_deletion(self, pods: list[Document]) -> None:
        await self._logs.keep_now(pods)

    # ------------------------------------------------------------------ queries

    async def logs(self, job: Job, rank: int, lines_max: int, container: str = "") -> list[str]:
        """Return the last lines of a rank in the latest attempt, from its pod or the archive.

        Empty if neither has any. An empty `container` means the main container, here and below.
        """
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
        """Return the containers of a rank's pod or archived logs; attempt 0 is the latest."""
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
        """Return the last lines of an earlier attempt, or of the run before a restart in place.

        Attempt 0 is the latest. With `previous` only an existing pod has lines.
        """
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

    def follow(
        self, job: Job, rank: int, lines_max: int, container: str = ""
    ) -> AsyncIterator[str] | None:
        """Yield the last lines of a rank, then each new one; end if its pod or the stream ends.

        None if the rank has no pod.
        """
        pod = self._pod(job, rank)
        if pod is None:
            return None
        return self._follow(job, rank, pod, container or container_of(job, rank), lines_max)

    async def _follow(
        self, job: Job, rank: int, pod: Document, container: str, lines_max: int
    ) -> AsyncIterator[str]:
        try:
            async for line in self._logs.follow(pod, container, lines_max):
                yield line
        except ApiError as error:
            _log.info("logs of %s/%s rank %d: %s", job.namespace, job.name, rank, error)

    def console(self, job: Job, rank: int) -> RankConsole | None:
        """Return the console of the rank's pod, or None if it has no pod now."""
        pod = self._pod(job, rank)
        if pod is None:
            return None
        return RankConsole(
            cluster=self._connection.host,
            namespace=job.namespace,
            pod=name_of(pod),
            container=container_of(job, rank),
            node=str((pod.get("spec") or {}).get("nodeName", "")),
        )

    def _pod(self, job: Job, rank: int) -> Document | None:
        """Return the pod of the rank's latest run in the latest attempt, or None."""
        if self._informers is None or job.attempt is None:
            return None
        number, pods = job.attempt.number, dict[int, Document]()
        for pod in self._informers.pods_of(job.id).values():
            run = run_of(pod)
            if run is not None and (run.attempt, run.rank) == (number, rank):
                pods[run.incarnation] = pod
        return pods[max(pods)] if pods else None
