"""Effects become gangs in the machine, and what happens there becomes reports.

The cluster keeps running while the control plane is down. An attempt that this object has never
heard of, but whose ranks run according to the log, has therefore been running all the time, and
only its remaining work is left to do.

No method awaits anything, so the adapter serves under SimPy and asyncio alike.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from typing import NamedTuple, assert_never

import simpy

from adapters.simulated_cluster.log_lines import log_lines
from adapters.simulated_cluster.telemetry import SimulatedTelemetry
from adapters.simulated_cluster.training import problem_of
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
    ReportCluster,
    ReportNode,
    ReportNodeLost,
    ReportNodeRemoved,
    ReportRanks,
)
from controlplane.effects import Effect, LaunchGang, StopGang, Survey, Tidy, ranks_to_run
from controlplane.job import Job
from controlplane.model import Cause, Exit, NodeInfo
from controlplane.ports import DeviceReading, LinkReading
from simulator import machine as m
from simulator.autoscaling import Autoscaler
from simulator.faults import FaultKind
from simulator.faults.job_failures import job_failure
from simulator.topology import ClusterModel, NodeModel

# Attempts that are over are remembered in case their reports were lost on the way. A forgotten one
# does no harm: if it is asked for again, the job's state says enough to end it once more.
OVER_KEPT = 4096
# The exit code of a rank whose training the simulator does not know.
UNUSABLE = 2

_MESSAGES = {
    FaultKind.CRASH: "node {} crashed",
    FaultKind.SPOT_RECLAIM: "node {} was reclaimed",
    FaultKind.MAINTENANCE: "node {} is down for maintenance",
    FaultKind.GIVEN_BACK: "node {} was given back to its pool",
}


class _Key(NamedTuple):
    """A gang in the machine: the attempt's ranks, or one rank that starts by itself."""

    job: str
    attempt: int
    incarnation: int = 0
    rank: int = -1


class _Seen:
    """What is known of a job's latest attempt: what was started, and all that was reported."""

    __slots__ = ("attempt", "first", "job", "keys", "leaving", "left", "reports", "stopping")

    def __init__(self, job: str, attempt: int) -> None:
        self.job = job
        self.attempt = attempt
        self.keys: list[_Key] = []
        # The ranks that were started in one go; the others are started by themselves.
        self.first: tuple[int, ...] = ()
        # The runs of single ranks that were told to end, as (rank, incarnation).
        self.leaving: set[tuple[int, int]] = set()
        # How many ranks have neither exited nor gone.
        self.left = 0
        self.reports: list[ReportRanks] = []
        self.stopping = False


class SimulatedCluster:
    """`origin` is the time at which the environment's time is 0: the birth of the cluster.

    Where the environment follows a clock, `sync` brings it up to the present; see `Pacer.sync`.
    `waiting_gpus` says how many GPUs queued gangs ask for, which is what pools grow by.
    A cluster that carries on another one's work takes over at `inherits_at`: what was asked before
    then has been under way since.
    """

    def __init__(
        self,
        env: simpy.Environment,
        model: ClusterModel,
        *,
        origin: float = 0.0,
        sync: Callable[[], None] = lambda: None,
        waiting_gpus: Callable[[], int] = lambda: 0,
        inherits_at: float = float("-inf"),
    ) -> None:
        self._env = env
        self._origin = origin
        self._sync = sync
        self._inherits_at = inherits_at
        self._report: Callable[[Report], None] = lambda report: None
        self._seen: dict[str, _Seen] = {}
        self._over: deque[_Seen] = deque()
        self._machine = m.Machine(env, model, self._hear)
        self._pools = Autoscaler(env, model, self._machine, waiting_gpus)
        self._telemetry = SimulatedTelemetry(self._machine)
        self._conditions = model.faults.preset
        self._seed = model.seed

    async def connect(self, report: Callable[[Report], None]) -> None:
        self._report = report

    async def carry_out(self, effects: Sequence[Effect]) -> None:
        self._sync()
        for effect in effects:
            match effect:
                case LaunchGang():
                    self._launch(effect.job)
                case StopGang():
                    self._stop(effect.job)
                case Survey():
                    self._tell_all_nodes()
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
            {(key.job, key.attempt) for key in self._machine.keys if isinstance(key, _Key)}
        )

    @property
    def lost_s(self) -> dict[str, float]:
        """Seconds of training that had to be done again because no checkpoint held them, by job."""
        return {str(job): lost for job, lost in self._machine.training.lost_s.items()}

    @property
    def spent(self) -> dict[str, float]:
        """What the nodes of each pool have cost so far."""
        return self._pools.spent()

    def fail_node(
        self, name: str, repair_s: float | None, kind: FaultKind = FaultKind.CRASH
    ) -> None:
        """Makes a node fail now; without `repair_s` for good. An unknown name is a LookupError."""
        if self._machine.node(name) is None:
            raise LookupError(f"the simulated cluster has no node {name}")
        self._sync()
        self._machine.fail(name, repair_s, kind)

    def _launch(self, job: Job) -> None:
        attempt = _attempt(job)
        seen = self._seen.get(job.id)
        if seen is not None and seen.attempt >= attempt.number:
            if seen.attempt == attempt.number and not seen.stopping:
                self._tell_again(seen)
                self._start_again(seen, job, attempt)
                self._let_go(seen, job, attempt)
            return
        seen = self._seen[job.id] = _Seen(job.id, attempt.number)
        if is_new(attempt):
            seen.first = _first_ranks(job, attempt)
            self._start(seen, _Key(job.id, attempt.number), job, attempt, seen.first)
        else:
            self._adopt(seen, job, attempt)

    def _adopt(self, seen: _Seen, job: Job, attempt: Attempt) -> None:
        """Takes over ranks that have been running all the time. On a lost node nothing has."""
        here = tuple(
            i
            for i, rank in enumerate(attempt.ranks)
            if rank.incarnation == 0
            and rank.relaunched_at is None
            and rank.state in (RankState.PENDING, RankState.RUNNING)
        )
        if any(role.starts_after for role in job.spec.roles):
            here = tuple(i for i in here if not _comes_later(job, i))
        seen.first = here
        self._start(seen, _Key(job.id, attempt.number), job, attempt, here)
        self._start_again(seen, job, attempt)
        self._let_go(seen, job, attempt)
        for i, rank in enumerate(attempt.ranks):
            if rank.state is RankState.LOST and not rank.let_go:
                lost = Exit(i, None, Cause.NODE_LOST, rank.message)
                self._tell(_Key(job.id, attempt.number, rank.incarnation), exited=(lost,))

    def _start_again(self, seen: _Seen, job: Job, attempt: Attempt) -> None:
        """Starts every rank that is to run by itself and does not yet."""
        for key in _by_themselves(seen, job, attempt):
            if key not in seen.keys:
                self._start(seen, key, job, attempt, (key.rank,))

    def _let_go(self, seen: _Seen, job: Job, attempt: Attempt) -> None:
        """Ends the ranks that a scaled job no longer wants; one that never ran is gone already."""
        for i, rank in enumerate(attempt.ranks):
            run = (i, rank.incarnation)
            if rank.state is not RankState.LOST or not rank.let_go:
                continue
            if run in seen.leaving:
                continue
            seen.leaving.add(run)
            alone = _Key(job.id, attempt.number, rank.incarnation, i)
            if alone in seen.keys:
                self._machine.stop(alone)
            elif rank.incarnation == 0 and i in seen.first:
                self._machine.stop_ranks(_Key(job.id, attempt.number), (i,))
            else:
                self._tell(alone, gone=(i,))

    def _start(
        self, seen: _Seen, key: _Key, job: Job, attempt: Attempt, ranks: tuple[int, ...]
    ) -> None:
        parts = what_to_do(job, attempt, ranks, self._now())
        mishap = _still_to_come(self._mishap(job, attempt, ranks), parts)
        seen.keys.append(key)
        seen.left += len(ranks)
        up = [rank for part in parts if part.elapsed_s is not None for rank in part.ranks]
        if up:
            self._tell(key, started=tuple(sorted(up)))
        gang = m.Gang(key, attempt.placement, parts, together=together(job), mishap=mishap)
        if ranks and attempt.placed_at <= self._inherits_at:
            self._machine.start(gang, since_s=self._since_s(asked_at(job, attempt, ranks[0])))
        else:
            self._machine.start(gang)

    def _since_s(self, asked_at: float) -> float:
        """How long ago something was asked for, if it was asked of a cluster before this one."""
        return self._now() - asked_at if asked_at <= self._inherits_at else 0.0

    def _mishap(self, job: Job, attempt: Attempt, ranks: tuple[int, ...]) -> m.Mishap | None:
        """A recipe that cannot be followed ends at once; the cluster's conditions may do the rest."""
        wrong = problem_of(job)
        if wrong is not None:
            return m.Mishap(ranks[0], 0.0, UNUSABLE, wrong) if ranks else None
        preset = self._conditions
        if preset is None or not ranks or job.spec.workload.exit_code:
            return None
        failure = job_failure(preset, f"{job.namespace}/{job.name}", attempt.number, self._seed)
        if failure is None:
            return None
        return m.Mishap(ranks[0], failure.after_s, failure.reason.exit_code, failure.reason.name)

    def _stop(self, job: Job) -> None:
        attempt = _attempt(job)
        seen = self._seen.get(job.id)
        if seen is not None and seen.attempt == attempt.number and seen.keys:
            self._stop_known(seen, job, attempt)
            return
        if seen is None or seen.attempt < attempt.number:
            seen = self._seen[job.id] = _Seen(job.id, attempt.number)
            seen.stopping = True
            if stopped_at(job, attempt) <= self._inherits_at:
                self._stop_inherited(seen, job, attempt)
                return
            self._put_away(seen)
        for incarnation, ranks in _by_incarnation(attempt).items():
            self._tell(_Key(job.id, attempt.number, incarnation), gone=tuple(ranks))

    def _stop_inherited(self, seen: _Seen, job: Job, attempt: Attempt) -> None:
        """What was told to stop before this cluster took over still needs the rest of its time."""
        since_s = self._since_s(stopped_at(job, attempt))
        for incarnation, ranks in _by_incarnation(attempt).items():
            left = tuple(i for i in ranks if attempt.ranks[i].state in HOLDING)
            if left:
                key = _Key(job.id, attempt.number, incarnation)
                seen.keys.append(key)
                seen.left += len(left)
                self._machine.start(m.Gang(key, attempt.placement, (m.Part(left, None, 0, 0.0),)))
                self._machine.stop(key, since_s=since_s)

    def _stop_known(self, seen: _Seen, job: Job, attempt: Attempt) -> None:
        self._tell_again(seen)
        if seen.stopping:
            return
        seen.stopping = True
        for key in seen.keys:
            self._machine.stop(key)
        for key in _once_more(job, attempt, lost=True):
            if key not in seen.keys:
                self._tell(key, gone=(key.rank,))
        self._tell_never_started(seen, job, attempt)

    def _tell_never_started(self, seen: _Seen, job: Job, attempt: Attempt) -> None:
        """Ranks that still waited for others when all were told to stop are gone already."""
        if len(seen.first) == len(attempt.ranks):
            return
        first = frozenset(seen.first)
        for i, rank in enumerate(attempt.ranks):
            key = _Key(job.id, attempt.number, 0, i)
            if rank.incarnation == 0 and i not in first and key not in seen.keys:
                self._tell(key, gone=(i,))

    def _now(self) -> float:
        return self._origin + self._env.now

    # ---------------------------------------------------------------- what happens -> reports

    def _hear(self, happening: m.Happening) -> None:
        match happening:
            case m.Started():
                self._tell(happening.key, started=happening.ranks)
            case m.Ended():
                exits = _exits(happening.ends)
                self._tell(happening.key, exited=exits, over=len(exits))
            case m.Stopped():
                self._tell(happening.key, gone=happening.ranks, over=len(happening.ranks))
            case m.NodeDown():
                message = _fault_message(happening.kind, happening.node, happening.reason)
                self._report(ReportNodeLost(node=happening.node, message=message))
            case m.NodeUp() | m.Misplaced():
                self._tell_node(happening.node)
            case _:
                assert_never(happening)

    def _tell(
        self,
        key: Hashable,
        *,
        started: tuple[int, ...] = (),
        exited: tuple[Exit, ...] = (),
        gone: tuple[int, ...] = (),
        over: int = 0,
    ) -> None:
        """Reports and remembers. `over` is how many ranks the machine is done with by this."""
        assert isinstance(key, _Key), key
        report = ReportRanks(
            job=key.job,
            attempt=key.attempt,
            incarnation=key.incarnation,
            started=started,
            exited=exited,
            gone=gone,
        )
        seen = self._seen.get(key.job)
        if seen is not None and seen.attempt == key.attempt:
            seen.reports.append(report)
            seen.left -= over
            if over and seen.left == 0:
                self._put_away(seen)
        self._report(report)

    def _tell_again(self, seen: _Seen) -> None:
        for report in seen.reports:
            self._report(report)

    def _tell_all_nodes(self) -> None:
        found = [node for name in self._machine.nodes if (node := self._machine.node(name))]
        up = tuple(_info(node) for node, is_up in found if is_up)
        down = tuple(_info(node) for node, is_up in found if not is_up)
        self._report(ReportCluster(up=up, down=down))

    def _tell_node(self, name: str) -> None:
        found = self._machine.node(name)
        if found is None:
            self._report(ReportNodeRemoved(node=name))
            return
        node, up = found
        if up:
            self._report(ReportNode(node=_info(node)))
        else:
            self._report(ReportNodeLost(node=name, message=f"node {name} is down"))

    def _put_away(self, seen: _Seen) -> None:
        """An attempt that is over is remembered for a while."""
        self._over.append(seen)
        if len(self._over) > OVER_KEPT:
            oldest = self._over.popleft()
            if oldest.left == 0 and self._seen.get(oldest.job) is oldest:
                del self._seen[oldest.job]


def _still_to_come(mishap: m.Mishap | None, parts: tuple[m.Part, ...]) -> m.Mishap | None:
    """A mishap counts from the beginning of the work, some of which may be done already."""
    if mishap is None:
        return None
    done_s = max((part.elapsed_s or 0.0 for part in parts), default=0.0)
    return mishap._replace(after_s=max(0.0, mishap.after_s - done_s)) if done_s else mishap


def _exits(ends: tuple[m.End, ...]) -> tuple[Exit, ...]:
    if len(ends) == 1 and ends[0].code == 0:
        return _clean_exits(ends[0].ranks)
    return tuple(_exit(rank, end) for end in ends for rank in end.ranks)


# Values that never change and are the same for every gang of a size.
@lru_cache(maxsize=1024)
def _clean_exits(ranks: tuple[int, ...]) -> tuple[Exit, ...]:
    return tuple(Exit(rank, 0) for rank in ranks)


@lru_cache(maxsize=1024)
def _ranks(size: int) -> tuple[int, ...]:
    return tuple(range(size))


def _exit(rank: int, end: m.End) -> Exit:
    match end.fault:
        case None if end.code is None:
            return Exit(rank, None, Cause.NODE_LOST, f"node {end.node} could not take the rank")
        case None:
            if not end.code:
                return Exit(rank, end.code)
            if end.reason:
                cause = Cause.OOM if "memory" in end.reason.lower() else Cause.EXIT
                return Exit(rank, end.code, cause, end.reason, (f"error: {end.reason}",))
            message = f"the workload says to exit with {end.code}"
            return Exit(rank, end.code, Cause.EXIT, message, (f"error: {message}",))
        case FaultKind.SPOT_RECLAIM:
            message = _fault_message(end.fault, end.node, end.reason)
            return Exit(rank, 137, Cause.SPOT_RECLAIM, message)
        case _:
            message = _fault_message(end.fault, end.node, end.reason)
            return Exit(rank, None, Cause.NODE_LOST, message)


def _fault_message(kind: FaultKind, node: str, reason: str) -> str:
    told = _MESSAGES[kind].format(node)
    return f"{told}: {reason}" if reason and kind is FaultKind.CRASH else told


def _info(node: NodeModel) -> NodeInfo:
    return NodeInfo(
        name=node.name,
        gpus=node.gpus,
        gpu_type=node.gpu_type,
        gpu_memory_mib=node.gpu_memory_mib,
        rack=node.rack,
        labels=dict(node.labels),
    )


def _attempt(job: Job) -> Attempt:
    assert job.attempt is not None, f"{job.id} was never placed"
    return job.attempt


def _first_ranks(job: Job, attempt: Attempt) -> tuple[int, ...]:
    """The ranks that start with the gang, and not only once others run."""
    if not any(role.starts_after for role in job.spec.roles):
        return _ranks(len(attempt.ranks))
    return tuple(i for i in range(len(attempt.ranks)) if not _comes_later(job, i))


def _comes_later(job: Job, rank: int) -> bool:
    return bool(job.spec.role_of(rank)[0].starts_after)


def _by_themselves(seen: _Seen, job: Job, attempt: Attempt) -> list[_Key]:
    """The ranks that start by themselves: once more, or later than the first ones."""
    keys = _once_more(job, attempt)
    if len(seen.first) < len(attempt.ranks):
        first = frozenset(seen.first)
        keys += [
            _Key(job.id, attempt.number, 0, i)
            for i in ranks_to_run(job)
            if attempt.ranks[i].incarnation == 0 and i not in first
        ]
    return keys


def _once_more(job: Job, attempt: Attempt, *, lost: bool = False) -> list[_Key]:
    """The ranks that run, or should, for another time in this attempt; the lost ones if asked."""
    states = (RankState.PENDING, RankState.RUNNING, *((RankState.LOST,) if lost else ()))
    return [
        _Key(job.id, attempt.number, rank.incarnation, i)
        for i, rank in enumerate(attempt.ranks)
        if rank.incarnation > 0 and rank.state in states
    ]


def _by_incarnation(attempt: Attempt) -> dict[int, list[int]]:
    groups = defaultdict[int, list[int]](list)
    for i, rank in enumerate(attempt.ranks):
        groups[rank.incarnation].append(i)
    return groups
