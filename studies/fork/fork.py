"""The question and its answer: what would have happened otherwise.

The real past up to an instant, and from there two futures in the simulator: one with a change, and
beside it a control without. Both are asked the same and suffer the same faults as really happened.
How far the control is from what really happened is the model's error, and is told with the answer.
"""

from collections.abc import Sequence
from statistics import median

from msgspec import Struct

from controlplane import events as e
from controlplane.job import Phase
from controlplane.obstacles import in_words
from controlplane.ports import LogReader, Snapshot
from controlplane.replay import open_snapshot, take_snapshot
from controlplane.state import State
from controlplane.world import World
from simulator.topology import ClusterModel
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
from studies.ledger import Ledger


class ModelError(Struct, frozen=True, kw_only=True):
    """How far the control is from what really happened."""

    # Whether it is the same, event for event, to the millisecond; and where not, the first place.
    is_exact: bool
    parting: Parting | None
    # Over jobs that started or ended in both, in seconds.
    start_s_median: float | None
    finish_s_median: float | None
    finish_s_max: float | None
    outcomes_apart: int
    gpu_hours_apart: float


class Forked(Struct, frozen=True, kw_only=True):
    """The two futures: `one` is the control, `other` the branch with the change."""

    at: float
    until: float
    changes: list[str]
    comparison: Comparison
    # The first decision at which they part: what was asked differs where something was changed.
    first_decision: Parting | None
    error: ModelError
    # Whether jobs work as they say, or as long as they really did.
    work: str
    refused: list[str]
    # What people call the jobs.
    names: dict[str, str]
    # Jobs that are set aside at the end of the branch with the change, and why.
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
    """Forks a log at an instant. Without `until`, as far as the log goes.

    A log of a simulated cluster names its model; `model` is for one that does not. The past is then
    replayed on that model, and running jobs go on as far as they were, at the pace of their places.
    Without any, work and delays are taken from the log.
    """
    origin = await look_back(log, at=at, until=until, model=model)
    if origin.snapshot.position == 0:
        raise ForkError("the log begins later: there is no past to fork from")
    if origin.until <= at:
        raise ForkError("the end does not lie behind the fork")
    return run_fork(origin, change or Change(), model, gpu_hour_price)


def run_fork(
    origin: Origin, change: Change, model: ClusterModel | None, gpu_hour_price: float
) -> Forked:
    real = _ledger(origin, origin.real)
    as_written = origin.simulated is not None or is_as_written(real)
    learned = Learned(real, trusts=as_written, trains=origin.simulated is not None)
    control = run_branch(_setting(origin, Change(), model, learned))
    changed = control if change.is_none else run_branch(_setting(origin, change, model, learned))
    one, other = _ledger(origin, control.events), _ledger(origin, changed.events)
    return Forked(
        at=origin.at,
        until=origin.until,
        changes=change.told(),
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


def _set_aside(world: World) -> list[str]:
    jobs = [world.jobs[job] for job in sorted(world.by_phase[Phase.UNSCHEDULABLE])]
    return [f"{j.namespace}/{j.name}: {in_words(j.obstacle)}" for j in jobs if j.obstacle]


def _names(origin: Origin) -> dict[str, str]:
    world = open_snapshot(origin.snapshot).world
    return {job.id: f"{job.namespace}/{job.name}" for job in world.jobs.values()}


def _ledger(origin: Origin, events: Sequence[e.Recorded]) -> Ledger:
    world = open_snapshot(origin.snapshot).world
    unfinished = [job for job in world.jobs.values() if not job.finished]
    ledger = Ledger(None)
    kept = Ledger(world, origin.at)
    ledger.jobs = {job.id: kept.jobs[job.id] for job in unfinished}
    return ledger.hear_all(events).close(origin.until)


def _setting(
    origin: Origin, change: Change, model: ClusterModel | None, learned: Learned
) -> Setting:
    world = open_snapshot(origin.snapshot).world
    delays = delays_of(origin.real) if model is None else model.delays
    # Nodes that joined later are there from the beginning, but down.
    joining = {x.name: (at, x) for at, x in reversed(origin.joined) if x.name not in world.nodes}
    absent = [NodeFault(float("-inf"), name, "", at) for name, (at, _) in joining.items()]
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


def _with_work(snapshot: Snapshot, learned: Learned) -> Snapshot:
    opened = open_snapshot(snapshot)
    return take_snapshot(State(learned.image(opened.world.image())), opened.hash)


# What a process records of itself, which a branch has no reason to.
_OF_PROCESSES = (e.EngineStarted, e.ClusterModelled, e.TimePassed)


def _error(origin: Origin, control: Branch, real: Ledger, one: Ledger) -> ModelError:
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


def _distances(real: Ledger, one: Ledger, name: str) -> list[float]:
    pairs = [
        (getattr(facts, name), getattr(one.jobs[job], name))
        for job, facts in real.jobs.items()
        if job in one.jobs
    ]
    return [abs(a - b) for a, b in pairs if a is not None and b is not None]
