"""Studies beside a bare SimPy program that schedules the same trace first in, first out.

The floor knows no control plane: a line, a counter of free GPUs and one timeout a job. It must find
the same starts. Both take turns, and the least CPU seconds of each count; memory is the peak of a
process of its own. The traces are read from `shared/traces` beside the repository; where they are absent, a synthetic one
of the same shape takes their place, and the name of the row shows it.
"""

import os
import resource
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path
from random import Random
from time import process_time
from typing import Any

import numpy as np
import simpy

from simulator.faults import FaultModel
from studies.simulation.run import Run
from studies.simulation.run import run as run_study
from studies.whatif.clusters import StudyCluster, equal_nodes, pool
from studies.whatif.policies import policy_named
from studies.workloads.formats import read_trace
from studies.workloads.trace import Trace, make_trace

DAY = 86_400.0
TURNS = 3
LAST = 2  # SimPy takes the lowest priority first; its own events have 0 and 1.


def run(quick: bool) -> list[dict[str, Any]]:
    small, large = _trace("bench_b1_lingjun.csv", 2_257), _trace("bench_b2_philly.csv.gz", 111_539)
    part = large.rows(slice(0, min(len(large), 11_000)))
    results = [
        _beside_floor(small, pool(1024), "fifo", target=None),
        _beside_floor(part, pool(2048), "fifo", target=1 / 12),
        _beside_floor(part, pool(2048), "easy", target=1 / 20),
        _faulty_month(30.0 if not quick else 3.0),
    ]
    if not quick:
        whole = _beside_floor(large, pool(2048), "fifo", target=1 / 12)
        results.append(_beside_floor(large, pool(2048), "easy", target=1 / 20))
        results += [whole, _growth(results[1], whole, part, large), _memory()]
    return results


def _beside_floor(
    trace: Trace, cluster: StudyCluster, policy: str, *, target: float | None
) -> dict[str, Any]:
    ours = theirs = float("inf")
    events = 0
    for _ in range(TURNS):
        began = process_time()
        result = run_study(trace, cluster, policy_named(policy), places=False)
        ours = min(ours, process_time() - began)
        began = process_time()
        starts = floor(trace, cluster.gpus)
        theirs = min(theirs, process_time() - began)
        events = result.events
        if policy == "fifo":
            assert result.started.tolist() == starts, "the floor has another schedule"
    return {
        "name": f"{trace.name}, {len(trace):,} jobs on {cluster.gpus:,} GPUs, {policy}",
        "value": round(ours, 2),
        "baseline": round(theirs, 2),
        "ratio": round(theirs / ours, 3),
        "target": None if target is None else round(target, 3),
        "unit": "CPU s",
        "note": f"{ours / theirs:.1f} times a bare SimPy FIFO; {events:,} events",
    }


def floor(trace: Trace, gpus: int) -> list[float]:
    """When each job starts, first in, first out, by as little SimPy as will do."""
    env, line = simpy.Environment(), deque[int]()
    need, length = trace.gpus.tolist(), trace.duration.tolist()
    starts, free, armed = [0.0] * len(trace), gpus, False

    def start_who_fits(_: simpy.Event) -> None:
        nonlocal free, armed
        armed = False
        while line and need[line[0]] <= free:
            job = line.popleft()
            free -= need[job]
            starts[job] = env.now
            _callback(env.timeout(length[job], job), end)

    def end(event: simpy.Event) -> None:
        nonlocal free
        free += need[event.value]
        look()

    def look() -> None:
        nonlocal armed
        if not armed:
            armed = True
            event = env.event()
            event._ok, event._value = True, None
            _callback(event, start_who_fits)
            env.schedule(event, LAST)

    def arrivals() -> Generator[simpy.Event, Any, None]:
        for job, at in enumerate(trace.submit.tolist()):
            if at > env.now:
                yield env.timeout(at - env.now)
            line.append(job)
            look()

    env.process(arrivals())
    env.run()
    return starts


def _callback(event: simpy.Event, call: Callable[[simpy.Event], None]) -> None:
    assert event.callbacks is not None
    event.callbacks.append(call)


def _faulty_month(days: float) -> dict[str, Any]:
    """A thousand nodes with published faults: what one run of a question costs."""
    dice, at, rows = Random(1), 0.0, []
    while at < days * DAY:
        # About four fifths of what the cluster can do.
        at += dice.expovariate(130 / DAY)
        gpus = dice.choice((8, 8, 16, 32, 64, 256))
        rows.append((round(at), gpus, round(min(dice.lognormvariate(10.0, 1.5), 10 * DAY))))
    submit, gpus, length = zip(*rows, strict=True)
    trace = make_trace("synthetic", [str(i) for i in range(len(rows))], submit, gpus, length)
    cluster = equal_nodes(1_000, 8)
    faults = FaultModel(node_mtbf_s=239 * DAY, node_repair_s=0.8 * DAY)
    model = replace(cluster.model, faults=faults, seed=7)
    began = process_time()
    result: Run = run_study(trace, cluster.with_model(model), policy_named("easy"))
    took = process_time() - began
    goal = 5.0 * days / 30
    return {
        "name": f"1,000 nodes x {days:g} days with faults, {len(trace):,} jobs, easy",
        "value": round(took, 2),
        "baseline": round(goal, 2),
        "ratio": round(goal / took, 2),
        "target": 1.0,
        "unit": "CPU s",
        "note": f"baseline is the goal; {int(result.restarts.sum())} restarts",
    }


def _growth(part: dict[str, Any], whole: dict[str, Any], few: Trace, many: Trace) -> dict[str, Any]:
    growth = whole["value"] / part["value"]
    return {
        "name": f"growth from {len(few):,} to {len(many):,} jobs",
        "value": round(growth, 1),
        "baseline": 12.0,
        "ratio": round(12.0 / growth, 2),
        "target": 1.0,
        "unit": "times",
        "note": f"baseline is the goal; in proportion it would be {len(many) / len(few):.1f}",
    }


def _memory() -> dict[str, Any]:
    """The whole large trace in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.studies", "--memory"],
        check=True,
        capture_output=True,
        text=True,
    )
    peak = float(done.stdout.split()[-1])
    return {
        "name": "peak memory of the large trace",
        "value": round(peak),
        "baseline": 300,
        "ratio": round(300 / peak, 2),
        "target": 1.0,
        "unit": "MB",
        "note": "baseline is the goal",
    }


def _trace(name: str, jobs: int) -> Trace:
    configured = os.environ.get("MUSTER_SHARED")
    here = Path(__file__).resolve()
    for folder in (
        [Path(configured)] if configured else [parent / "shared" for parent in here.parents]
    ):
        if (folder / "traces" / name).exists():
            return read_trace(folder / "traces" / name)
    dice = np.random.default_rng(1)
    at_s = np.cumsum(dice.exponential(100.0, jobs)).round()
    gpus = dice.choice([1, 1, 1, 1, 1, 1, 2, 4, 8, 16], jobs)
    length = np.minimum(dice.lognormal(7.0, 2.2, jobs), 5e6).round()
    return make_trace(
        f"synthetic in place of {name}", [str(i) for i in range(jobs)], at_s, gpus, length
    )


if __name__ == "__main__":
    if "--memory" in sys.argv:
        run_study(_trace("bench_b2_philly.csv.gz", 111_539), pool(2048), policy_named("fifo"))
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    else:
        for row in run(quick="--full" not in sys.argv):
            print(row)
