"""The outlook: when every waiting job is likely to start, when jobs are likely to end, and how busy
the cluster will be.

It is made like a forecast of one job (`forecast.py`), with the same assumptions: several runs from
the present state, each with run times drawn anew. Here a run goes on to a horizon, and all jobs are
watched. Runs take long on a large cluster, so a run may be cut off; the outlook then reaches only as
far as every run did.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from adapters.clocks.simpy_clock import SimpyClock, as_process
from controlplane.engine import Engine
from controlplane.lifecycle.job import Job
from controlplane.log.snapshots import take_snapshot
from controlplane.model import events as e
from controlplane.model.phases import FINISHED
from controlplane.model.rows import GENESIS
from controlplane.state.image import StateImage
from controlplane.state.state import State
from simulator.kernel.virtual_time import VirtualTime
from studies.forecast.completion_cluster import CompletionCluster
from studies.forecast.forecast import OPTIONS, owner_with_length, with_length
from studies.forecast.runtime_model import Lengths, lengths_of
from studies.history.levels import Numbers
from studies.history.usage import HELD, UsageIndex
from studies.simulation.null_log import NullLog

RUNS = 10
BINS = 48
# How many events of a run are simulated between two looks at the time that is left.
EVENTS_PER_LOOK = 50
LEVELS = ("used_gpus", "waiting_gpus")


class Range(Struct, frozen=True):
    """A tenth of the runs were below `p10`, half below `p50`, nine tenths below `p90`.

    A value is null if it lies beyond the end of the outlook.
    """

    p10: float | None
    p50: float | None
    p90: float | None


class JobOutlook(Struct, frozen=True, kw_only=True):
    """When a job is likely to start, if it waits, and to end; in UTC seconds."""

    # NAMESPACE/NAME.
    job: str
    id: str
    start: Range | None
    end: Range


class Band(Struct, frozen=True):
    """A level in each bin, as quantiles over the runs."""

    p10: list[float]
    p50: list[float]
    p90: list[float]


class Outlook(Struct, frozen=True, kw_only=True):
    """The near future of the cluster, from `made_at` to `until`, in equal bins.

    It assumes that no job arrives and that no node fails or comes back.
    """

    position: int
    made_at: float
    until: float
    runs: int
    total_gpus: int
    bin_s: float
    used_gpus: Band
    waiting_gpus: Band
    jobs: list[JobOutlook]


class _Future(Struct):
    """What one run showed, up to the time `reached`."""

    starts: dict[str, float]
    ends: dict[str, float]
    usage: UsageIndex
    reached: float


def outlook(
    image: StateImage,
    now: float,
    until: float,
    *,
    runs: int = RUNS,
    is_late: Callable[[], bool] = lambda: False,
) -> Outlook:
    """Return the outlook from `now` to `until`; when `is_late`, a run is cut off and none follows.

    At least one run is begun.
    """
    lengths = lengths_of(image)
    live = [job for job in image.jobs if job.phase not in FINISHED or job.live_attempt]
    futures: list[_Future] = []
    for number in range(runs):
        future = _run(image, live, lengths, number, now, until, is_late)
        if futures and future.reached < futures[0].reached:
            break
        futures.append(future)
        if is_late():
            break
    end = futures[0].reached
    cuts = np.linspace(now, max(end, now + 1e-3), BINS + 1)
    bands = _bands(futures, cuts)
    return Outlook(
        position=image.position,
        made_at=now,
        until=float(cuts[-1]),
        runs=len(futures),
        total_gpus=sum(node.info.gpus for node in image.nodes if not node.removed),
        bin_s=float(cuts[-1] - cuts[0]) / BINS,
        used_gpus=bands["used_gpus"],
        waiting_gpus=bands["waiting_gpus"],
        jobs=[_job_outlook(job, futures, end) for job in live],
    )


def _run(
    image: StateImage,
    live: Sequence[Job],
    lengths: Lengths,
    number: int,
    now: float,
    until: float,
    is_late: Callable[[], bool],
) -> _Future:
    rng = Random(f"outlook/{image.position}/{number}")
    future = replace(
        image,
        policy=replace(image.policy, records_reasons=False),
        receipts=[],
        jobs=[with_length(job, lengths, rng, now) for job in live],
        owners=tuple(owner_with_length(owner, lengths, rng) for owner in image.owners),
    )
    env = VirtualTime()
    nodes = [node for node in image.nodes if not node.removed]
    cluster = CompletionCluster(
        env,
        up=[node.info for node in nodes if node.ready],
        down=[node.info for node in nodes if not node.ready],
        origin=now,
        start_s=lengths.start_s,
    )
    seen = _Future({}, {}, UsageIndex(), now)
    first = State(future)
    seen.usage.observe(now, first, first.jobs, first.nodes)

    def watch(batch: Sequence[e.Recorded]) -> None:
        _watch(seen, batch, engine)

    log = NullLog(snapshot=take_snapshot(State(future), GENESIS))
    engine = Engine(SimpyClock(env, origin=now), log, cluster, OPTIONS, watch)
    as_process(env, engine.run())
    steps = 0
    while env.peek() <= until - now:
        env.step()
        steps += 1
        if steps % EVENTS_PER_LOOK == 0 and is_late():
            seen.reached = now + env.now
            return seen
    seen.reached = until
    return seen


def _watch(seen: _Future, batch: Sequence[e.Recorded], engine: Engine) -> None:
    jobs: dict[str, None] = {}
    for recorded in batch:
        event = recorded.event
        if not isinstance(event, e.JobEvent):
            continue
        jobs[event.job] = None
        if isinstance(event, e.GangPlaced):
            seen.starts.setdefault(event.job, recorded.at)
        elif isinstance(event, e.JobSucceeded | e.JobFailed):
            seen.ends.setdefault(event.job, recorded.at)
    if jobs:
        seen.usage.observe(batch[-1].at, engine.world, jobs, ())


def _bands(futures: Sequence[_Future], cuts: Numbers) -> dict[str, Band]:
    by_level: dict[str, list[Any]] = {name: [] for name in LEVELS}
    for future in futures:
        means = future.usage.levels.means(cuts)
        by_level["used_gpus"].append(sum(means[part] for part in HELD))
        by_level["waiting_gpus"].append(means["waiting_gpus"])
    return {
        name: Band(*np.round(np.quantile(np.array(runs), (0.1, 0.5, 0.9), axis=0), 2).tolist())
        for name, runs in by_level.items()
    }


def _job_outlook(job: Job, futures: Sequence[_Future], end: float) -> JobOutlook:
    waits = job.live_attempt is None
    starts = [future.starts.get(job.id) for future in futures]
    return JobOutlook(
        job=f"{job.namespace}/{job.name}",
        id=job.id,
        start=_range(starts, end) if waits else None,
        end=_range([future.ends.get(job.id) for future in futures], end),
    )


def _range(values: Sequence[float | None], end: float) -> Range:
    ordered = sorted(float("inf") if value is None else value for value in values)

    def quantile(part: float) -> float | None:
        value = ordered[min(len(ordered) - 1, int(part * len(ordered)))]
        return round(value, 3) if value <= end else None

    return Range(quantile(0.1), quantile(0.5), quantile(0.9))
