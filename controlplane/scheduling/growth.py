"""Room for running gangs that were told to grow: what is left when nobody waits for it."""

from collections.abc import Sequence

from controlplane.events import RanksAdded
from controlplane.job import Job
from controlplane.job_life import ranks_wanted
from controlplane.scheduling.decisions import Decision, Evict, GiveUp, Shrink, Start
from controlplane.scheduling.fitting import Fit
from controlplane.scheduling.gangs import Gang
from controlplane.scheduling.quota_gate import QuotaGate
from controlplane.scheduling.repair import part_of, place_beside
from controlplane.scheduling.snapshot import Snapshot


def grow(snapshot: Snapshot, decided: Sequence[Decision]) -> list[RanksAdded]:
    """Adds ranks to gangs that want some, after the pass that started these whole ones.

    A gang of the same queue that still waits comes first: it may need the room more than one that
    runs already.
    """
    started = {decision.job for decision in decided if isinstance(decision, Start)}
    stopped = {
        decision.job for decision in decided if isinstance(decision, Evict | Shrink | GiveUp)
    }
    added: list[RanksAdded] = []
    for job in snapshot.growing():
        line = snapshot.line(job.spec.queue).order
        if job.id in stopped or any(place.job not in started for place in line):
            continue
        more = _more(snapshot, job)
        if more is not None:
            assert job.attempt is not None
            gang, found = more
            snapshot.take_more(gang, found)
            first = ranks_wanted(job).start
            added.append(RanksAdded(job.id, job.attempt.number, first, found.placement))
    return added


def _more(snapshot: Snapshot, job: Job) -> tuple[Gang, Fit] | None:
    """As many of the wanted ranks as find room and quota, the first ones first, and where.

    They go where the gang may go: to nodes that it takes, and to the domain of the others if it is
    bound to one.
    """
    role = job.spec.roles[-1]
    if role.node or role.gpu_share or role.gpu_memory_mib:
        # Ranks with named devices or parts of them do not come and go while the others run.
        return None
    wanted = ranks_wanted(job)
    low, high = 0, len(wanted)
    best: tuple[Gang, Fit] | None = None
    # Whoever fits with more ranks fits with fewer, so the most is found by halving; all of them first.
    count = high
    while low < high:
        found = _so_many(snapshot, job, wanted[:count])
        if found is None:
            high = count - 1
        else:
            best, low = found, count
        count = (low + high + 1) // 2
    return best


def _so_many(snapshot: Snapshot, job: Job, ranks: range) -> tuple[Gang, Fit] | None:
    """Just these ranks as a gang of their own, and where they go."""
    attempt, whole = job.attempt, snapshot.gang(job.id)
    assert attempt is not None
    more = part_of(snapshot, job, ranks)
    if QuotaGate(snapshot).code(more, attempt.flavor):
        return None
    placement = place_beside(snapshot, whole, job, list(ranks))
    if placement is None:
        return None
    return more, Fit(placement, flavor=attempt.flavor, amounts=more.amounts)
