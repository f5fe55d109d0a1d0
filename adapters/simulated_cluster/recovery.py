"""Recovery of a simulated cluster: the log, replayed on a machine that is made again.

A machine is a function of its model, of the effects that it was asked for, and of when. The log says
both: effects are what `newly_wanted` reads off the state before and after each step of the engine,
and steps have their times. So a process that starts on a log makes the machine of the cluster's
birth, lets its time pass from step to step, asks for the same effects at the same times, and
arrives at the very machine that the last process had: gangs with the work they have left, how far each
training is and what its checkpoints hold, nodes that are down and until when, pools with what they
rented, and everything that is due, in the order in which it was put on the agenda.

    log      ---- step ---- step ---------- step ------- head
                    |         |               |            |
    effects         v         v               v            v
    machine  birth ====== time passes ================== as it was

What the machine reports on the way is in the log already and goes nowhere. Where it differs from
the log (another release computes another pace), the log is right: ranks that ended according to it
are taken from the machine, scaling decisions are its own, and at the end an attempt that is not
where the log says is started anew from the log. Reports that the log does not have by then are told
when an engine asks again.

A log does not say where a step of the engine ends if the next one is at the same instant. A new step
is taken to begin where an event reports what the machine has not reported yet, since the effects
before it must have come first; and where something came in after a scheduling pass.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import groupby

from adapters.simulated_cluster.cluster import SimulatedCluster
from controlplane import events as e
from controlplane.codec import from_row
from controlplane.effects import Effect, newly_wanted, wanted
from controlplane.job import Job
from controlplane.lines import Waiting
from controlplane.ports import LogReader
from controlplane.queries import gpus_wanted
from controlplane.recalling import is_input
from controlplane.replay import PAGE_ROWS
from controlplane.world import World

_log = logging.getLogger("muster")

# What only a review or a scheduling pass decides, which are the last that a step does.
_PASSED = (
    e.JobUnschedulable,
    e.JobSchedulable,
    e.GangPlaced,
    e.GangHeld,
    e.RanksAdded,
    e.RanksReplaced,
)


async def read_events(log: LogReader, after: int, upto: int) -> list[e.Recorded]:
    """The events with positions after `after` and not above `upto`."""
    events: list[e.Recorded] = []
    while after < upto and (rows := await log.read(after, min(PAGE_ROWS, upto - after))):
        events += map(from_row, rows)
        after = rows[-1][0]
    return events


def catch_up(cluster: SimulatedCluster, world: World, events: Sequence[e.Recorded]) -> None:
    """Brings a fresh cluster, and the `world` as it was when that one began, through `events`.

    The environment's time must not be later than the first of them; no other process may be in it.
    """
    cluster.follow(lambda: gpus_wanted(world))
    cluster.apply(everything_wanted(world))
    for step in _steps(cluster, events):
        is_last = step[-1] is events[-1]
        cluster.apply(_taken_in(cluster, world, step), last=is_last)
        if not is_last:
            # What followed the last step at once is still to come, and is told then.
            pass_until(cluster, step[0].at)
    for job_id in list(world.live):
        with _concerning_only(job_id):
            if not cluster.agrees_with(world.jobs[job_id]):
                cluster.restart_from_log(world.jobs[job_id])
    cluster.take_over()


@contextmanager
def _concerning_only(job: str) -> Iterator[None]:
    """What raises in the block costs this job its recovery, and no other.

    The engine that asks for everything meets the error itself, or finds the job's ranks gone.
    """
    try:
        yield
    except Exception:
        if not job:
            raise
        _log.exception("the past of job %s could not be replayed in full", job)


def everything_wanted(world: World) -> list[Effect]:
    """What an engine asks for when it starts, in its order."""
    jobs = sorted((world.jobs[job_id] for job_id in world.live), key=partial(_placed, world))
    effects: list[Effect] = []
    for job in jobs:
        with _concerning_only(job.id):
            if (effect := wanted(job)) is not None:
                effects.append(effect)
    return effects


def _placed(world: World, job: Job) -> tuple[float, Waiting]:
    assert job.attempt is not None, job.id
    return job.attempt.placed_at, world.place_in_line(job)


def _steps(
    cluster: SimulatedCluster, events: Iterable[e.Recorded]
) -> Iterator[Sequence[e.Recorded]]:
    """The steps of the engine, each when the machine's time has come to it."""
    for at, together in groupby(events, key=lambda recorded: recorded.at):
        pass_until(cluster, at)
        step: list[e.Recorded] = []
        passed = False
        for recorded in together:
            if step and _begins_a_step(cluster, recorded, passed=passed):
                yield step
                step, passed = [], False
            step.append(recorded)
            passed = passed or type(recorded.event) in _PASSED
        yield step


def _begins_a_step(cluster: SimulatedCluster, recorded: e.Recorded, *, passed: bool) -> bool:
    if type(recorded.event) is e.EngineStarted:
        return True
    if passed and is_input(recorded):
        return True
    return not cluster.has_told(recorded.event)


def pass_until(cluster: SimulatedCluster, at: float) -> None:
    """Lets everything happen that is due by a time of the log, and brings the machine's time to it."""
    env, origin = cluster.env, cluster.origin
    # Compared as the log shows it, where adding the origin has rounded it.
    while origin + env.peek() <= at:
        env.step()
    if origin + env.now < at:
        env.run(until=at - origin)


def _taken_in(cluster: SimulatedCluster, world: World, step: Sequence[e.Recorded]) -> list[Effect]:
    """Applies a step, and returns what the engine asked for behind it."""
    before: dict[str, Job | None] = {}
    started = False
    for recorded in step:
        event = recorded.event
        if isinstance(event, e.JobSubmitted):
            before.setdefault(event.job, None)
        elif isinstance(event, e.JobEvent):
            before.setdefault(event.job, world.jobs.get(event.job))
        started = started or type(event) is e.EngineStarted
        with _concerning_only(event.job if isinstance(event, e.JobEvent) else ""):
            cluster.take_in(event)
        world.apply(recorded)
    if started:
        return everything_wanted(world)
    effects: list[Effect] = []
    for job_id, old in before.items():
        job = world.jobs.get(job_id)
        with _concerning_only(job_id):
            effect = None if job is None else newly_wanted(old, job)
            if effect is not None:
                effects.append(effect)
    return effects
