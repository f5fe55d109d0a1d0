"""A preview of a change: what would happen right away, while nothing else changes.

A copy of the state goes to two engines in virtual time, one of which gets the command; both run for
a few minutes on a cluster on which no gang ends. What differs between them is what the command does:
which jobs start, stop, move or wait. The log is not touched.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from adapters.clocks.simpy_clock import SimpyClock, as_process
from adapters.simulated_cluster.workload import Workload, with_workload
from controlplane.decisions.step import Answer
from controlplane.engine import Engine
from controlplane.event_messages import describe, gpus
from controlplane.lifecycle.job import Job
from controlplane.log.snapshots import take_snapshot
from controlplane.messages import job_text, obstacle_text
from controlplane.model import events as e
from controlplane.model.commands import Request, SubmitJob
from controlplane.model.errors import Rejected
from controlplane.model.phases import FINISHED, Phase
from controlplane.model.rows import GENESIS
from controlplane.model.spec import JobSpec
from controlplane.state.image import StateImage
from controlplane.state.state import State
from controlplane.state.world import World
from simulator.kernel.virtual_time import VirtualTime
from studies.forecast.completion_cluster import CompletionCluster
from studies.forecast.forecast import NEVER_S, OPTIONS
from studies.forecast.views import Preview, PreviewedJob
from studies.simulation.null_log import NullLog

# Seconds of the cluster's time: longer than a back-off after a stop, shorter than most other timers.
HORIZON_S = 300.0
JOBS_MAX = 100


class _Outcome(NamedTuple):
    world: World
    events: list[e.Recorded]


def preview(image: StateImage, now: float, command: Request) -> Preview:
    """Return what `command` would do at the time `now`. Raises Rejected as the command would be."""
    changed = _run(image, now, command)
    without = _run(image, now, None)
    ids = {**changed.world.jobs, **without.world.jobs}
    kinds: dict[str, list[PreviewedJob]] = {"starts": [], "stops": [], "moves": [], "ends": []}
    for job_id in ids:
        before, after = without.world.jobs.get(job_id), changed.world.jobs.get(job_id)
        difference = _difference(before, after)
        if difference:
            shown = after or before
            assert shown is not None
            kinds[difference].append(_previewed(shown, after, changed.events))
    first = {name: jobs[:JOBS_MAX] for name, jobs in kinds.items()}
    return Preview(position=image.position, summary=list(_summary(kinds)), **first)


def _run(image: StateImage, now: float, command: Request | None) -> _Outcome:
    live = [job for job in image.jobs if job.phase not in FINISHED or job.live_attempt]
    quiet = replace(
        image,
        receipts=[],
        jobs=[replace(job, spec=_endless(job.spec)) for job in live],
    )
    env = VirtualTime()
    nodes = [node for node in image.nodes if not node.removed]
    cluster = CompletionCluster(
        env,
        up=[node.info for node in nodes if node.ready],
        down=[node.info for node in nodes if not node.ready],
        origin=now,
        start_s=0.0,
    )
    log = NullLog(snapshot=take_snapshot(State(quiet), GENESIS))
    events: list[e.Recorded] = []
    engine = Engine(SimpyClock(env, origin=now), log, cluster, OPTIONS, events.extend)
    as_process(env, engine.run())
    answers: list[Answer] = []
    if command is not None:
        env.run(until=0.5)
        if isinstance(command, SubmitJob):
            command = replace(command, spec=_endless(command.spec))
        engine.submit(command, answers.append)
    env.run(until=HORIZON_S)
    for answer in answers:
        if isinstance(answer, Rejected):
            raise answer
    return _Outcome(engine.world, events)


def _endless(spec: JobSpec) -> JobSpec:
    return replace(with_workload(spec, Workload(duration_s=NEVER_S)), start_timeout_s=NEVER_S)


def _difference(before: Job | None, after: Job | None) -> str:
    """Return in which list of the preview a job belongs; empty if the change does not affect it."""
    held = before is not None and before.live_attempt is not None
    holds = after is not None and after.live_attempt is not None
    is_over = after is None or after.finished
    if is_over:
        return "ends" if before is not None and not before.finished else ""
    if holds and not held:
        return "starts"
    if held and not holds:
        return "stops"
    if held and holds and _place(before) != _place(after):
        return "moves"
    return ""


def _place(job: Job | None) -> tuple[object, ...]:
    attempt = None if job is None else job.live_attempt
    return () if attempt is None else attempt.placement


def _previewed(job: Job, after: Job | None, events: Sequence[e.Recorded]) -> PreviewedJob:
    attempt = None if after is None else after.live_attempt
    nodes = [] if attempt is None else sorted({slot.node for slot in attempt.placement})
    return PreviewedJob(
        job=f"{job.namespace}/{job.name}",
        message=_message(job, after, events),
        gpus=job.spec.gpu_milli / 1_000,
        nodes=nodes,
    )


# Events that say what becomes of a job.
_SHOWN = (e.GangPlaced, e.JobRestarting, e.GangWaiting, e.JobCancelled, e.JobSuspended, e.RanksLost)


def _message(job: Job, after: Job | None, events: Sequence[e.Recorded]) -> str:
    """Return the last event about the job that says what becomes of it, as a sentence."""
    for recorded in reversed(events):
        event = recorded.event
        if isinstance(event, _SHOWN) and event.job == job.id:
            return describe(event)
    if after is not None and after.phase is Phase.UNSCHEDULABLE and after.obstacle is not None:
        return obstacle_text(after.obstacle)
    return job_text(after or job)


def _summary(kinds: dict[str, list[PreviewedJob]]) -> Iterator[str]:
    verbs = {
        "starts": "would start",
        "stops": "would stop and wait",
        "moves": "would start again on other devices",
        "ends": "would end",
    }
    if not any(kinds.values()):
        yield "Nothing would start or stop because of it."
        return
    for kind, jobs in kinds.items():
        if jobs:
            number = "1 job" if len(jobs) == 1 else f"{len(jobs)} jobs"
            total = sum(job.gpus for job in jobs)
            names = ", ".join(job.job for job in jobs[:3])
            more = f" and {len(jobs) - 3} more" if len(jobs) > 3 else ""
            yield f"{number} with {gpus(total)} {verbs[kind]}: {names}{more}."
