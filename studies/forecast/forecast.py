"""Forecasts of when a job starts and ends, by simulation from the live state.

A copy of the state goes to another engine, with the same policy, queues and jobs, on a cluster with
the present nodes, and virtual time advances until the job starts. How long jobs run is not known,
so each of several runs draws it again: from the estimates of their owners, from the run times of
similar jobs, and from how long they have run already. What a simulated cluster knows about its jobs
is not used.

Assumptions: no job arrives, no job is cancelled, and no node fails or comes back.
"""

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from math import inf
from random import Random

from msgspec.structs import replace

from adapters.clocks.simpy_clock import SimpyClock, as_process
from adapters.simulated_cluster.workload import Workload, with_workload
from controlplane.disciplines.discipline import OnBlocked
from controlplane.disciplines.registry import DISCIPLINES
from controlplane.engine import Engine, EngineOptions
from controlplane.kinds.manifest.checking import SECONDS_MAX
from controlplane.lifecycle.job import Job, begin
from controlplane.lifecycle.owner import Owner
from controlplane.log.snapshots import take_snapshot
from controlplane.model import events as e
from controlplane.model.phases import FINISHED, Phase
from controlplane.model.rows import GENESIS
from controlplane.state.image import StateImage
from controlplane.state.state import State
from controlplane.workflows.owners import member_of
from simulator.kernel.virtual_time import VirtualTime
from studies.forecast.completion_cluster import CompletionCluster
from studies.forecast.runtime_model import Lengths, lengths_of
from studies.forecast.views import HORIZON_S, Forecast
from studies.simulation.null_log import NullLog

RUNS = 20
# The longest start timeout of a job; it is longer than the horizon.
NEVER_S = float(SECONDS_MAX)
OPTIONS = EngineOptions(resync_s=None, snapshot_every=None)


@dataclass(frozen=True, slots=True)
class Question:
    """The state to simulate from, the id of the job to forecast, and the time in UTC seconds."""

    image: StateImage
    job: str
    now: float


def worth_asking(job: Job) -> bool:
    """Whether the job can start or end without a change by a user or of the cluster."""
    return job.phase not in (*FINISHED, Phase.SUSPENDED, Phase.UNSCHEDULABLE)


def forecast(
    question: Question, *, runs: int = RUNS, enough: Callable[[int], bool] = lambda done: False
) -> Forecast:
    """Return the forecast for `question.job` from up to `runs` runs.

    `enough` is called with the number of runs done after each; if it returns true, no further run
    is made.
    """
    image = question.image
    job = next(each for each in image.jobs if each.id == question.job)
    lengths = lengths_of(image)
    awaited = {
        (dependency.target, dependency.index)
        for awaits in (*(j.awaits for j in image.jobs), *(o.awaits for o in image.owners))
        for dependency in awaits
    }
    live = [
        each
        for each in image.jobs
        if each.phase not in FINISHED or each.live_attempt or _is_awaited(each, awaited)
    ]
    live = [each for each in live if not _never_matters(each, job, image)]
    # No caller reads why jobs waited in a simulated future.
    policy = replace(image.policy, records_reasons=False)
    # Finished jobs are left out of the runs, but their run times are kept.
    groups = sorted(lengths.learned.groups.items())
    kept = tuple((key, tuple((*sample,) for sample in group)) for key, group in groups)
    quiet = replace(image, policy=policy, receipts=[], lengths=kept)
    starts: list[float] = []
    ends: list[float] = []
    for number in range(runs):
        rng = Random(f"{question.job}/{image.position}/{number}")
        drawn = [with_length(each, lengths, rng, question.now) for each in live]
        owners = tuple(owner_with_length(each, lengths, rng) for each in image.owners)
        future = replace(quiet, jobs=drawn, owners=owners)
        start = _run(future, job, lengths.start_s, question.now)
        length = lengths.draw(job, rng, ran_s=_ran_s(job, question.now))
        starts.append(start)
        ends.append(_end(job, start, length, lengths.start_s))
        if enough(number + 1):
            break
    return Forecast(
        start_p50=_quantile(starts, 0.5, question.now),
        start_p90=_quantile(starts, 0.9, question.now),
        finish_p50=_quantile(ends, 0.5, question.now),
        finish_p90=_quantile(ends, 0.9, question.now),
        made_at=question.now,
        runs=len(starts),
        basis=lengths.basis(job),
    )


def _never_matters(other: Job, job: Job, image: StateImage) -> bool:
    """Whether `other` is behind `job` in a queue that a blocked head stops, so that it cannot delay `job`."""
    if other.phase is not Phase.QUEUED or job.phase is not Phase.QUEUED or other is job:
        return False
    # A job with dependencies joins its queue only when they are met.
    if job.awaits:
        return False
    queue = next((q for q in image.queues if q.name == job.spec.queue), None)
    own = None if queue is None else queue.discipline
    discipline = DISCIPLINES[own or image.policy.discipline]
    # An order by estimates may change as jobs end.
    if discipline.on_blocked is not OnBlocked.STOP or discipline.orders_by_estimate:
        return False
    if other.spec.queue != job.spec.queue or image.policy.ageing_per_hour:
        return False

    def place(waiting: Job) -> tuple[int, float, int]:
        return -waiting.spec.priority, discipline.key(waiting, 0.0), waiting.queue_position

    return place(other) > place(job)


def with_length(job: Job, lengths: Lengths, rng: Random, now: float) -> Job:
    """Return the job with a drawn length, given how long it has run at the time `now`."""
    length = lengths.draw(job, rng, ran_s=_ran_s(job, now))
    # The brief cluster does not report starts, so no start timeout may expire.
    spec = replace(with_workload(job.spec, Workload(duration_s=length)), start_timeout_s=NEVER_S)
    return replace(job, spec=spec)


def _is_awaited(job: Job, awaited: Container[tuple[str, int | None]]) -> bool:
    """Whether a dependency of another job or array names this job."""
    member = job.owner
    return (job.id, None) in awaited or (
        member is not None and (member.id, member.index) in awaited
    )


def owner_with_length(owner: Owner, lengths: Lengths, rng: Random) -> Owner:
    """Return an array whose members in this run all have the same drawn length."""
    if owner.finished:
        return owner
    first = member_of(owner, owner.spec.indices[0])
    member = begin(e.Recorded(owner.submitted_position, owner.submitted_at, first))
    spec = with_length(member, lengths, rng, owner.submitted_at).spec
    return replace(owner, spec=replace(owner.spec, job=spec))


def _ran_s(job: Job, now: float) -> float:
    attempt = job.live_attempt
    if attempt is None or attempt.running_at is None:
        return 0.0
    return max(0.0, now - attempt.running_at)


def _end(job: Job, start: float, length: float, start_s: float) -> float:
    attempt = job.live_attempt
    if attempt is not None and attempt.running_at is not None:
        return attempt.running_at + length
    return start + start_s + length


def _run(image: StateImage, job: Job, start_s: float, now: float) -> float:
    """Return when the job starts in one run, in UTC seconds; `inf` if it is beyond the horizon.

    A job that runs already has started: its placement time is returned.
    """
    if job.live_attempt is not None:
        return job.live_attempt.placed_at
    env = VirtualTime()
    log = NullLog(snapshot=take_snapshot(State(image), GENESIS))
    nodes = [node for node in image.nodes if not node.removed]
    cluster = CompletionCluster(
        env,
        up=[node.info for node in nodes if node.ready],
        down=[node.info for node in nodes if not node.ready],
        origin=now,
        start_s=start_s,
    )
    starts: list[float] = []

    def watch(batch: Sequence[object]) -> None:
        attempt = engine.world.jobs[job.id].live_attempt
        if attempt is not None:
            starts.append(attempt.placed_at)

    engine = Engine(SimpyClock(env, origin=now), log, cluster, OPTIONS, watch)
    as_process(env, engine.run())
    while not starts and env.peek() <= HORIZON_S:
        env.step()
    return starts[0] if starts else inf


def _quantile(values: Sequence[float], part: float, now: float) -> float | None:
    """Return the quantile `part` of the values, or None if it lies beyond the horizon."""
    ordered = sorted(values)
    value = ordered[min(len(ordered) - 1, int(part * len(ordered)))]
    return None if value > now + HORIZON_S else round(value, 3)
