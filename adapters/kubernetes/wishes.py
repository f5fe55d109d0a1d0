"""What should be true of each pod of a job: the tables that a plan is made from."""

from collections.abc import Collection
from enum import Enum, auto

from adapters.kubernetes.marks import Document
from controlplane.attempt import LIVE, RankState
from controlplane.job import Job
from controlplane.kinds.registry import kind_of
from controlplane.model import CleanPods

OVER_PHASES = ("Succeeded", "Failed")
# A pod that must end but whose object and logs are to stay is given this long to live.
LAST_SECONDS = 1


class Wish(Enum):
    """What should be true of a pod."""

    EXIST = auto()
    LEAVE = auto()
    # Whatever runs in it is to end, but the object stays.
    END = auto()
    ABSENT = auto()


# What the state of a rank in a live attempt says about its pod, if it is not to run now.
RANK_WISHES = {
    RankState.PENDING: Wish.ABSENT,
    RankState.RUNNING: Wish.LEAVE,
    RankState.BACKOFF: Wish.ABSENT,
    RankState.LOST: Wish.LEAVE,
    RankState.EXITED: Wish.LEAVE,
    RankState.GONE: Wish.LEAVE,
}
# What becomes of a finished job's pods: those that are over, and those that are not.
CLEAN_WISHES = {
    CleanPods.NONE: (Wish.LEAVE, Wish.END),
    CleanPods.RUNNING: (Wish.LEAVE, Wish.ABSENT),
    CleanPods.ALL: (Wish.ABSENT, Wish.ABSENT),
}


def pod_wish(job: Job, rank: int | None, pod: Document | None, to_run: Collection[int]) -> Wish:
    """What should be true of the pod of a rank; `rank` is None for one that the job has no more.

    `to_run` are the ranks that should run now (`effects.ranks_to_run`).
    """
    if job.finished:
        if pod is None:
            return Wish.LEAVE
        if job.deleting:
            return Wish.ABSENT
        over, going = CLEAN_WISHES[job.spec.clean]
        if rank is not None and _is_kept(job, rank):
            over = Wish.LEAVE
        return over if is_over(pod) else going
    attempt = job.attempt
    if rank is None or attempt is None or attempt.state not in LIVE:
        return Wish.ABSENT
    if rank >= len(attempt.ranks):
        # The gang was placed below its full size, and this rank has no place yet.
        return Wish.ABSENT
    if rank in to_run:
        return Wish.EXIST
    return RANK_WISHES[attempt.ranks[rank].state]


def _is_kept(job: Job, rank: int) -> bool:
    """Whether the rank's role keeps the pods that have ended by themselves."""
    return job.spec.role_of(rank)[0].name in kind_of(job.spec).kept(job.spec)


def is_over(pod: Document) -> bool:
    return pod.get("status", {}).get("phase") in OVER_PHASES


def is_ending(pod: Document) -> bool:
    """Whether the pod has been given its last seconds."""
    return bool(pod.get("spec", {}).get("activeDeadlineSeconds") == LAST_SECONDS)
