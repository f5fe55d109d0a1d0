"""Elastic starts: the largest size of a gang, between its minimum and what it asks for, that fits now."""

from collections.abc import Callable
from typing import TypeVar

from msgspec.structs import replace

from controlplane.lifecycle.job import Job, scaled
from controlplane.model.reasons import WaitReason
from controlplane.scheduling.gang import Gang
from controlplane.scheduling.placement.fit import Fit
from controlplane.scheduling.snapshot import Snapshot

Scaled = tuple[Gang, Fit]
T = TypeVar("T")


def scaled_gang(snapshot: Snapshot, gang: Gang, replicas: int | None = None) -> Gang:
    """The gang with this many replicas of its elastic role, or with its minimum."""
    if gang.elastic is None:
        return gang
    role, fewest = gang.elastic
    job: Job = snapshot.job(gang.id)
    count = fewest if replicas is None else replicas
    smaller = replace(job, spec=scaled(job.spec, role, count))
    return Gang(smaller, gang.memories_mib, by_request=gang.by_request)


def largest_fitting_size(
    snapshot: Snapshot,
    gang: Gang,
    quota_code: Callable[[Gang, str], WaitReason | None],
    fit_now: Callable[[Gang, str], Fit | None],
) -> Scaled | None:
    """The gang with the most replicas, fewer than it asks for, that can start now, and its place; or None."""
    assert gang.elastic is not None

    def fit_with(count: int) -> Scaled | None:
        smaller = scaled_gang(snapshot, gang, count)
        place = None if quota_code(smaller, "") else fit_now(smaller, "")
        return None if place is None else (smaller, place)

    return most_replicas(gang.elastic[1], replicas_asked(gang) - 1, fit_with)


def replicas_asked(gang: Gang) -> int:
    """How many replicas its elastic role asks for."""
    assert gang.elastic is not None
    asked = gang.spec.role(gang.elastic[0])
    assert asked is not None
    return asked.replicas


def most_replicas(low: int, high: int, fit_with: Callable[[int], T | None]) -> T | None:
    """The result for the most replicas in a range that have one; None if not even the fewest have.

    If N replicas fit, fewer do, so a bisection yields the most.
    """
    best: T | None = None
    while low <= high:
        count = (low + high + 1) // 2 if best is not None else low
        result = fit_with(count)
        if result is not None:
            best, low = result, count + 1
        else:
            high = count - 1
    return best


def replicas_of(gang: Gang, smaller: Gang) -> int:
    """How many replicas of the elastic role a smaller form of the gang has."""
    assert gang.elastic is not None
    role = smaller.spec.role(gang.elastic[0])
    assert role is not None
    return role.replicas
