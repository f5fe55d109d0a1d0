"""Elastic gangs: between the fewest replicas they can do with and as many as they would like."""

from collections.abc import Callable

from msgspec.structs import replace

from controlplane.job import Job
from controlplane.job_life import scaled
from controlplane.scheduling.fitting import Fit
from controlplane.scheduling.gangs import Gang
from controlplane.scheduling.snapshot import Snapshot

Found = tuple[Gang, Fit]


def scaled_gang(snapshot: Snapshot, gang: Gang, replicas: int | None = None) -> Gang:
    """The gang with so many replicas of its elastic role, or with the fewest."""
    if gang.elastic is None:
        return gang
    role, fewest = gang.elastic
    job: Job = snapshot.job(gang.id)
    count = fewest if replicas is None else replicas
    smaller = replace(job, spec=scaled(job.spec, role, count))
    return Gang(smaller, gang.memories_mib, by_request=gang.by_request)


def fewer_replicas(
    snapshot: Snapshot,
    gang: Gang,
    quota_code: Callable[[Gang, str], str],
    fit_now: Callable[[Gang, str], Fit | None],
) -> Found | None:
    """The most replicas, fewer than asked for, with which the gang can start now."""
    assert gang.elastic is not None
    role, low = gang.elastic
    asked = gang.spec.role(role)
    assert asked is not None
    best: Found | None = None
    high = asked.replicas - 1
    while low <= high:
        # Whoever fits with more replicas fits with fewer, so the most is found by halving.
        count = (low + high + 1) // 2 if best is not None else low
        smaller = scaled_gang(snapshot, gang, count)
        found = None if quota_code(smaller, "") else fit_now(smaller, "")
        if found is not None:
            best = (smaller, found)
            low = count + 1
        else:
            high = count - 1
    return best
