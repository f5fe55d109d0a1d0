"""One job's life.

Laws that hold here:

1. What a job is, is a fold of its events (`job_life.py`): `evolve` is the only way to another state.
2. `TRANSITIONS` says everything about order. An event it does not allow is a bug, and evolve says
   so loudly.
3. A job has one terminal phase ever: no row of the table leaves one.
4. The verdict and the devices are two things. A job is finished at the instant of its verdict; its
   last attempt (see `attempt.py`, which has a table of its own) is over only when the cluster says
   that every rank is gone, and holds its devices until then.
"""

from enum import StrEnum

from controlplane import events as e
from controlplane.attempt import Attempt, AttemptState
from controlplane.model import JobSpec, Obstacle, Restart, Value


class Phase(StrEnum):
    QUEUED = "Queued"
    STARTING = "Starting"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    # It waits outside its line: it could not start on the cluster as it is, even if nothing ran.
    UNSCHEDULABLE = "Unschedulable"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"


# What holds a job for which others are giving way.
CLAIMED = "waiting_for_victims"
ACTIVE = (Phase.STARTING, Phase.RUNNING)
WAITING = (Phase.QUEUED, Phase.UNSCHEDULABLE)
AWAKE = (*WAITING, *ACTIVE, Phase.RESTARTING)
UNFINISHED = (*AWAKE, Phase.SUSPENDED)
FINISHED = frozenset({Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED})

# Where each event takes a job from each phase in which it may happen. Restarting is the wait for
# the back-off to pass and for the last attempt to be gone; a resumed job goes through it too.
TRANSITIONS: dict[tuple[Phase, type[e.Event]], Phase] = {
    (Phase.QUEUED, e.GangPlaced): Phase.STARTING,
    **{(phase, e.JobUnschedulable): Phase.UNSCHEDULABLE for phase in WAITING},
    (Phase.UNSCHEDULABLE, e.JobSchedulable): Phase.QUEUED,
    (Phase.STARTING, e.GangStarted): Phase.RUNNING,
    **{(phase, e.JobRestarting): Phase.RESTARTING for phase in ACTIVE},
    (Phase.RESTARTING, e.JobRequeued): Phase.QUEUED,
    **{(phase, e.JobSuspended): Phase.SUSPENDED for phase in AWAKE},
    (Phase.SUSPENDED, e.JobResumed): Phase.RESTARTING,
    **{(phase, e.JobSucceeded): Phase.SUCCEEDED for phase in ACTIVE},
    **{(phase, e.JobFailed): Phase.FAILED for phase in UNFINISHED},
    **{(phase, e.JobCancelled): Phase.CANCELLED for phase in UNFINISHED},
}

# These happen without a change of phase.
PHASE_KEEPERS: frozenset[type[e.Event]] = frozenset(
    {
        e.RanksStarted,
        e.RanksExited,
        e.RanksLost,
        e.RanksStuck,
        e.RanksGone,
        e.RankRestarting,
        e.RankRelaunched,
        e.RanksRestartedInPlace,
        e.RanksAdded,
        e.RanksReplaced,
        e.GangHeld,
        e.StepPassed,
        e.ProtectionEnded,
        e.AttemptEnded,
        e.CodeResolved,
        e.JobScaled,
        e.JobAmended,
        e.JobDeleteRequested,
        e.JobErrored,
        e.EngineFailed,
        e.JobQuarantined,
    }
)


class Job(Value, frozen=True, kw_only=True):
    id: str
    namespace: str
    name: str
    spec: JobSpec
    phase: Phase
    submitted_at: float
    # The positions at which it was submitted and last put in the queue tell who came first.
    submitted_as: int
    queued_as: int
    queued_at: float
    attempt: Attempt | None = None
    # Every restart, oldest first; `failures` of them spent the budget, and `streak` is how many
    # came one upon the other without a healthy run in between.
    restarts: tuple[Restart, ...] = ()
    failures: int = 0
    streak: int = 0
    retry_at: float | None = None
    # When the job was first placed since it was last suspended: the active deadline counts from it.
    active_at: float | None = None
    # When it was last suspended and last resumed.
    suspended_at: float | None = None
    resumed_at: float | None = None
    running_at: float | None = None
    finished_at: float | None = None
    reason: str = ""
    message: str = ""
    # The rank whose end ended the job.
    failed_rank: int | None = None
    deleting: bool = False
    # Since when ranks are missing that are to be replaced.
    crippled_at: float | None = None
    # Why it waits, as it was last recorded; empty once it is placed.
    held: str = ""
    # The commits of its code that ranks were given, the first one first: later attempts get that.
    commits: tuple[str, ...] = ()
    # GPUs times seconds of the attempts before the last one, where the policy asked for it.
    gpu_s: float = 0.0
    # Where and how it last stopped an engine; the second time in the same way it is quarantined.
    stopped_engine: str = ""
    # Nothing is decided for it by itself any more; it can only be deleted.
    quarantined: bool = False
    # Why it is set aside, and since when; None while it is not.
    obstacle: Obstacle | None = None
    set_aside_at: float | None = None

    @property
    def finished(self) -> bool:
        return self.phase in FINISHED

    @property
    def live_attempt(self) -> Attempt | None:
        """The attempt of which something is left in the cluster, or None."""
        attempt = self.attempt
        return None if attempt is None or attempt.state is AttemptState.OVER else attempt
