"""Forks: what would have happened with another policy, other nodes or other faults.

A fork takes the recorded past up to an instant and continues it with two branches in the simulator:
one with the change, and a control without it. Both receive the recorded requests and suffer the
recorded faults of nodes. The distance between the control and what really happened is the error of
the model, and the answer reports it.

  log ----------------+------------------> what really happened
                      |                        ^ model error
                      +--> control (one) ------+
                      |                        | comparison
                      +--> change (other) -----+
"""

from collections.abc import Callable, Sequence
from statistics import median
from typing import NamedTuple

from msgspec import Struct

from controlplane.log.replay import open_snapshot
from controlplane.log.snapshots import take_snapshot
from controlplane.messages import obstacle_text
from controlplane.model import events as e
from controlplane.model.phases import Phase
from controlplane.ports import LogReader, StateSnapshot
from controlplane.state.state import State
from controlplane.state.world import World
from simulator.network.topology import ClusterModel
from studies.analysis.job_history import JobHistories
from studies.fork.branch import Branch, Setting, run_branch
from studies.fork.changes import Change, ForkError, commands_of, faults_with, nodes_with
from studies.fork.comparison import (
    Comparison,
    Parting,
    compare,
    part,
    part_in_decisions,
)
from studies.fork.learned import Learned, is_as_written
from studies.fork.past import NodeFault, Origin, look_back
from studies.fork.timing import delays_of


class ModelError(Struct, frozen=True, kw_only=True):
    """The distance between the control and what really happened."""

    # Whether both are the same, event for event, to the millisecond; if not, the first difference.
    is_exact: bool
    parting: Parting | None
    # Over jobs that started or ended in both, in seconds.
    start_s_median: float | None
    finish_s_median: float | None
    finish_s_max: float | None
    outcomes_apart: int
    gpu_hours_apart: float


class Forked(Struct, frozen=True, kw_only=True):
    """The answer: `one` of the comparison is the control, `other` the branch with the change."""

    at: float
    until: float
    changes: list[str]
    comparison: Comparison
    # The first decision that differs. Inputs are left out: the change itself makes them differ.
    first_decision: Parting | None
    error: ModelError
    # Where the work of jobs comes from: their workloads as written, or learned from the log.
    work: str
    refused: list[str]
    # The names of the jobs by id, as NAMESPACE/NAME.
    names: dict[str, str]
    # Jobs that are unschedulable at the end of the branch with the change, and why.
    unschedulable: list[str] = []


async def fork(
    log: LogReader,
    *,
    at: float,
    until: float | None = None,
    change: Change | None = None,
    model: ClusterModel | None = None,
    gpu_hour_price: float = 2.0,
) -> Forked:
    """Fork a log at the instant `at` and run it until `until`, or as far as the log goes.

    A log of a simulated cluster records its model; `model` is for a log that does not. The past is
    then replayed on that model, and running jobs continue from their progress, at the pace of their
    places. Without a model, work and delays are learned from the log. `gpu_hour_price` is the cost
    of one GPU-hour. Raise ForkError if the log has no event before `at`, if `until` is not after
    `at`, or if the change is invalid.
    """
    origin = await look_back(log, at=at, until=until, model=model)
    if origin.snapshot.position == 0:
        raise ForkError("the log begins later: there is no past to fork from")
    if origin.until <= at:
        raise ForkError("the end does not lie behind the fork")
    return run_fork(origin, change or Change(), model, gpu_hour_price)


class Branches(NamedTuple):
    """Both branches of a fork, and their comparison."""

    forked: Forked
    control: Branch
    changed: Branch


def run_fork(
    origin: Origin, change: Change, model: ClusterModel | None, gpu_hour_price: float
) -> Forked:
    """Run the control and the changed branch, and compare them."""
    return run_branches(origin, change, model, gpu_hour_price).forked


def run_branches(
    origin: Origin,
    change: Change,
    model: ClusterModel | None,
    gpu_hour_price: float,
    *,
    on_branch: Callable[[], None] = lambda: None,
) -> Branches:
    """Run the control and the changed branch, and compare them; call `on_branch` after each."""
    real = _histories(origin, origin.real)
    as_written = origin.simulated is not None or is_as_written(real)
    learned = Learned(real, trusts=as_written, trains=origin.simulated is not None)
    control = run_branch(_setting(origin, Change(), model, learned))
    on_branch()
    changed = control if change.is_none else run_branch(_setting(origin, change, model, learned))
    on_branch()
    one, other = _histories(origin, control.events), _histories(origin, changed.events)
    forked = Forked(
        at=origin.at,
        until=origin.until,
        changes=change.describe(),
        comparison=compare(
            (control.events, one), (changed.events, other), gpu_hour_price=gpu_hour_price
        ),
        first_decision=part_in_decisions(control.events, changed.events),
        error=_error(origin, control, real, one),
        work="as written" if as_written else "learned from the log",
        refused=[f"{x.what}: {x.why}" for x in changed.refused],
        unschedulable=_set_aside(changed.world),
        names={
            **_names(origin),
            **{x.id: x.name for x in (*one.jobs.values(), *other.jobs.values())},
        },
    )
    return Branches(forked, control, changed)


def _set_aside(world: World) -> list[str]:
    jobs = [world.jobs[job] for job in sorted(world.phases.by_phase[Phase.UNSCHEDULABLE])]
    return [f"{j.namespace}/{j.name}: {obstacle_text(j.obstacle)}" for j in jobs if j.obstacle]


def _names(origin: Origin) -> dict[str, str]:
    world = open_snapshot(origin.snapshot).world
    return {job.id: f"{job.namespace}/{job.name}" for job in world.jobs.values()}


def _histories(origin: Origin, events: Sequence[e.Recorded]) -> JobHistories:
    world = open_snapshot(origin.snapshot).world
    unfinished = [job for job in world.jobs.values() if not job.finished]
    histories = JobHistories(None)
    kept = JobHistories(world, origin.at)
    histories.jobs = {job.id: kept.jobs[job.id] for job in unfinished}
    return histories.hear_all(events).close(origin.until)


def _setting(
    origin: Origin, change: Change, model: ClusterModel | None, learned: Learned
) -> Setting:
    world = open_snapshot(origin.snapshot).world
    delays = delays_of(origin.real) if model is None else model.delays
    # Nodes that joined later exist from the beginning, but are down until then.
    joining = {x.name: (at, x) for at, x in reversed(origin.joined) if x.name not in world.nodes}
    absent = [NodeFault(float("-inf"), name, None, at) for name, (at, _) in joining.items()]
    faults = faults_with(change, origin.faults, world)
    down = {f.node for f in faults if f.at == float("-inf")}
    silent = [n.name for n in world.nodes.values() if not n.ready and not n.removed]
    lasting = [NodeFault(float("-inf"), name) for name in silent if name not in down]
    return Setting(
        at=origin.at,
        until=origin.until,
        snapshot=_with_work(origin.snapshot, learned),
        hash=origin.hash,
        nodes=[*nodes_with(change, world), *(info for _, info in joining.values())],
        delays=delays,
        seed=0 if model is None else model.seed,
        preset=None if model is None else model.faults.preset,
        faults=[*faults, *lasting, *absent],
        first=commands_of(change, world),
        asked=learned.asked(origin.asked),
        simulated=origin.simulated,
        added=nodes_with(change, world)[-change.nodes_added :] if change.nodes_added else (),
        spared=change.without_faults,
        struck=change.faults,
    )


def _with_work(snapshot: StateSnapshot, learned: Learned) -> StateSnapshot:
    opened = open_snapshot(snapshot)
    return take_snapshot(State(learned.image(opened.world.image())), opened.hash)


# Events that a process records about itself; a branch has no such process.
_OF_PROCESSES = (e.EngineStarted, e.ClusterModelled, e.TimePassed)


def _error(origin: Origin, control: Branch, real: JobHistories, one: JobHistories) -> ModelError:
    happened = [x for x in origin.real if not isinstance(x.event, _OF_PROCESSES)]
    parting = part(happened, control.events)
    starts = _distances(real, one, "started_at")
    ends = _distances(real, one, "finished_at")
    outcomes = sum(
        facts.outcome != one.jobs[job].outcome
        for job, facts in real.jobs.items()
        if job in one.jobs
    )
    return ModelError(
        is_exact=parting is None,
        parting=parting,
        start_s_median=median(starts) if starts else None,
        finish_s_median=median(ends) if ends else None,
        finish_s_max=max(ends) if ends else None,
        outcomes_apart=outcomes,
        gpu_hours_apart=abs(real.gpu_s - one.gpu_s) / 3600,
    )


def _distances(real: JobHistories, one: JobHistories, name: str) -> list[float]:
    pairs = [
        (getattr(facts, name), getattr(one.jobs[job], name))
        for job, facts in real.jobs.items()
        if job in one.jobs
    ]
    return [abs(a - b) for a, b in pairs if a is not None and b is not None]
