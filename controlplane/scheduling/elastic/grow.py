"""Growth of running elastic gangs: they get what no waiting gang of their queue needs."""

from collections.abc import Sequence

from controlplane.lifecycle.job import Job, ranks_wanted
from controlplane.scheduling.decisions import Evict, GiveUp, Grow, SchedulingDecision, Shrink
from controlplane.scheduling.elastic.repair import part_of, place_beside
from controlplane.scheduling.gang import Gang
from controlplane.scheduling.placement.fit import Fit
from controlplane.scheduling.quota.gate import QuotaGate
from controlplane.scheduling.snapshot import Snapshot


def grow(
    snapshot: Snapshot, decided: Sequence[SchedulingDecision], started: Sequence[Gang]
) -> list[Grow]:
    """Add ranks to running gangs that want more, after everything else that a pass decided.

    `started` are the gangs that the pass starts. A gang grows only if every waiting gang of its queue starts
    in this pass: a gang that still waits may need the devices more than one that runs.
    """
    starts = {gang.id for gang in started}
    stopped = {
        decision.job for decision in decided if isinstance(decision, Evict | Shrink | GiveUp)
    }
    grown: list[Grow] = []
    for job in snapshot.growing():
        queue = snapshot.queue_index(job.spec.queue).order
        if job.id in stopped or any(key.job not in starts for key in queue):
            continue
        more = _more(snapshot, job, started)
        if more is not None:
            gang, place = more
            snapshot.add_ranks(gang, place)
            grown.append(Grow(job.id, ranks_wanted(job).start, place.placement))
    return grown


def _more(snapshot: Snapshot, job: Job, started: Sequence[Gang]) -> tuple[Gang, Fit] | None:
    """The most of the wanted ranks that have room and quota, lowest rank first, and where; None if none has.

    They go to nodes that the gang may use, and to the domain of its other ranks if it is bound to one.
    """
    role = job.spec.roles[-1]
    if role.node or role.gpu_share or role.gpu_memory_mib:
        # Ranks with named devices or shares cannot be added to a running gang.
        return None
    wanted = ranks_wanted(job)
    low, high = 0, len(wanted)
    best: tuple[Gang, Fit] | None = None
    # If N ranks fit, fewer do, so a bisection yields the most; all of them are tried first.
    count = high
    while low < high:
        larger = _fit_ranks(snapshot, job, wanted[:count], started)
        if larger is None:
            high = count - 1
        else:
            best, low = larger, count
        count = (low + high + 1) // 2
    return best


def _fit_ranks(
    snapshot: Snapshot, job: Job, ranks: range, started: Sequence[Gang]
) -> tuple[Gang, Fit] | None:
    """Just these ranks as a gang of their own, and their place; None if they lack room or quota."""
    attempt, whole = job.attempt, snapshot.gang(job.id)
    assert attempt is not None
    more = part_of(snapshot, job, ranks)
    gate = QuotaGate(snapshot)
    gate.started.extend(started)
    if gate.code(more, attempt.flavor):
        return None
    placement = place_beside(snapshot, whole, job, list(ranks))
    if placement is None:
        return None
    return more, Fit(placement, flavor=attempt.flavor, amounts=more.amounts)
