"""Why a rank or an attempt ended: exits, causes, restarts and failures."""

from enum import StrEnum

from controlplane.model.reasons import FailureFacts, FailureReason, Loss, RestartFacts
from controlplane.model.values import ArrayValue, Value

# Under the ExitCode rule, codes up to this come from the program and are permanent; higher codes
# are signals (128 + n), and a retry may succeed.
PERMANENT_CODE_MAX = 127


def is_permanent(code: int | None) -> bool:
    """Return whether the ExitCode rule treats this exit code as a permanent failure."""
    return code is not None and 0 < code <= PERMANENT_CODE_MAX


class Cause(StrEnum):
    """Why a rank ended, or why a gang restarts."""

    EXIT = "exit"
    OOM = "oom"
    EVICTION = "eviction"
    # The node rejected the rank before it ran, for example because it has too little CPU or memory.
    REFUSED = "refused"
    NODE_LOST = "node_lost"
    PREEMPTION = "preemption"
    # The gang was moved so that another gang fits in one piece.
    CONSOLIDATION = "consolidation"
    START_TIMEOUT = "start_timeout"
    SPOT_RECLAIM = "spot_reclaim"
    VANISHED = "vanished"
    SCALED = "scaled"
    # The workload cannot run on the devices it got, and a retry would end the same way.
    CANNOT_RUN = "cannot_run"
    # The rank succeeded, though its exit code was not observed.
    COMPLETED = "completed"


# Failures of the platform. They do not spend the job's restart budget, unless its restart policy has
# `counts_platform`.
PLATFORM_CAUSES = frozenset(Cause) - {Cause.EXIT, Cause.OOM, Cause.CANNOT_RUN, Cause.COMPLETED}


class Exit(Value, frozen=True):
    """How one rank ended. `code` is None if the end of the process was not observed.

    `reason` is the cluster's code for it and `detail` the cluster's text. `lines` are the last lines
    of a failed rank's output, if the cluster has them. `loss` is set if the rank was lost and did not
    end by itself.
    """

    rank: int
    code: int | None = None
    cause: Cause = Cause.EXIT
    detail: str = ""
    lines: tuple[str, ...] = ()
    reason: str = ""
    loss: Loss | None = None


class Stuck(ArrayValue, frozen=True):
    """A rank that does not come up, with the cluster's reason code and its text."""

    rank: int
    reason: str
    detail: str = ""


class Restart(Value, frozen=True):
    """One entry of a job's restart ledger.

    A restart caused by one rank has the rank, its name, its node and the fields of its `Exit`; any
    other restart has `facts`.
    """

    at: float
    attempt: int
    cause: Cause
    spends_budget: bool
    rank: int | None = None
    exit_code: int | None = None
    node: str = ""
    rank_name: str = ""
    detail: str = ""
    reason: str = ""
    loss: Loss | None = None
    facts: RestartFacts | None = None
    # For an eviction: the seconds of run time that are lost.
    lost_s: float = 0.0


class Failure(Value, frozen=True):
    """Why a job failed, or why the control plane suspended it.

    `last` is the restart that was not granted, if the end of a rank or of an attempt caused it.
    """

    reason: FailureReason
    rank: int | None = None
    exit_code: int | None = None
    last: Restart | None = None
    facts: FailureFacts | None = None
