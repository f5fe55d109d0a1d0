"""What the control plane decides without a command: due timers, workflows and scheduling.

The engine records these decisions step by step, and `audit/redecide.py` compares them with the log;
so one module defines which decisions a step makes, and in which order.
"""

from collections.abc import Iterable, Iterator

from controlplane.decisions.admission import admit_member
from controlplane.decisions.scheduling_events import enact
from controlplane.lifecycle.draft import Decision, Draft
from controlplane.lifecycle.job import Job
from controlplane.lifecycle.timers import fire_timers
from controlplane.model import events as e
from controlplane.model.reasons import WaitReason
from controlplane.scheduling.cache import SchedulerCache
from controlplane.scheduling.cluster_view import ClusterView
from controlplane.scheduling.decisions import Replace, Start
from controlplane.scheduling.explain.schedulability import changes
from controlplane.scheduling.precheck import could_decide
from controlplane.scheduling.scheduling_pass import Pass
from controlplane.scheduling.snapshot import Snapshot
from controlplane.state.world import World
from controlplane.workflows.owners import next_decision


def makes_room(world: World, events: Iterable[e.Event]) -> bool:
    """Whether a scheduling pass may decide more after these events, which the world has applied."""
    for event in events:
        if event.wakes_scheduler:
            return True
        # Ranks are added only to a running gang.
        if type(event) is e.GangStarted and event.job in world.devices.growing:
            return True
    return False


def next_workflow(world: World, now: float) -> Decision:
    """The decision for the next job with dependencies, or the next owner; empty if there is none."""
    return next_decision(world, now, admit_member)


def next_due(world: World, now: float) -> Decision:
    """The next decision that is due; empty if there is none.

    Dependencies and owners come first, then the timers of the job that is longest overdue, then the
    end of the scheduling cycle.
    """
    if (workflow := next_workflow(world, now)).events:
        return workflow
    job = world.next_due(now)
    if job is None:
        return Decision([e.CycleEnded()] if world.cycle_is_over(now) else [])
    decided = fire_timers(job, now, world.position)
    assert decided.events, f"something was due for {job}, but nothing came of it"
    return decided


def review(world: World, now: float, cache: SchedulerCache) -> Iterator[Decision]:
    """Set aside waiting jobs that could not start if nothing ran, and requeue those that could.

    Apply each decision before the next one is requested. `cache` has the position of the last
    review, so only jobs for which something has changed since then are checked; see
    `schedulability`.
    """
    cache.use_for(world)
    since, cache.reviewed_position = cache.reviewed_position, world.position
    feasibility = world.feasibility
    changed = None if feasibility.all_changed_at > since else feasibility.changed_since(since)
    if changed == []:
        return
    for job, obstacle in changes(ClusterView(world, cache), changed):
        draft = Draft(job, now, world.position)
        if obstacle is None:
            draft.add(e.JobSchedulable(job.id))
        else:
            draft.add(e.JobUnschedulable(job.id, obstacle))
        yield draft


def one_pass(world: World, now: float, cache: SchedulerCache | None = None) -> Iterator[Decision]:
    """The events of one scheduling pass, decision by decision.

    The pass works on a snapshot and ends before the first decision is returned. Apply each decision
    to the world before the next one is requested.
    """
    if not (_may_place(world) or world.devices.growing):
        return
    snapshot = Snapshot(world, now, cache)
    if not could_decide(snapshot):
        return
    explains = _explains if world.policy.records_reasons else None
    scheduling = Pass(snapshot, explains, explain_all=False)
    decisions = scheduling.run()
    counted = scheduling.limit.counted()
    for decision in decisions:
        decided = enact(world, decision, now)
        if decided.events:
            yield decided
    if counted is not None:
        yield Decision([counted])


def _may_place(world: World) -> bool:
    """Whether some gang waits, for all of its devices or for those of lost ranks."""
    waiting, devices = world.waiting, world.devices
    return not waiting.is_empty or bool(devices.degraded or waiting.claimed)


def review_and_pass(world: World, now: float) -> Iterator[Decision]:
    """The decisions of a step about waiting jobs, where something has made room."""
    cache = SchedulerCache()
    yield from review(world, now, cache)
    yield from one_pass(world, now, cache)


def leaves_room(world: World, now: float, cache: SchedulerCache) -> bool:
    """Whether a pass would place a gang or a lost rank; after a completed step none would.

    Evictions do not count, nor do the starts that they make possible: what one pass leaves to the
    next is decided by the next, whether or not the engine was restarted in between.
    """
    if not _may_place(world):
        return False
    snapshot = Snapshot(world, now, cache)
    if not could_decide(snapshot):
        return False
    decisions = Pass(snapshot, None, explain_all=False, evicts=False).run()
    return any(isinstance(decision, Start | Replace) for decision in decisions)


def _explains(job: Job, code: WaitReason) -> bool:
    """Whether to record a reason: when it changes, and not if other gangs are merely ahead.

    A gang that is left over for the next cycle keeps its recorded reason: its claim, if it has one.
    """
    return job.wait_reason != code and code not in (
        WaitReason.BLOCKED_BY_HEAD,
        WaitReason.STARTS_LIMITED,
    )
