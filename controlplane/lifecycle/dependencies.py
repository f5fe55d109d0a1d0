"""Whether a job's dependencies are met, and whether they still can be.

A dependency is on a job, on a whole array, or on one index of an array. It is *met* once its target
has ended as the condition demands, *never* met once the target has ended otherwise, and *open*
until then. A target that was removed before it had ended counts as cancelled: a deletion cancels
first. A target that was removed later was judged while it still existed, since a step judges
dependencies after each command.
"""

from collections.abc import Mapping
from enum import Enum

from controlplane.lifecycle.job import Job
from controlplane.lifecycle.owner import Owner, member_id
from controlplane.model.dependencies import Condition, Dependency
from controlplane.model.phases import OwnerPhase, Phase


class Verdict(Enum):
    """The state of one dependency, or of all dependencies of a job."""

    OPEN = "open"
    MET = "met"
    NEVER = "never"


def verdict(
    awaits: tuple[Dependency, ...], jobs: Mapping[str, Job], owners: Mapping[str, Owner]
) -> tuple[Verdict, Dependency | None]:
    """The verdict on all dependencies, and the first one that is never met or still open."""
    open_one: Dependency | None = None
    for dependency in awaits:
        result = one_verdict(dependency, jobs, owners)
        if result is Verdict.NEVER:
            return result, dependency
        if result is Verdict.OPEN and open_one is None:
            open_one = dependency
    return (Verdict.MET, None) if open_one is None else (Verdict.OPEN, open_one)


def one_verdict(
    dependency: Dependency, jobs: Mapping[str, Job], owners: Mapping[str, Owner]
) -> Verdict:
    """The verdict on one dependency."""
    succeeded = _outcome(dependency, jobs, owners)
    if succeeded is None:
        return Verdict.OPEN
    if dependency.condition is Condition.FINISHED:
        return Verdict.MET
    wants_success = dependency.condition is not Condition.FAILED
    return Verdict.MET if succeeded is wants_success else Verdict.NEVER


def _outcome(
    dependency: Dependency, jobs: Mapping[str, Job], owners: Mapping[str, Owner]
) -> bool | None:
    """Whether the target succeeded; None while it has not ended."""
    owner = owners.get(dependency.target)
    job = jobs.get(dependency.target)
    if owner is not None and dependency.index is None:
        return owner.phase is OwnerPhase.SUCCEEDED if owner.finished else None
    if owner is not None and dependency.index is not None:
        job = jobs.get(member_id(owner, dependency.index))
        if job is None and not owner.finished:
            return None
    if job is None:
        return False
    return job.phase is Phase.SUCCEEDED if job.finished else None
