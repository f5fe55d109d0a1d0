"""The Cluster port on the simulated machine: effects become gangs, machine events become reports.

The cluster keeps running while the control plane is down. If the log shows running ranks of an
attempt that this object does not know, those ranks have been running all the time; the cluster
adopts them and simulates only the work that they have left.

No method awaits anything, so the adapter works under SimPy and asyncio alike.
"""

import logging
from collections.abc import Callable, Collection, Container, Hashable, Iterable, Sequence
from typing import assert_never

from adapters.simulated_cluster.desired_work import (
    asked_at,
    desired_work,
    stopped_at,
    together,
)
from adapters.simulated_cluster.failures import planned_failure
from adapters.simulated_cluster.feasibility import refusal, undeclared
from adapters.simulated_cluster.gang_key import GangKey, attempt_of, initial_runs
from adapters.simulated_cluster.log_lines import log_lines
from adapters.simulated_cluster.outcomes import exits_of, loss_of, node_lost, warning
from adapters.simulated_cluster.reports import node_report, survey
from adapters.simulated_cluster.telemetry import SimulatedTelemetry
from adapters.simulated_cluster.workload import workload_of
from controlplane.decisions.isolation import fault_of
from controlplane.lifecycle.attempt import Attempt
from controlplane.lifecycle.effects import (
    Effect,
    LaunchGang,
    StopGang,
    Survey,
    Tidy,
    ranks_to_run,
    wanted,
)
from controlplane.lifecycle.job import Job
from controlplane.lifecycle.runs import RankRun, RunTracker, current_run
from controlplane.model.commands import (
    Report,
    ReportError,
    ReportPoolRequest,
    ReportPoolReturn,
    ReportRanks,
)
from controlplane.model.errors import Rejected
from controlplane.model.events import (
    Event,
    FaultInjected,
    PoolNodesRequested,
    PoolNodesReturned,
    RanksExited,
    RanksGone,
    Recorded,
)
from controlplane.model.failures import Cause, Exit
from controlplane.model.phases import WITH_DEVICES, RankState
from controlplane.model.spec import JobSpec, goes_on_smaller
from controlplane.ports import DeviceReading, LinkReading
from simulator.faults import Fault, FaultKind
from simulator.kernel.virtual_time import VirtualTime
from simulator.machine.autoscaling import Autoscaler
from simulator.machine.events import (
    Broke,
    Ended,
    MachineEvent,
    NodeDown,
    NodesRequested,
    NodesReturned,
    NodeUp,
    NodeWarned,
    PlacementFailed,
    Scaling,
    Started,
    Stopped,
)
from simulator.machine.gang import Gang, Part
from simulator.machine.gang_training import Saved
from simulator.machine.machine import Machine
from simulator.network.topology import ClusterModel, NodeModel

_log = logging.getLogger("muster")


class SimulatedCluster:
    """A Cluster and its Telemetry, simulated.

    - `origin`: the control plane's time at the environment's time 0, the birth of the cluster.
    - `sync`: advances the environment to the present where it follows a clock; see `Pacer.sync`.
    - `waiting_gpus`: returns the GPUs that queued gangs request, by which pools grow.
    - `inherits_at`: where this cluster continues the work of another one, the time of the takeover;
      effects requested before then are under way already.
    - `saved`: the progress that checkpoints hold, by job; kept in this object if left out.
    - `there`: nodes of pools that are rented already.
    - `added`: nodes in addition to the model's.

    A cluster that is created again after its process ended replays the log; see `recovery`.
    """

    def __init__(
        self,
        env: VirtualTime,
        model: ClusterModel,
        *,
        origin: float = 0.0,
        sync: Callable[[], None] = lambda: None,
        waiting_gpus: Callable[[], int] = lambda: 0,
        inherits_at: float = float("-inf"),
        saved: Saved | None = None,
        there: Container[str] = (),
        added: Sequence[NodeModel] = (),
    ) -> None:
        self.env = env
        self._env = env
        self._origin = origin
        self._sync = sync
        self._inherits_at = inherits_at
        self._extended = model.extended_resources
        self._report: Callable[[Report], None] = lambda report: None
        # The handle of a run is the key of its gang in the machine.
        self._tracker = RunTracker[GangKey](lambda report: self._report(report))
        # Reports of the last replayed instant, which the log does not have.
        self._unreported: list[Report] = []
        self._machine = Machine(env, model, self._on_event, saved, added)
        self._waiting_gpus = waiting_gpus
        self._pools = Autoscaler(
            env, model, self._machine, lambda: self._waiting_gpus(), self._on_event, there
        )
        self._telemetry = SimulatedTelemetry(self._machine)
        self._conditions = model.faults.preset
        self._seed = model.seed
        self._nodes = {node.name: node for node in (*model.nodes, *added)}

    def vet(self, spec: JobSpec) -> Rejected | None:
        """Return why the job cannot train here, or None; see `controlplane.ports.VetsJobs`."""
        return undeclared(spec, self._extended) or refusal(spec, self._nodes.values())

    async def connect(self, report: Callable[[Report], None]) -> None:
        self._report = report
        unreported, self._unreported = self._unreported, []
        for unsent in unreported:
            report(unsent)

    @property
    def origin(self) -> float:
        return self._origin

    # ---------------------------------------------------------------- replay

    def start_replay(self, waiting_gpus: Callable[[], int]) -> None:
        """Begin a replay: scaling decisions come from the log, and reports are dropped."""
        self._pools.following = True
        self._live_waiting_gpus, self._waiting_gpus = self._waiting_gpus, waiting_gpus

    def apply(self, effects: Sequence[Effect], *, last: bool = False) -> None:
        """Carry out replayed effects. Reports that the `last` ones cause at once are kept for `connect`."""
        if last:
            self._report = self._unreported.append
        self._carry_out(effects)

    def end_replay(self) -> None:
        """End the replay: from now on the cluster scales its pools and reports."""
        self._pools.following = False
        self._waiting_gpus = self._live_waiting_gpus

    def apply_event(self, event: Event) -> None:
        """Change the machine to agree with an event of the log, where it differs."""
        match event:
            case PoolNodesRequested():
                ready = [at - self._origin for at in event.ready_at]
                self._pools.follow_request(event.pool, event.nodes, ready)
            case PoolNodesReturned():
                self._pools.follow_return(event.pool, event.nodes)
            case RanksExited():
                ended = tuple(end.rank for end in event.exits)
                self._forget(event.job, event.attempt, ended)
            case RanksGone():
                self._forget(event.job, event.attempt, event.ranks)
            case _:
                pass

    def agrees_with(self, job: Job) -> bool:
        """Return whether the machine runs every rank that runs in the log, or has reported its end."""
        attempt = attempt_of(job)
        runs = self._tracker.of_attempt(job.id, attempt.number)
        if runs is None:
            return False
        alive = {rank for key in runs.handles() for rank in self._machine.alive(key)}
        started = {rank for report in runs.reports for rank in report.started}
        ended = {end.rank for report in runs.reports for end in report.exited}
        ended.update(rank for report in runs.reports for rank in report.gone)
        running = {i for i, rank in enumerate(attempt.ranks) if rank.state is RankState.RUNNING}
        return running <= started and alive | ended >= set(ranks_to_run(job))

    def restart_from_log(self, job: Job) -> None:
        """Discard a job's attempt in the machine, and start it again from its state in the log."""
        runs = self._tracker.attempts.pop(job.id, None)
        for key in () if runs is None else runs.handles():
            self._machine.forget(key, self._machine.alive(key))
        if (effect := wanted(job)) is not None:
            self._carry_out([effect])

    def _forget(self, job: str, attempt: int, ranks: tuple[int, ...]) -> None:
        runs = self._tracker.of_attempt(job, attempt)
        for key in () if runs is None else runs.handles():
            self._machine.forget(key, ranks)

    # ---------------------------------------------------------------- effects

    async def carry_out(self, effects: Sequence[Effect]) -> None:
        self._sync()
        self._carry_out(effects)

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case LaunchGang() | StopGang():
                    act = self._launch if isinstance(effect, LaunchGang) else self._stop
                    try:
                        act(effect.job)
                    except Exception as error:  # noqa: BLE001 - the error fails this job only
                        where = f"simulate {type(effect).__name__}"
                        self._fail_job(effect.job_id, effect.attempt, where, error)
                case Survey():
                    self._report(survey(self._machine, self._extended))
                case Tidy():
                    # A gang that has ended leaves nothing but its log lines, which are generated.
                    pass
                case _:
                    assert_never(effect)

    async def logs(self, job: Job, rank: int, lines_max: int) -> list[str]:
        self._sync()
        lines = log_lines(job, rank, self._now())
        return lines[-lines_max:] if lines_max > 0 else []

    async def devices(self) -> Sequence[DeviceReading]:
        """Return the present reading of every GPU; see `controlplane.ports.Telemetry`."""
        self._sync()
        return await self._telemetry.devices()

    async def links(self) -> Sequence[LinkReading]:
        self._sync()
        return await self._telemetry.links()

    @property
    def running(self) -> list[tuple[str, int]]:
        """The attempts that have ranks in the cluster, as (job, attempt)."""
        return sorted(
            {(key.job, key.attempt) for key in self._machine.keys if isinstance(key, GangKey)}
        )

    @property
    def saved(self) -> dict[Hashable, float]:
        """The share of its training that the checkpoints of each unfinished job hold."""
        return dict(self._machine.training.saved)

    @property
    def lost_s(self) -> dict[str, float]:
        """Seconds of training that were repeated because no checkpoint held them, by job."""
        return {str(job): lost for job, lost in self._machine.training.lost_s.items()}

    @property
    def spent(self) -> dict[str, float]:
        """The cost of each pool's nodes so far."""
        return self._pools.spent()

    @property
    def pooled_gpu_s(self) -> dict[str, float]:
        """The GPU-seconds that each pool's nodes have been available so far."""
        return self._pools.there_gpu_s()

    def spare(self, nodes: Collection[str]) -> None:
        """Suppress all later faults of these nodes; "all" stands for every node."""
        every = self._nodes.keys() if "all" in nodes else nodes
        self._machine.spared = frozenset(every)

    def fail_node(
        self, name: str, repair_s: float | None, kind: FaultKind = FaultKind.CRASH
    ) -> None:
        """Make a node fail now, for `repair_s` or, if that is None, for good.

        Raises LookupError if the cluster has no such node.
        """
        if self._machine.node(name) is None:
            raise LookupError(f"the simulated cluster has no node {name}")
        self._sync()
        self._machine.fail(name, repair_s, kind)

    def inject(self, recorded: Recorded) -> None:
        """Schedule the fault that an event of the log asks for.

        A node that this cluster does not have gets none.
        """
        event = recorded.event
        assert isinstance(event, FaultInjected), event
        if self._machine.node(event.node) is None:
            return
        fault = event.fault
        begins_s = recorded.at + event.delay_s - self._origin
        self._machine.expect(
            Fault(
                begins_s + fault.notice_s,
                event.node,
                fault.duration_s,
                FaultKind(fault.kind.value),
                cause="asked for",
                factor=fault.factor,
                notice_s=fault.notice_s,
            )
        )

    def _launch(self, job: Job) -> None:
        attempt = attempt_of(job)
        is_new = self._is_new(job.id, attempt)
        start, stop = self._tracker.launch(job)
        gang, alone = initial_runs(job, attempt, start) if is_new else ([], start)
        if gang:
            self._start(GangKey(job.id, attempt.number), job, attempt, gang)
        for run in alone:
            key = GangKey(job.id, attempt.number, run.incarnation, run.rank)
            self._start(key, job, attempt, [run])
        self._stop_runs(stop)
        if is_new:
            self._report_lost(job, attempt)

    def _is_new(self, job: str, attempt: Attempt) -> bool:
        known = self._tracker.attempts.get(job)
        return known is None or known.attempt < attempt.number

    def _report_lost(self, job: Job, attempt: Attempt) -> None:
        """Report the ranks of an adopted attempt that were lost before: no node runs them."""
        for i, rank in enumerate(attempt.ranks):
            if rank.state is RankState.LOST and not rank.released:
                lost = Exit(i, None, Cause.NODE_LOST, rank.detail, loss=rank.loss)
                self._report_ranks(
                    GangKey(job.id, attempt.number, rank.incarnation), exited=(lost,)
                )

    def _stop_runs(self, runs: Iterable[RankRun]) -> None:
        """Stop single runs of a gang whose other ranks continue."""
        for run in runs:
            key = self._tracker.handle(run)
            if key.rank >= 0:
                self._machine.stop(key)
            else:
                self._machine.stop_ranks(key, (run.rank,))

    def _start(self, key: GangKey, job: Job, attempt: Attempt, runs: list[RankRun]) -> None:
        ranks = tuple(run.rank for run in runs)
        work = workload_of(job.spec)
        parts = desired_work(job, work, attempt, ranks, self._now())
        failure = planned_failure(
            job, work, attempt, ranks, parts, self._conditions, self._seed, self._nodes
        )
        self._tracker.begin(runs, key)
        up = [rank for part in parts if part.elapsed_s is not None for rank in part.ranks]
        if up:
            self._report_ranks(key, started=tuple(sorted(up)))
        as_one = together(job)
        joins = GangKey(job.id, attempt.number) if as_one and key.rank >= 0 else None
        elastic = as_one and any(map(goes_on_smaller, job.spec.roles))
        gang = Gang(key, attempt.placement, parts, as_one, failure, joins, attempt.shares, elastic)
        if attempt.placed_at <= self._inherits_at:
            self._machine.start(gang, since_s=self._since_s(asked_at(job, attempt, ranks[0])))
        else:
            self._machine.start(gang)

    def _since_s(self, asked_at: float) -> float:
        """Return the seconds since a request to the cluster before this one; 0 for a later request."""
        return self._now() - asked_at if asked_at <= self._inherits_at else 0.0

    def _stop(self, job: Job) -> None:
        attempt = attempt_of(job)
        is_new = self._is_new(job.id, attempt)
        if is_new and stopped_at(job, attempt) <= self._inherits_at:
            self._adopt_stopped(job, attempt)
        since_s = self._since_s(stopped_at(job, attempt)) if is_new else 0.0
        for key in dict.fromkeys(map(self._tracker.handle, self._tracker.stop(job))):
            self._machine.stop(key, since_s=since_s)

    def _adopt_stopped(self, job: Job, attempt: Attempt) -> None:
        """Start the ranks of an attempt whose stop was requested before the takeover.

        They do nothing but end, in the time that is left.
        """
        self._tracker.open(job)
        for incarnation, ranks in attempt.runs(*WITH_DEVICES).items():
            key = GangKey(job.id, attempt.number, incarnation)
            self._tracker.begin([current_run(job, rank) for rank in ranks], key)
            parts = (Part(tuple(ranks), None, 0, 0.0),)
            self._machine.start(Gang(key, attempt.placement, parts, shares=attempt.shares))

    def _now(self) -> float:
        return self._origin + self._env.now

    # ---------------------------------------------------------------- machine events -> reports

    def _on_event(self, event: MachineEvent | Scaling) -> None:
        match event:
            case NodesRequested():
                ready_at = tuple(self._origin + at_s for at_s in event.ready_at_s)
                self._report(
                    ReportPoolRequest(pool=event.pool, nodes=event.nodes, ready_at=ready_at)
                )
            case NodesReturned():
                self._report(ReportPoolReturn(pool=event.pool, nodes=event.nodes))
            case Broke(key=GangKey() as key):
                self._fail_job(key.job, key.attempt, "simulate", event.error)
                # The error goes first: a live job whose ranks are gone would restart.
                self._report_gone(key, event.ranks)
            case Started():
                self._report_ranks(event.key, started=event.ranks)
            case Ended():
                self._report_ranks(event.key, exited=exits_of(event.ends))
            case Stopped():
                self._report_ranks(event.key, gone=event.ranks)
            case NodeDown():
                loss = loss_of(event.kind, event.node, event.reason)
                self._report(node_lost(loss))
            case NodeWarned():
                self._report_warning(event)
            case NodeUp() | PlacementFailed():
                self._report(node_report(self._machine, event.node, self._extended))
            case _:
                assert_never(event)  # type: ignore[arg-type]

    def _fail_job(self, job: str, attempt: int, where: str, error: Exception) -> None:
        """Report an error that concerns one job, and discard its attempt.

        Ranks that the machine had not started are reported as gone when the job is stopped.
        """
        fault = fault_of(error, job, where)
        _log.error("%s failed for job %s", where, job, exc_info=error)
        self._report(ReportError(attempt=attempt, **fault._asdict()))
        runs = self._tracker.of_attempt(job, attempt)
        if runs is None:
            return
        runs.stopping = True
        keys = runs.handles()
        runs.started.clear()
        runs.alive.clear()
        for key in keys:
            self._report_gone(key, self._machine.discard(key))
        self._tracker.retire(runs)

    def _report_ranks(
        self,
        key: Hashable,
        *,
        started: tuple[int, ...] = (),
        exited: tuple[Exit, ...] = (),
        gone: tuple[int, ...] = (),
        leaving: tuple[Exit, ...] = (),
    ) -> None:
        assert isinstance(key, GangKey), key
        self._tracker.report(
            ReportRanks(
                job=key.job,
                attempt=key.attempt,
                incarnation=key.incarnation,
                started=started,
                exited=exited,
                gone=gone,
                leaving=leaving,
            )
        )

    def _report_gone(self, key: GangKey, ranks: tuple[int, ...]) -> None:
        """Report discarded ranks as gone. If that raises, the stop of the job reports them."""
        try:
            if ranks:
                self._report_ranks(key, gone=ranks)
        except Exception:  # noqa: BLE001 - the job has failed already
            _log.exception("ranks of job %s that are gone could not be reported", key.job)

    def _report_warning(self, warned: NodeWarned) -> None:
        """Report that a node will be taken: its ranks are leaving, and it accepts no more work."""
        for key, ranks in warned.ranks:
            self._report_ranks(key, leaving=warning(warned, ranks))
        loss = loss_of(warned.kind, warned.node, left_s=warned.left_s)
        self._report(node_lost(loss))
