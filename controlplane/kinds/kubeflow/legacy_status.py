"""The status of the operators of 2018: one phase, one state, and a list of replicas.

The phases are "", Creating, Running, CleanUp and Done. Failed was for manifests that could not be
read, which Muster refuses. Only the chief decides the state.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

from controlplane.kinds.conditions import ended_by_us
from controlplane.lifecycle.attempt import Rank
from controlplane.lifecycle.job import Job
from controlplane.messages import job_text
from controlplane.model.phases import Phase, RankState
from controlplane.model.spec import Role

UNKNOWN, RUNNING, SUCCEEDED, FAILED = "Unknown", "Running", "Succeeded", "Failed"
_STATES = {
    Phase.STARTING: RUNNING,
    Phase.RUNNING: RUNNING,
    Phase.RESTARTING: RUNNING,
    Phase.SUCCEEDED: SUCCEEDED,
    Phase.FAILED: FAILED,
    Phase.CANCELLED: FAILED,
}
_PHASES = {Phase.STARTING: "Creating", Phase.RESTARTING: "Creating", Phase.RUNNING: "Running"}
_RANK_STATES = {RankState.PENDING: UNKNOWN, RankState.GONE: UNKNOWN, RankState.LOST: FAILED}


def styled(type: str) -> Callable[[Job], dict[str, Any]]:
    """Return a status function for a kind whose field for the replica type is named `type`."""
    return lambda job: status(job, type)


def status(job: Job, type: str = "tf_replica_type") -> dict[str, Any]:
    return {
        "phase": _phase(job),
        "reason": job_text(job) or job.reason or "",
        "state": _STATES.get(job.phase, UNKNOWN),
        "replicaStatuses": [_replica(job, role, type) for role in job.spec.roles],
    }


def _phase(job: Job) -> str:
    """Return the phase; a finished job is in CleanUp until its last attempt is over, then Done."""
    if job.finished:
        return "Done" if job.live_attempt is None else "CleanUp"
    return _PHASES.get(job.phase, "")


def _replica(job: Job, role: Role, type: str) -> dict[str, Any]:
    ranks = () if job.attempt is None else job.attempt.ranks
    numbers = job.spec.ranks_of(role.name)
    counts = Counter(_rank_state(job, rank) for rank in ranks[numbers.start : numbers.stop])
    order = (FAILED, RUNNING, UNKNOWN, SUCCEEDED)
    return {
        type: role.name.upper(),
        "state": next((state for state in order if counts[state]), UNKNOWN),
        "ReplicasStates": {state: counts[state] for state in order if counts[state]},
    }


def _rank_state(job: Job, rank: Rank) -> str:
    if ended_by_us(job, rank):
        return SUCCEEDED if rank.done or job.phase is Phase.SUCCEEDED else UNKNOWN
    if rank.state is RankState.EXITED:
        return SUCCEEDED if rank.done else FAILED
    return _RANK_STATES.get(rank.state, RUNNING)
