"""Recovery of a simulated cluster: replay the log on a new machine.

The state of a machine is a function of its model, of the effects requested from it, and of their
times. The log has both: `newly_wanted` derives the effects from the state before and after each step
of the engine, and each step has a time. A new process therefore creates the machine as it was at the
cluster's birth, advances its time from step to step and requests the same effects at the same times.
It ends with exactly the machine of the last process: gangs with their remaining work, the progress
and checkpoints of each training, nodes that are down and until when, rented nodes of pools, and all
scheduled events in their order.

    log      ---- step ---- step ---------- step ------- head
                    |         |               |            |
    effects         v         v               v            v
    machine  birth ====== time passes ================== as it was

Reports of the replayed machine are in the log already and are dropped. Where the machine differs
from the log (another release computes another pace), the log is right: ranks that ended in the log
are removed from the machine, scaling decisions are those of the log, and at the end an attempt that
does not agree with the log is started again from its state in the log. Reports that the log lacks
are repeated when an engine asks again.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import groupby

from adapters.simulated_cluster.cluster import SimulatedCluster
from controlplane.lifecycle.effects import Effect, newly_wanted, wanted
from controlplane.lifecycle.job import Job
from controlplane.log.codec import from_row
from controlplane.log.replay import PAGE_ROWS
from controlplane.model import events as e
from controlplane.ports import LogReader
from controlplane.queries.queries import gpus_wanted
from controlplane.state.queue_order import QueueKey
from controlplane.state.world import World

_log = logging.getLogger("muster")


async def read_events(log: LogReader, after: int, upto: int) -> list[e.Recorded]:
    """Return the events with positions above `after` and at most `upto`."""
    events: list[e.Recorded] = []
    while after < upto and (rows := await log.read(after, min(PAGE_ROWS, upto - after))):
        events += map(from_row, rows)
        after = rows[-1].position
    return events


def catch_up(cluster: SimulatedCluster, world: World, events: Sequence[e.Recorded]) -> None:
    """Replay `events` on a new cluster, and on the `world` as it was when the cluster began.

    The environment's time must not be later than the first event, and it must have no other process.
    """
    cluster.start_replay(lambda: gpus_wanted(world))
    cluster.apply(everything_wanted(world))
    for step in _steps(cluster, events):
        cluster.apply(_apply_step(cluster, world, step), last=step[-1] is events[-1])
    for job_id in list(world.devices.live):
        with _isolated(job_id):
            if not cluster.agrees_with(world.jobs[job_id]):
                cluster.restart_from_log(world.jobs[job_id])
    cluster.end_replay()


@contextmanager
def _isolated(job: str) -> Iterator[None]:
    """Log what the block raises, so that it affects the recovery of this job alone.

    The engine that asks for all effects meets the error itself, or learns that the ranks are gone.
    """
    try:
        yield
    except Exception:
        if not job:
            raise
        _log.exception("the past of job %s could not be replayed in full", job)


def everything_wanted(world: World) -> list[Effect]:
    """Return all effects that an engine requests when it starts, in its order."""
    jobs = sorted(
        (world.jobs[job_id] for job_id in world.devices.live), key=partial(_placed, world)
    )
    effects: list[Effect] = []
    for job in jobs:
        with _isolated(job.id):
            if (effect := wanted(job)) is not None:
                effects.append(effect)
    return effects


def _placed(world: World, job: Job) -> tuple[float, QueueKey]:
    assert job.attempt is not None, job.id
    return job.attempt.placed_at, world.waiting.key_of(job)


def _steps(
    cluster: SimulatedCluster, events: Iterable[e.Recorded]
) -> Iterator[Sequence[e.Recorded]]:
    """Yield the steps of the engine, each after advancing the machine to its time.

    A step comes after everything that is due in the machine at its instant, since an engine decides
    last. A start comes before that, since a process begins first. What the last step causes at the
    same instant is left for the engine that takes over.
    """
    for _, group in groupby(events, key=lambda recorded: recorded.step):
        step = list(group)
        is_start = type(step[0].event) is e.EngineStarted
        pass_until(cluster, step[0].at, inclusive=not is_start)
        yield step


def pass_until(cluster: SimulatedCluster, at: float, *, inclusive: bool = True) -> None:
    """Advance the machine to a time of the log, and process everything that is due before it.

    Unless `inclusive` is false, also process everything that is due at `at`.
    """
    env, origin = cluster.env, cluster.origin
    # Compared as a time of the log, where adding the origin has rounded it.
    while (due := origin + env.peek()) < at or (inclusive and due == at):
        env.step()
    if origin + env.now < at:
        env.run(until=at - origin)


def _apply_step(
    cluster: SimulatedCluster, world: World, step: Sequence[e.Recorded]
) -> list[Effect]:
    """Apply a step to the world, and return the effects that the engine requested after it."""
    before: dict[str, Job | None] = {}
    started = False
    for recorded in step:
        event = recorded.event
        if isinstance(event, e.JobSubmitted):
            before.setdefault(event.job, None)
        elif isinstance(event, e.JobEvent):
            before.setdefault(event.job, world.jobs.get(event.job))
        started = started or type(event) is e.EngineStarted
        with _isolated(event.job if isinstance(event, e.JobEvent) else ""):
            cluster.apply_event(event)
        if isinstance(event, e.FaultInjected):
            cluster.inject(recorded)
        world.apply(recorded)
    if started:
        return everything_wanted(world)
    effects: list[Effect] = []
    for job_id, old in before.items():
        job = world.jobs.get(job_id)
        with _isolated(job_id):
            effect = None if job is None else newly_wanted(old, job)
            if effect is not None:
                effects.append(effect)
    return effects
