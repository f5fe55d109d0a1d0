"""What the control plane decides of its own accord: what has fallen due, and who starts now.

The engine records it step by step, and `redeciding` compares it with what was once recorded; so
there is one place that says which decisions a step makes, and after what.
"""

from collections.abc import Iterable, Iterator

from controlplane import events as e
from controlplane.draft import Decided, Draft
from controlplane.enactment import enact
from controlplane.job import Job
from controlplane.scheduling.cycle import Pass
from controlplane.scheduling.decisions import Replace, Start
from controlplane.scheduling.growth import grow
from controlplane.scheduling.hopes import may_decide
from controlplane.scheduling.schedulability import changes
from controlplane.scheduling.snapshot import Snapshot
from controlplane.scheduling.start_limit import STARTS_LIMITED
from controlplane.settling import due
from controlplane.world import World

# A scheduling pass is worth its cost only after an event that lets it decide more than the last one:
# one that adds a gang, frees or adds devices, takes the head of a line away, loses ranks that may be
# replaced, or changes what queues share. Whatever lets a pass decide more must be listed here: the
# log does not show a pass that decided nothing, so `redeciding` relies on it.
MAKES_ROOM: frozenset[type[e.Event]] = frozenset(
    {
        e.JobSubmitted,
        e.JobRequeued,
        e.JobScaled,
        e.JobUnschedulable,
        e.JobSchedulable,
        e.JobCancelled,
        e.JobSuspended,
        e.JobFailed,
        e.JobAmended,
        e.RanksExited,
        e.RanksLost,
        e.RanksGone,
        e.AttemptEnded,
        e.NodeReported,
        e.NodeLost,
        e.NodeRemoved,
        e.NodeCordoned,
        e.NodeUncordoned,
        e.QueueDefined,
        e.QueueRemoved,
        e.PolicySet,
        e.CycleEnded,
        e.JobRestarting,
        e.StepPassed,
        e.ProtectionEnded,
        e.EngineStarted,
    }
)


def makes_room(world: World, events: Iterable[e.Event]) -> bool:
    """Whether a pass may decide more after these events, which the world has taken in."""
    for event in events:
        if type(event) in MAKES_ROOM:
            return True
        # Ranks are added only to a gang that runs.
        if type(event) is e.GangStarted and event.job in world.growing:
            return True
    return False


def next_due(world: World, now: float) -> Decided:
    """What is due for the job that is longest overdue, then for the cycle; empty if nothing is."""
    job = world.next_due(now)
    if job is None:
        return Decided([e.CycleEnded()] if world.cycle_is_over(now) else [])
    decided = due(job, now, world.position)
    assert decided.events, f"something was due for {job}, but nothing came of it"
    return decided


def review(world: World, now: float) -> Iterator[Decided]:
    """Sets waiting jobs aside that could not start if nothing ran, and takes back those that could.

    Each decision is to be taken into the world before the next one is asked for. Where nothing has
    changed that they hang on, nothing is looked at; see `schedulability`.
    """
    if not (world.review_all or world.to_review):
        return
    for job, obstacle in changes(world):
        draft = Draft(job, now, world.position)
        if obstacle is None:
            draft.add(e.JobSchedulable(job.id))
        else:
            draft.add(e.JobUnschedulable(job.id, obstacle))
        yield draft


def one_pass(world: World, now: float) -> Iterator[Decided]:
    """The events of one scheduling pass, decision by decision.

    Each decision is to be taken into the world before the next one is asked for.
    """
    if not (any(world.waiting.values()) or world.growing or world.crippled or world.claimed):
        return
    snapshot = Snapshot(world, now)
    if not may_decide(snapshot):
        return
    explains = _explains if world.policy.records_reasons else None
    scheduling = Pass(snapshot, explains, everyone=False)
    decisions = scheduling.run()
    counted = scheduling.limit.counted()
    for decision in decisions:
        decided = enact(world, decision, now)
        if decided.events:
            yield decided
    if counted is not None:
        yield Decided([counted])
    if world.growing:
        snapshot.is_enacted()
        for event in grow(snapshot, decisions):
            yield Decided([event])


def review_and_pass(world: World, now: float) -> Iterator[Decided]:
    """What a step does about waiting jobs, where something has made room."""
    yield from review(world, now)
    yield from one_pass(world, now)


def leaves_room(world: World, now: float) -> bool:
    """Whether a pass would give a gang or a lost rank its place, which no finished step leaves undone.

    Other decisions do not count: evictions that one pass makes possible are left to the next one,
    and when that comes must not depend on whether the engine was started in between.
    """
    if not (any(world.waiting.values()) or world.crippled or world.claimed):
        return False
    snapshot = Snapshot(world, now)
    if not may_decide(snapshot):
        return False
    decisions = Pass(snapshot, None, everyone=False).run()
    return any(isinstance(decision, Start | Replace) for decision in decisions)


def _explains(job: Job, code: str) -> bool:
    """Reasons are recorded when they change, and not that other gangs are ahead.

    A gang that is left over for the next cycle keeps what is known of it: its claim, if it has one.
    """
    return job.held != code and code not in ("blocked_by_head", STARTS_LIMITED)
