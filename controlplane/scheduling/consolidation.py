"""Moving gangs that run aside, so that one that waits finds its room in one piece.

A plan names gangs that may be evicted, and for each a place where it fits again; nobody is moved
unless the waiting gang then fits and everyone moved has a place. Few and small ones are moved.
"""

from collections.abc import Sequence
from typing import NamedTuple

from controlplane.devices import FreeDevices
from controlplane.job import Job
from controlplane.model import Cause, Placement
from controlplane.scheduling.fitting import Fit, fit
from controlplane.scheduling.gangs import Gang
from controlplane.scheduling.snapshot import Snapshot
from controlplane.scheduling.victims import Victim, running

# So many single gangs are tried before whole nodes are cleared.
SINGLES_MAX = 200
# No gang is moved more often than this in its life, so that moving comes to an end.
MOVES_MAX = 2


class Move(NamedTuple):
    victim: Victim
    fit: Fit


class Consolidation(NamedTuple):
    """Who moves where, and where the waiting gang then fits."""

    moves: list[Move]
    fit: Fit


def consolidate(
    snapshot: Snapshot, gang: Gang, flavor: str, free: FreeDevices, gone: Sequence[str] = ()
) -> Consolidation | None:
    """A plan on a view of what is free; `gone` are gangs that leave it in any case."""
    if gang.gpus > free.total:
        # Moving makes no device: what is not free in all will not be free in one piece.
        return None
    movable = _movable(snapshot, gone)
    for victim in movable[:SINGLES_MAX]:
        found = _with_moved(snapshot, gang, flavor, free, [victim])
        if found is not None:
            return found
    return _clear_nodes(snapshot, gang, flavor, free, movable)


def _movable(snapshot: Snapshot, gone: Sequence[str]) -> list[Victim]:
    """The small ones first; among equals those beside whom somebody leaves in any case."""
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
    view = free.copy()
    for victim in moved:
        snapshot.let_go(view, victim.job)
    found = fit(snapshot.world, view, gang, flavor)
    if found is None:
        return None
    snapshot.hold(view, found)
    moves = []
    for victim in sorted(moved, key=lambda v: (-v.milli, v.job.id)):
        assert victim.job.attempt is not None
        place = fit(snapshot.world, view, victim.gang, victim.job.attempt.flavor)
        if place is None:
            return None
        snapshot.hold(view, place)
        moves.append(Move(victim, place))
    return Consolidation(moves, found)


def _clear_nodes(
    snapshot: Snapshot, gang: Gang, flavor: str, free: FreeDevices, movable: Sequence[Victim]
) -> Consolidation | None:
    """Clears one node after the other, those with least on them first, until the gang fits."""
    world = snapshot.world
    on_node: dict[int, list[Victim]] = {}
    load: dict[int, int] = {}
    for victim in movable:
        assert victim.job.attempt is not None
        for slot in victim.job.attempt.placement:
            ordinal = world.nodes[slot.node].ordinal
            on_node.setdefault(ordinal, []).append(victim)
            load[ordinal] = load.get(ordinal, 0) + len(slot.devices)
    moved: dict[str, Victim] = {}
    for ordinal in sorted(load, key=lambda o: (load[o], o)):
        if not free.open[ordinal]:
            continue
        for victim in on_node[ordinal]:
            moved.setdefault(victim.job.id, victim)
        found = _with_moved(snapshot, gang, flavor, free, list(moved.values()))
        if found is not None:
            found = _who_really_moves(found)
            return found if found.moves else None
    return None


def _where(placement: Placement) -> list[tuple[str, tuple[int, ...]]]:
    return sorted((slot.node, slot.devices) for slot in placement)


def _who_really_moves(plan: Consolidation) -> Consolidation:
    """Whoever found its old place again need not move."""
    moves = []
    for move in plan.moves:
        attempt = move.victim.job.attempt
        assert attempt is not None
        if _where(move.fit.placement) != _where(attempt.placement):
            moves.append(move)
    return Consolidation(moves, plan.fit)
