"""Effects become gangs in the machine, and what happens there becomes reports.

The cluster keeps running while the control plane is down. An attempt that this object has never
heard of, but whose ranks run according to the log, has therefore been running all the time, and
only its remaining work is left to do.

No method awaits anything, so the adapter serves under SimPy and asyncio alike.
"""

import logging
from collections.abc import Callable, Collection, Container, Hashable, Sequence
from typing import assert_never

from adapters.simulated_cluster.keys import (
    GangKey,
    Seen,
    attempt_of,
    by_incarnation,
    by_themselves,
    comes_later,
    first_ranks,
    once_more,
)
from adapters.simulated_cluster.log_lines import log_lines
from adapters.simulated_cluster.mishaps import mishap_of
from adapters.simulated_cluster.outcomes import exits_of, fault_message, warning
from adapters.simulated_cluster.reporting import Reporter
from adapters.simulated_cluster.telemetry import SimulatedTelemetry
from adapters.simulated_cluster.vetting import refusal, undeclared
from adapters.simulated_cluster.workload import (
    asked_at,
    is_new,
    stopped_at,
    together,
    what_to_do,
)
from controlplane.attempt import HOLDING, Attempt, RankState
from controlplane.commands import (
    Report,
    ReportError,
    ReportNodeLost,
    ReportPoolRequest,
    ReportPoolReturn,
)
from controlplane.effects import Effect, LaunchGang, StopGang, Survey, Tidy, ranks_to_run, wanted
from controlplane.errors import Rejected
from controlplane.events import (
    Event,
    PoolNodesRequested,
    PoolNodesReturned,
    RanksExited,
    RanksGone,
    RanksStarted,
)
from controlplane.faults import fault_of
from controlplane.job import Job
from controlplane.model import Cause, Exit, JobSpec, goes_on_smaller
from controlplane.ports import DeviceReading, LinkReading
from simulator.autoscaling import Autoscaler
from simulator.faults import FaultKind
from simulator.gangs import Gang, Part
from simulator.happenings import (
    Broke,
    Ended,
    Happening,
    Misplaced,
    NodeDown,
    NodesRequested,
    NodesReturned,
    NodeUp,
    NodeWarned,
    Scaling,
    Started,
    Stopped,
)
from simulator.machine import Machine
from simulator.machine_training import Saved
from simulator.topology import ClusterModel, NodeModel
from simulator.virtual_time import VirtualTime

_log = logging.getLogger("muster")


class SimulatedCluster:
    """`origin` is the time at which the environment's time is 0: the birth of the cluster.

    Where the environment follows a clock, `sync` brings it up to the present; see `Pacer.sync`.
    `waiting_gpus` says how many GPUs queued gangs ask for, which is what pools grow by.
    A cluster that carries on another one's work takes over at `inherits_at`: what was asked before
    then has been under way since. `saved` is where checkpoints are kept, by job; the memory of this
    object if it is left out. `there` are nodes of pools that have been rented before, `added` nodes besides the model's.

    A cluster that is made again after the process ended gets its past from the log; see `recovery`.
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
        self._agenda = env.agenda
        self._origin = origin
        self._sync = sync
        self._inherits_at = inherits_at
        self._extended = model.extended_resources
        self._reporter = Reporter(self._extended)
        # What came to pass at the last instant of the past, and is not in the log.
        self._unheard: list[Report] = []
        self._machine = Machine(env, model, self._hear, saved, added)
        self._waiting_gpus = waiting_gpus
        self._pools = Autoscaler(
            env, model, self._machine, lambda: self._waiting_gpus(), self._hear, there
        )
        self._telemetry = SimulatedTelemetry(self._machine)
        self._conditions = model.faults.preset
        self._seed = model.seed
        self._nodes = {node.name: node for node in (*model.nodes, *added)}

    def vet(self, spec: JobSpec) -> Rejected | None:
        """Why a job that names a model cannot train here; see `controlplane.ports.VetsJobs`."""
        return undeclared(spec, self._extended) or refusal(spec, self._nodes.values())

    async def connect(self, report: Callable[[Report], None]) -> None:
        self._reporter.report = report
        unheard, self._unheard = self._unheard, []
        for each in unheard:
            report(each)

    @property
    def origin(self) -> float:
        return self._origin

    # ---------------------------------------------------------------- a past to catch up with

    def follow(self, waiting_gpus: Callable[[], int]) -> None:
        """Begins to catch up: scaling decisions are those of the log, and reports go nowhere."""
        self._pools.following = True
        self._live_waiting_gpus, self._waiting_gpus = self._waiting_gpus, waiting_gpus

    def apply(self, effects: Sequence[Effect], *, last: bool = False) -> None:
        """Carries out effects of the past. What the `last` ones bring at once is told later."""
        if last:
            self._reporter.report = self._unheard.append
        self._carry_out(effects)

    def take_over(self) -> None:
        """The past is over: from here on the cluster decides and reports."""
        self._pools.following = False
        self._waiting_gpus = self._live_waiting_gpus

    def take_in(self, event: Event) -> None:
        """Brings the machine to what the log says happened in the cluster, where it differs."""
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

    def has_told(self, event: Event) -> bool:
        """Whether the machine has reported all that an event of the log says of ranks."""
        match event:
            case RanksStarted():
                told = frozenset(event.ranks)
            case RanksExited():
                told = frozenset(end.rank for end in event.exits)
            case RanksGone():
                told = frozenset(event.ranks)
            case _:
                return True
        seen = self._reporter.seen.get(event.job)
        if seen is None or seen.attempt != event.attempt:
            return False
        known = set[int]()
        for report in seen.reports:
            match event:
                case RanksStarted():
                    known.update(report.started)
                case RanksExited():
                    known.update(end.rank for end in report.exited)
                case _:
                    known.update(report.gone)
        return told <= known

    def agrees_with(self, job: Job) -> bool:
        """Whether the machine has every rank that the log says is there, or has told its end."""
        attempt, seen = attempt_of(job), self._reporter.seen.get(job.id)
        if seen is None or seen.attempt != attempt.number:
            return False
        alive = {rank for key in seen.keys for rank in self._machine.alive(key)}
        started = {rank for report in seen.reports for rank in report.started}
        ended = {end.rank for report in seen.reports for end in report.exited}
        ended.update(rank for report in seen.reports for rank in report.gone)
        expected = frozenset(ranks_to_run(job))
        for i, rank in enumerate(attempt.ranks):
            if rank.state is RankState.RUNNING and i not in started:
                return False
            if i in expected and i not in alive and i not in ended:
                return False
        return True

    def restart_from_log(self, job: Job) -> None:
        """Drops what the machine has of a job's attempt, and starts from what the log says of it."""
        seen = self._reporter.seen.pop(job.id, None)
        for key in () if seen is None else seen.keys:
            self._machine.forget(key, self._machine.alive(key))
        if (effect := wanted(job)) is not None:
            self._carry_out([effect])

    def _forget(self, job: str, attempt: int, ranks: tuple[int, ...]) -> None:
        seen = self._reporter.seen.get(job)
        if seen is not None and seen.attempt == attempt:
            for key in seen.keys:
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
                    except Exception as error:  # noqa: BLE001 - it concerns this job, and fails it
                        where = f"simulate {type(effect).__name__}"
                        self._give_up(effect.job_id, effect.attempt, where, error)
                case Survey():
                    self._reporter.tell_all_nodes(self._machine)
                case Tidy():
                    # Nothing is left of a gang that has ended but its log lines, which are made up.
                    pass
                case _:
                    assert_never(effect)

    async def logs(self, job: Job, rank: int, lines_max: int) -> list[str]:
        self._sync()
        lines = log_lines(job, rank, self._now())
        return lines[-lines_max:] if lines_max > 0 else []

    async def devices(self) -> Sequence[DeviceReading]:
        """What every GPU's counters show now; see `controlplane.ports.Telemetry`."""
        self._sync()
        return await self._telemetry.devices()

    async def links(self) -> Sequence[LinkReading]:
        self._sync()
        return await self._telemetry.links()

    @property
    def running(self) -> list[tuple[str, int]]:
        """The attempts of which something is in the cluster, as (job, attempt)."""
        return sorted(
            {(key.job, key.attempt) for key in self._machine.keys if isinstance(key, GangKey)}
        )

    @property
    def saved(self) -> dict[Hashable, float]:
        """The share of its training that each unfinished job's checkpoints hold."""
        return dict(self._machine.training.saved)

    @property
    def lost_s(self) -> dict[str, float]:
        """Seconds of training that had to be done again because no checkpoint held them, by job."""
        return {str(job): lost for job, lost in self._machine.training.lost_s.items()}

    @property
    def spent(self) -> dict[str, float]:
        """What the nodes of each pool have cost so far."""
        return self._pools.spent()

    @property
    def pooled_gpu_s(self) -> dict[str, float]:
        """GPU-seconds for which each pool's nodes have been there so far."""
        return self._pools.there_gpu_s()

    def spare(self, nodes: Collection[str]) -> None:
        """Faults of these nodes do not happen from here on; "all" stands for every node."""
        every = self._nodes.keys() if "all" in nodes else nodes
        self._machine.spared = frozenset(every)

    def fail_node(
        self, name: str, repair_s: float | None, kind: FaultKind = FaultKind.CRASH
    ) -> None:
        """Makes a node fail now; without `repair_s` for good. An unknown name is a LookupError."""
        if self._machine.node(name) is None:
            raise LookupError(f"the simulated cluster has no node {name}")
        self._sync()
        self._machine.fail(name, repair_s, kind)

    def _launch(self, job: Job) -> None:
        attempt = attempt_of(job)
        seen = self._reporter.seen.get(job.id)
        if seen is not None and seen.attempt >= attempt.number:
            if seen.attempt == attempt.number and not seen.stopping:
                self._reporter.tell_again(seen)
                self._start_again(seen, job, attempt)
                self._let_go(seen, job, attempt)
            return
        seen = self._reporter.seen[job.id] = Seen(job.id, attempt.number)
        if is_new(attempt):
            seen.first = first_ranks(job, attempt)
            self._start(seen, GangKey(job.id, attempt.number), job, attempt, seen.first)
        else:
            self._adopt(seen, job, attempt)

    def _adopt(self, seen: Seen, job: Job, attempt: Attempt) -> None:
        """Takes over ranks that have been running all the time. On a lost node nothing has."""
        here = tuple(
            i
            for i, rank in enumerate(attempt.ranks)
            if rank.incarnation == 0
            and rank.relaunched_at is None
            and rank.state in (RankState.PENDING, RankState.RUNNING)
        )
        if any(role.starts_after for role in job.spec.roles):
            here = tuple(i for i in here if not comes_later(job, i))
        seen.first = here
        self._start(seen, GangKey(job.id, attempt.number), job, attempt, here)
        self._start_again(seen, job, attempt)
        self._let_go(seen, job, attempt)
        for i, rank in enumerate(attempt.ranks):
            if rank.state is RankState.LOST and not rank.let_go:
                lost = Exit(i, None, Cause.NODE_LOST, rank.message)
                self._reporter.tell(
                    GangKey(job.id, attempt.number, rank.incarnation), exited=(lost,)
                )

    def _start_again(self, seen: Seen, job: Job, attempt: Attempt) -> None:
        """Starts every rank that is to run by itself and does not yet."""
        for key in by_themselves(seen, job, attempt):
            if key not in seen.keys:
                self._start(seen, key, job, attempt, (key.rank,))

    def _let_go(self, seen: Seen, job: Job, attempt: Attempt) -> None:
        """Ends the ranks that a scaled job no longer wants; one that never ran is gone already."""
        for i, rank in enumerate(attempt.ranks):
            run = (i, rank.incarnation)
            if rank.state is not RankState.LOST or not rank.let_go:
                continue
            if run in seen.leaving:
                continue
            seen.leaving.add(run)
            alone = GangKey(job.id, attempt.number, rank.incarnation, i)
            if alone in seen.keys:
                self._machine.stop(alone)
            elif rank.incarnation == 0 and i in seen.first:
                self._machine.stop_ranks(GangKey(job.id, attempt.number), (i,))
            else:
                self._reporter.tell(alone, gone=(i,))

    def _start(
        self, seen: Seen, key: GangKey, job: Job, attempt: Attempt, ranks: tuple[int, ...]
    ) -> None:
        parts = what_to_do(job, attempt, ranks, self._now())
        mishap = mishap_of(job, attempt, ranks, parts, self._conditions, self._seed, self._nodes)
        seen.keys.append(key)
        seen.left += len(ranks)
        up = [rank for part in parts if part.elapsed_s is not None for rank in part.ranks]
        if up:
            self._reporter.tell(key, started=tuple(sorted(up)))
        as_one = together(job)
        joins = GangKey(job.id, attempt.number) if as_one and key.rank >= 0 else None
        elastic = as_one and any(map(goes_on_smaller, job.spec.roles))
        gang = Gang(key, attempt.placement, parts, as_one, mishap, joins, attempt.shares, elastic)
        if ranks and attempt.placed_at <= self._inherits_at:
            self._machine.start(gang, since_s=self._since_s(asked_at(job, attempt, ranks[0])))
        else:
            self._machine.start(gang)

    def _since_s(self, asked_at: float) -> float:
        """How long ago something was asked for, if it was asked of a cluster before this one."""
        return self._now() - asked_at if asked_at <= self._inherits_at else 0.0

    def _stop(self, job: Job) -> None:
        attempt = attempt_of(job)
        seen = self._reporter.seen.get(job.id)
        if seen is not None and seen.attempt == attempt.number and seen.keys:
            self._stop_known(seen, job, attempt)
            return
        if seen is None or seen.attempt < attempt.number:
            seen = self._reporter.seen[job.id] = Seen(job.id, attempt.number)
            seen.stopping = True
            if stopped_at(job, attempt) <= self._inherits_at:
                self._stop_inherited(seen, job, attempt)
                return
            self._reporter.put_away(seen)
        for incarnation, ranks in by_incarnation(attempt).items():
            self._reporter.tell(GangKey(job.id, attempt.number, incarnation), gone=tuple(ranks))

    def _stop_inherited(self, seen: Seen, job: Job, attempt: Attempt) -> None:
        """What was told to stop before this cluster took over still needs the rest of its time."""
        since_s = self._since_s(stopped_at(job, attempt))
        for incarnation, ranks in by_incarnation(attempt).items():
            left = tuple(i for i in ranks if attempt.ranks[i].state in HOLDING)
            if left:
                key = GangKey(job.id, attempt.number, incarnation)
                seen.keys.append(key)
                seen.left += len(left)
                parts = (Part(left, None, 0, 0.0),)
                self._machine.start(Gang(key, attempt.placement, parts, shares=attempt.shares))
                self._machine.stop(key, since_s=since_s)

    def _stop_known(self, seen: Seen, job: Job, attempt: Attempt) -> None:
        self._reporter.tell_again(seen)
        if seen.stopping:
            return
        seen.stopping = True
        for key in seen.keys:
            self._machine.stop(key)
        for key in once_more(job, attempt, lost=True):
            if key not in seen.keys:
                self._reporter.tell(key, gone=(key.rank,))
        self._tell_never_started(seen, job, attempt)

    def _tell_never_started(self, seen: Seen, job: Job, attempt: Attempt) -> None:
        """Ranks that still waited for others when all were told to stop are gone already."""
        if len(seen.first) == len(attempt.ranks):
            return
        first = frozenset(seen.first)
        for i, rank in enumerate(attempt.ranks):
            key = GangKey(job.id, attempt.number, 0, i)
            if rank.incarnation == 0 and i not in first and key not in seen.keys:
                self._reporter.tell(key, gone=(i,))

    def _now(self) -> float:
        return self._origin + self._agenda.now

    # ---------------------------------------------------------------- what happens -> reports

    def _hear(self, happening: Happening | Scaling) -> None:
        match happening:
            case NodesRequested():
                ready_at = tuple(self._origin + at_s for at_s in happening.ready_at_s)
                self._reporter.report(
                    ReportPoolRequest(pool=happening.pool, nodes=happening.nodes, ready_at=ready_at)
                )
            case NodesReturned():
                self._reporter.report(ReportPoolReturn(pool=happening.pool, nodes=happening.nodes))
            case Broke(key=GangKey() as key):
                self._give_up(key.job, key.attempt, "simulate", happening.error)
                # The error first: ranks that vanish from a job which goes on would restart it.
                self._tell_gone(key, happening.ranks)
            case Started():
                self._reporter.tell(happening.key, started=happening.ranks)
            case Ended():
                exits = exits_of(happening.ends)
                self._reporter.tell(happening.key, exited=exits, over=len(exits))
            case Stopped():
                self._reporter.tell(happening.key, gone=happening.ranks, over=len(happening.ranks))
            case NodeDown():
                message = fault_message(happening.kind, happening.node, happening.reason)
                given_back = happening.kind is FaultKind.GIVEN_BACK
                self._reporter.report(
                    ReportNodeLost(node=happening.node, message=message, given_back=given_back)
                )
            case NodeWarned():
                self._pass_on(happening)
            case NodeUp() | Misplaced():
                self._reporter.tell_node(self._machine, happening.node)
            case _:
                assert_never(happening)  # type: ignore[arg-type]

    def _give_up(self, job: str, attempt: int, where: str, error: Exception) -> None:
        """Something raised that concerns a job: it is reported, and nothing is left of its attempt.

        Ranks that the machine had not started are reported gone when the job is told to stop.
        """
        fault = fault_of(error, job, where)
        _log.error("%s failed for job %s", where, job, exc_info=error)
        self._reporter.report(ReportError(attempt=attempt, **fault._asdict()))
        seen = self._reporter.seen.get(job)
        if seen is None or seen.attempt != attempt:
            return
        seen.stopping = True
        keys, seen.keys, seen.left = seen.keys, [], 0
        for key in keys:
            self._tell_gone(key, self._machine.discard(key))
        self._reporter.put_away(seen)

    def _tell_gone(self, key: GangKey, ranks: tuple[int, ...]) -> None:
        """Reports ranks that were discarded; if even that raises, it is left to the job's stop."""
        try:
            if ranks:
                self._reporter.tell(key, gone=ranks)
        except Exception:  # noqa: BLE001 - the job has been given up already
            _log.exception("ranks of job %s that are gone could not be reported", key.job)

    def _pass_on(self, warned: NodeWarned) -> None:
        """A notice: ranks there are told to go while they still can, and no more work comes."""
        for key, ranks in warned.ranks:
            self._reporter.tell(key, leaving=warning(warned, ranks))
        message = fault_message(warned.kind, warned.node, left_s=warned.left_s)
        self._reporter.report(ReportNodeLost(node=warned.node, message=message))
