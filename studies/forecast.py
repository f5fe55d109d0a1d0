"""When a job will start and end, by running the live state forward.

A copy of the world is given to another engine, with the same policy, queues and jobs, on a cluster
with the nodes of now, and time runs until the job starts. How long jobs run is not known, so it
is drawn anew for each of several runs: from what their owner said, from what jobs like them took,
and from how long they have been running already. What a simulated cluster knows about its jobs is
not looked at.

Nobody else comes meanwhile, no node fails or comes back, and nobody cancels anything.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from random import Random

from msgspec.structs import replace

from adapters.simpy_clock import SimpyClock, as_process
from controlplane.codec import GENESIS
from controlplane.engine import Engine, EngineOptions
from controlplane.image import Image
from controlplane.job import FINISHED, Job, Phase
from controlplane.model import Workload
from controlplane.replay import take_snapshot
from controlplane.sharing import Discipline
from controlplane.state import State
from simulator.virtual_time import VirtualTime
from studies.brief_cluster import BriefCluster
from studies.forecast_answers import HORIZON_S, Forecast
from studies.forgetful_log import ForgetfulLog
from studies.run_lengths import Lengths, lengths_of

RUNS = 20
NEVER_S = 1e12
OPTIONS = EngineOptions(resync_s=None, snapshot_every=None)


@dataclass(frozen=True, slots=True)
class Question:
    """The state that is run forward, and the job that is asked about."""

    image: Image
    job: str
    now: float


def worth_asking(job: Job) -> bool:
    """Whether the job is yet to start or to end as things are."""
    return job.phase not in (*FINISHED, Phase.SUSPENDED, Phase.UNSCHEDULABLE)


def forecast(
    question: Question, *, runs: int = RUNS, enough: Callable[[int], bool] = lambda done: False
) -> Forecast:
    """`enough` is asked after each run whether there is time for more."""
    image = question.image
    job = next(each for each in image.jobs if each.id == question.job)
    lengths = lengths_of(image)
    live = [each for each in image.jobs if each.phase not in FINISHED or each.live_attempt]
    live = [each for each in live if not _never_matters(each, job, image)]
    # Nobody will read why jobs of a future that may never be had to wait.
    policy = replace(image.policy, records_reasons=False)
    # Ended jobs are left out of these futures; what they taught is not.
    groups = sorted(lengths.learned.groups.items())
    kept = tuple((key, tuple((*sample,) for sample in group)) for key, group in groups)
    quiet = replace(image, policy=policy, receipts=[], lengths=kept)
    starts: list[float] = []
    ends: list[float] = []
    for number in range(runs):
        dice = Random(f"{question.job}/{image.position}/{number}")
        drawn = [_with_length(each, lengths, dice, question.now) for each in live]
        start = _run(replace(quiet, jobs=drawn), job, lengths.start_s, question.now)
        length = lengths.draw(job, dice, ran_s=_ran_s(job, question.now))
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
        basis=lengths.told(job),
    )


def _never_matters(other: Job, job: Job, image: Image) -> bool:
    """Whether it stands behind the job in a line that nobody passes in."""
    if other.phase is not Phase.QUEUED or job.phase is not Phase.QUEUED or other is job:
        return False
    queue = next((q for q in image.queues if q.name == job.spec.queue), None)
    own = None if queue is None else queue.discipline
    if (own or image.policy.discipline) is not Discipline.STRICT_FIFO:
        return False
    if other.spec.queue != job.spec.queue or image.policy.ageing_per_hour:
        return False
    return (-other.spec.priority, other.queued_as) > (-job.spec.priority, job.queued_as)


def _with_length(job: Job, lengths: Lengths, dice: Random, now: float) -> Job:
    length = lengths.draw(job, dice, ran_s=_ran_s(job, now))
    # That it has started is not told in this future, so nobody is to wait for it.
    spec = replace(job.spec, workload=Workload(duration_s=length), start_timeout_s=NEVER_S)
    return replace(job, spec=spec)


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


def _run(image: Image, job: Job, start_s: float, now: float) -> float:
    """When the job starts in one of the futures; a job that runs already has started."""
    if job.live_attempt is not None:
        return job.live_attempt.placed_at
    env = VirtualTime()
    log = ForgetfulLog(snapshot=take_snapshot(State(image), GENESIS))
    nodes = [node for node in image.nodes if not node.removed]
    cluster = BriefCluster(
        env,
        up=[node.info for node in nodes if node.ready],
        down=[node.info for node in nodes if not node.ready],
        origin=now,
        start_s=start_s,
    )
    found: list[float] = []

    def watch(batch: Sequence[object]) -> None:
        attempt = engine.world.jobs[job.id].live_attempt
        if attempt is not None:
            found.append(attempt.placed_at)

    engine = Engine(SimpyClock(env, origin=now), log, cluster, OPTIONS, watch)
    as_process(env, engine.run())
    while not found and env.peek() <= HORIZON_S:
        env.step()
    return found[0] if found else inf


def _quantile(values: Sequence[float], part: float, now: float) -> float | None:
    """The value below which this part of the runs lies; it may be beyond the horizon."""
    ordered = sorted(values)
    value = ordered[min(len(ordered) - 1, int(part * len(ordered)))]
    return None if value > now + HORIZON_S else round(value, 3)
