"""The desired state of each pod of a job: the tables behind a plan. Pure."""

from collections.abc import Collection
from enum import Enum, auto

from adapters.kubernetes.observe.labels import Document
from controlplane.kinds.registry import kind_of
from controlplane.lifecycle.job import Job
from controlplane.model.phases import LIVE, RankState
from controlplane.model.spec import CleanPods

OVER_PHASES = ("Succeeded", "Failed")
# The `activeDeadlineSeconds` of a pod that must end but whose object and logs stay.
LAST_SECONDS = 1


class DesiredState(Enum):
    """The desired state of a pod."""

    EXIST = auto()
    # Neither create nor delete it.
    LEAVE = auto()
    # Its containers must end, but the object stays.
    END = auto()
    ABSENT = auto()


# The desired state of the pod of a rank outside `to_run`, by the rank's state in a live attempt.
DESIRED_BY_RANK_STATE = {
    RankState.PENDING: DesiredState.ABSENT,
    RankState.RUNNING: DesiredState.LEAVE,
    RankState.BACKOFF: DesiredState.ABSENT,
    RankState.LOST: DesiredState.LEAVE,
    RankState.EXITED: DesiredState.LEAVE,
    RankState.GONE: DesiredState.LEAVE,
}
# The desired state of a finished job's pods: of those that are over, and of those that are not.
DESIRED_BY_CLEAN_POLICY = {
    CleanPods.NONE: (DesiredState.LEAVE, DesiredState.END),
    CleanPods.RUNNING: (DesiredState.LEAVE, DesiredState.ABSENT),
    CleanPods.ALL: (DesiredState.ABSENT, DesiredState.ABSENT),
}


def desired_state(
    job: Job, rank: int | None, pod: Document | None, to_run: Collection[int]
) -> DesiredState:
    """Return the desired state of the pod of `rank`; None is a rank that the job no longer has.

    `pod` is the existing pod, or None. `to_run` are the ranks that should run now
    (`effects.ranks_to_run`).
    """
    if job.finished:
        if pod is None:
            return DesiredState.LEAVE
        if job.deleting:
            return DesiredState.ABSENT
        over, going = DESIRED_BY_CLEAN_POLICY[job.spec.clean]
        if rank is not None and _is_kept(job, rank):
            over = DesiredState.LEAVE
        return over if is_over(pod) else going
    attempt = job.attempt
    if rank is None or attempt is None or attempt.state not in LIVE:
        return DesiredState.ABSENT
    if rank >= len(attempt.ranks):
        # The gang was placed below its full size, and this rank has no slot yet.
        return DesiredState.ABSENT
    if rank in to_run:
        return DesiredState.EXIST
    return DESIRED_BY_RANK_STATE[attempt.ranks[rank].state]


def _is_kept(job: Job, rank: int) -> bool:
    """Return whether the rank's role keeps pods that have ended by themselves."""
    return job.spec.role_of(rank)[0].name in kind_of(job.spec).kept(job.spec)


def is_over(pod: Document) -> bool:
    """Return whether all containers of a pod have ended: its phase is Succeeded or Failed."""
    return pod.get("status", {}).get("phase") in OVER_PHASES


def is_ending(pod: Document) -> bool:
    """Return whether the plan has ended the pod: its deadline is `LAST_SECONDS`."""
    return bool(pod.get("spec", {}).get("activeDeadlineSeconds") == LAST_SECONDS)
