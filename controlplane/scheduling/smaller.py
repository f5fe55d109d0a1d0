"""Elastic gangs: between the fewest replicas they can do with and as many as they would like."""

from collections.abc import Callable
from typing import TypeVar

from msgspec.structs import replace

from controlplane.job import Job
from controlplane.job_life import scaled
from controlplane.scheduling.fitting import Fit
from controlplane.scheduling.gangs import Gang
from controlplane.scheduling.snapshot import Snapshot

Found = tuple[Gang, Fit]
T = TypeVar("T")


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

    def found_with(count: int) -> Found | None:
        smaller = scaled_gang(snapshot, gang, count)
        found = None if quota_code(smaller, "") else fit_now(smaller, "")
        return None if found is None else (smaller, found)

    return most_replicas(gang.elastic[1], replicas_asked(gang) - 1, found_with)


def replicas_asked(gang: Gang) -> int:
    """How many replicas its elastic role asks for."""
    assert gang.elastic is not None
    asked = gang.spec.role(gang.elastic[0])
    assert asked is not None
    return asked.replicas


def most_replicas(low: int, high: int, found_with: Callable[[int], T | None]) -> T | None:
    """What is found with the most replicas of a range; None if there is nothing even with the fewest.

    What is found with more replicas is found with fewer, so the most is found by halving.
    """
    best: T | None = None
    while low <= high:
        count = (low + high + 1) // 2 if best is not None else low
        found = found_with(count)
        if found is not None:
            best, low = found, count + 1
        else:
            high = count - 1
    return best


def replicas_of(gang: Gang, smaller: Gang) -> int:
    """How many replicas of its elastic role a smaller form of the gang has."""
    assert gang.elastic is not None
    role = smaller.spec.role(gang.elastic[0])
    assert role is not None
    return role.replicas
