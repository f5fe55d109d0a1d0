"""Consolidation: moving running gangs so that a waiting one fits in one piece.

KAI calls the same action consolidation. A plan names running gangs and for each a place where it
fits again; it is carried out only if the waiting gang then fits and every moved gang has a place.
Plans that move little are tried first: each of the SINGLES_MAX smallest gangs alone, then whole
nodes, cleared one after the other from the least loaded on, until the gang fits. A move restarts
the gang, so no gang is moved more than MOVES_MAX times.
"""

from collections.abc import Sequence
from typing import NamedTuple

from controlplane.lifecycle.job import Job
from controlplane.model.cluster import Placement
from controlplane.model.failures import Cause
from controlplane.scheduling.gang import Gang
from controlplane.scheduling.placement.fit import Fit, fit
from controlplane.scheduling.preemption.victim_search import Victim, running
from controlplane.scheduling.snapshot import Snapshot
from controlplane.state.devices import FreeDevices

# The number of gangs that are tried alone before whole nodes are cleared.
SINGLES_MAX = 200
# No gang is moved more often than this in its life, so that moves come to an end.
MOVES_MAX = 2


class Move(NamedTuple):
    """A gang and its new placement."""

    victim: Victim
    fit: Fit


class Consolidation(NamedTuple):
    """The moves, and where the waiting gang then fits."""

    moves: list[Move]
    fit: Fit


def consolidate(
    snapshot: Snapshot, gang: Gang, flavor: str, free: FreeDevices, gone: Sequence[str] = ()
) -> Consolidation | None:
    """A plan for the free devices in `free`, or None; `gone` are gangs that leave in any case."""
    if gang.gpus > free.total:
        # Moves free no device: the gang needs as many free devices as it asks for in total.
        return None
    movable = _movable(snapshot, gone)
    for victim in movable[:SINGLES_MAX]:
        plan = _with_moved(snapshot, gang, flavor, free, [victim])
        if plan is not None:
            return plan
    return _clear_nodes(snapshot, gang, flavor, free, movable)


def _movable(snapshot: Snapshot, gone: Sequence[str]) -> list[Victim]:
    """Gangs that may move, smallest first.

    Of equal ones, those that share a node with a `gone` gang come first.
    """
    pool = [v for queue in sorted(snapshot.queues) for v in running(snapshot, queue)]
    left = {slot.node for job_id in gone for slot in _slots(snapshot.job(job_id))}

    def key(v: Victim) -> tuple[int, int, bool, float, str]:
        beside = any(slot.node in left for slot in _slots(v.job))
        return v.milli, v.priority, not beside, -v.admitted_at, v.job.id

    may_move = [v for v in pool if v.job.id not in gone and not v.is_safe]
    movable = [v for v in may_move if _moves(v.job) < MOVES_MAX]
    return sorted(movable, key=key)


def _moves(job: Job) -> int:
    return sum(restart.cause is Cause.CONSOLIDATION for restart in job.restarts)


def _slots(job: Job) -> Placement:
    assert job.attempt is not None
    return job.attempt.placement


def _with_moved(
    snapshot: Snapshot, gang: Gang, flavor: str, free: FreeDevices, moved: Sequence[Victim]
) -> Consolidation | None:
    """A plan that moves these gangs, or None if the waiting gang or one of them finds no place."""
    view = free.copy()
    for victim in moved:
        snapshot.release(view, victim.job)
    gang_place = fit(snapshot.cluster, view, gang, flavor)
    if gang_place is None:
        return None
    snapshot.allocate(view, gang_place)
    moves = []
    for victim in sorted(moved, key=lambda v: (-v.milli, v.job.id)):
        assert victim.job.attempt is not None
        place = fit(snapshot.cluster, view, victim.gang, victim.job.attempt.flavor)
        if place is None:
            return None
        snapshot.allocate(view, place)
        moves.append(Move(victim, place))
    return Consolidation(moves, gang_place)


def _clear_nodes(
    snapshot: Snapshot, gang: Gang, flavor: str, free: FreeDevices, movable: Sequence[Victim]
) -> Consolidation | None:
    """Clear one node after the other, the least loaded first, until the gang fits; or None."""
    cluster = snapshot.cluster
    on_node: dict[int, list[Victim]] = {}
    load: dict[int, int] = {}
    for victim in movable:
        assert victim.job.attempt is not None
        for slot in victim.job.attempt.placement:
            ordinal = cluster.nodes[slot.node].ordinal
            on_node.setdefault(ordinal, []).append(victim)
            load[ordinal] = load.get(ordinal, 0) + len(slot.devices)
    moved: dict[str, Victim] = {}
    for ordinal in sorted(load, key=lambda o: (load[o], o)):
        if not free.open[ordinal]:
            continue
        for victim in on_node[ordinal]:
            moved.setdefault(victim.job.id, victim)
        plan = _with_moved(snapshot, gang, flavor, free, list(moved.values()))
        if plan is not None:
            plan = _without_needless_moves(plan)
            return plan if plan.moves else None
    return None


def _where(placement: Placement) -> list[tuple[str, tuple[int, ...]]]:
    return sorted((slot.node, slot.devices) for slot in placement)


def _without_needless_moves(plan: Consolidation) -> Consolidation:
    """The plan without gangs that got their old devices again."""
    moves = []
    for move in plan.moves:
        attempt = move.victim.job.attempt
        assert attempt is not None
        if _where(move.fit.placement) != _where(attempt.placement):
            moves.append(move)
    return Consolidation(moves, plan.fit)
