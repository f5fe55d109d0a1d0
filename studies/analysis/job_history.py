"""The history of each job between two instants, read from events: waits, attempts, GPU time.

An attempt holds its GPUs from its placement until all of its ranks are gone. All GPU time of an
attempt that did not succeed counts as lost: the log does not record whether a checkpoint saved a
part of it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from controlplane.lifecycle.attempt import gpus_given
from controlplane.lifecycle.job import Job
from controlplane.model import events as e
from controlplane.model.failures import Cause, Restart
from controlplane.model.phases import AttemptState, Phase
from controlplane.model.spec import JobSpec
from controlplane.state.world import World


@dataclass(frozen=True, slots=True)
class Loss:
    """An attempt that did not succeed: its cause and node, and the GPU-seconds that it held."""

    at: float
    cause: str
    node: str
    exit_code: int | None
    gpu_s: float


@dataclass(slots=True)
class JobFacts:
    """The history of one job. Times are UTC seconds, None for what has not happened."""

    id: str
    name: str
    spec: JobSpec
    submitted_at: float
    actor: str = ""
    started_at: float | None = None
    finished_at: float | None = None
    outcome: str = ""
    restarts: list[Restart] = field(default_factory=list)
    exit_code: int | None = None
    gpu_s: float = 0.0
    lost_gpu_s: float = 0.0
    losses: list[Loss] = field(default_factory=list)
    # The current attempt: when it was placed and started, the node of each rank, its GPUs, and if
    # it failed the cause, the node and the exit code.
    placed_at: float | None = None
    running_at: float | None = None
    nodes: tuple[str, ...] = ()
    gpus: float = 0
    vain: tuple[str, str, int | None] | None = None
    # How many seconds the last attempt ran, once the job has succeeded.
    run_s: float | None = None
    # The id of the array that the job belongs to; empty for a single job.
    array: str = ""

    @property
    def wait_s(self) -> float | None:
        """Seconds from submission to the first start; None if the job has not started."""
        return None if self.started_at is None else self.started_at - self.submitted_at

    @property
    def preemptions(self) -> int:
        return sum(restart.cause is Cause.PREEMPTION for restart in self.restarts)


class JobHistories:
    """Follow a history from a world on; `close` adds what is still held at the end."""

    def __init__(self, world: World | None = None, since: float = 0.0) -> None:
        self.jobs: dict[str, JobFacts] = {}
        for job in world.jobs.values() if world is not None else ():
            self.jobs[job.id] = _facts_of(job, since)

    def hear_all(self, events: Iterable[e.Recorded]) -> "JobHistories":
        """Process events in order; return this object."""
        for recorded in events:
            self.hear(recorded)
        return self

    def hear(self, recorded: e.Recorded) -> None:
        """Process the next event."""
        event, at = recorded.event, recorded.at
        if isinstance(event, e.JobSubmitted):
            name = f"{event.namespace}/{event.name}"
            facts = JobFacts(event.job, name, event.spec, at, recorded.actor)
            facts.array = "" if event.owner is None else event.owner.id
            self.jobs[event.job] = facts
        elif isinstance(event, e.JobEvent) and event.job in self.jobs:
            _happened(self.jobs[event.job], event, at)

    def close(self, at: float) -> "JobHistories":
        """Add what unfinished attempts have held until `at`."""
        for facts in self.jobs.values():
            if facts.placed_at is not None:
                facts.gpu_s += facts.gpus * (at - facts.placed_at)
                facts.placed_at = at
        return self

    def forget(self, before: float) -> None:
        """Discard what was held before the instant `before`, and count from there."""
        for facts in self.jobs.values():
            facts.gpu_s = facts.lost_gpu_s = 0.0
            if facts.placed_at is not None:
                facts.placed_at = max(before, facts.placed_at)

    @property
    def gpu_s(self) -> float:
        return sum(facts.gpu_s for facts in self.jobs.values())

    @property
    def lost_gpu_s(self) -> float:
        return sum(facts.lost_gpu_s for facts in self.jobs.values())


def _facts_of(job: Job, since: float) -> JobFacts:
    """Return a job as it was when the history begins; what it held before is not counted."""
    facts = JobFacts(job.id, f"{job.namespace}/{job.name}", job.spec, job.submitted_at)
    facts.array = "" if job.owner is None else job.owner.id
    facts.started_at = job.running_at
    facts.finished_at = job.finished_at
    facts.outcome = job.phase.value if job.finished else ""
    attempt = job.live_attempt
    if attempt is not None:
        facts.placed_at = max(since, attempt.placed_at)
        facts.running_at = attempt.running_at
        facts.nodes = tuple(slot.node for slot in attempt.placement)
        facts.gpus = attempt.gpus
        if attempt.state is AttemptState.STOPPING and job.phase is not Phase.SUCCEEDED:
            facts.vain = (job.reason or job.phase.value.lower(), "", None)
    return facts


def _happened(facts: JobFacts, event: e.JobEvent, at: float) -> None:
    match event:
        case e.GangPlaced(placement=placement, shares=shares):
            facts.placed_at, facts.running_at, facts.vain = at, None, None
            facts.nodes = tuple(slot.node for slot in placement)
            facts.gpus = gpus_given(placement, shares)
        case e.GangStarted():
            facts.running_at = at
            facts.started_at = at if facts.started_at is None else facts.started_at
        case e.JobRestarting(restart=restart):
            facts.restarts.append(restart)
            facts.vain = (restart.cause.value, restart.node, restart.exit_code)
        case e.RankRestarting(restart=restart):
            facts.restarts.append(restart)
        case e.RanksRestartedInPlace(restarts=restarts):
            facts.restarts += restarts
        case e.AttemptEnded():
            _attempt_over(facts, at)
        case e.JobSucceeded() | e.JobFailed() | e.JobCancelled():
            _finished(facts, event, at)
        case e.JobSuspended():
            facts.vain = facts.vain or ("suspended", "", None)
        case _:
            pass


def _finished(facts: JobFacts, event: e.JobEvent, at: float) -> None:
    facts.finished_at = at
    facts.outcome = type(event).__name__.removeprefix("Job")
    if isinstance(event, e.JobFailed):
        facts.exit_code = event.exit_code
        rank = event.rank
        node = "" if rank is None or rank >= len(facts.nodes) else facts.nodes[rank]
        cause = event.reason if event.exit_code is None else "exit"
        facts.vain = facts.vain or (cause, node, event.exit_code)
    elif isinstance(event, e.JobCancelled):
        facts.vain = facts.vain or ("cancelled", "", None)
    elif facts.running_at is not None:
        facts.run_s = at - facts.running_at


def _attempt_over(facts: JobFacts, at: float) -> None:
    if facts.placed_at is not None:
        held = facts.gpus * (at - facts.placed_at)
        facts.gpu_s += held
        if facts.vain is not None:
            facts.lost_gpu_s += held
            facts.losses.append(Loss(at, *facts.vain, held))
    facts.placed_at = facts.running_at = facts.vain = None
