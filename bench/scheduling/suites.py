"""Every row of the scheduling table: what others published, and what the engine does here.

Ours: one process, in memory, virtual time, CPU seconds of this machine. Theirs: whole clusters that
write every decision to a Kubernetes API server, wall-clock seconds of other machines. So the ratio shows
how far the decisions are from being the bottleneck, and not how much faster a cluster would be; the
Kubernetes adapter is measured separately.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.scheduling import kai, kueue, others
from bench.scheduling.worlds import Ran, peak_mib

ROOT = Path(__file__).parents[2]


def facts() -> dict[str, Any] | None:
    shared = Path(os.environ.get("MUSTER_SHARED", ROOT.parent / "shared"))
    path = shared / "conformance" / "scheduling_benchmarks.json"
    if not path.exists():
        return None
    published: dict[str, Any] = json.loads(path.read_text())
    return published


def run(quick: bool) -> list[dict[str, Any]]:
    published = facts()
    if published is None:
        print("  skipped: there is no shared/conformance/scheduling_benchmarks.json beside us")
        return []
    lines = [*_kueue(published, quick), *_kai(), *_others(published, quick)]
    load = f"load {os.getloadavg()[0]:.1f}"
    return [{**line, "note": f"{line['note']}; {load}"} for line in lines]


def line(
    name: str,
    value: float,
    unit: str,
    theirs: float,
    aim: float,
    note: str = "",
    *,
    more: bool = False,
    target: float | None = 1.0,
) -> dict[str, Any]:
    """`aim` is the goal for `value`; `more` means that more is better. Ratio 1 or above: reached.

    Rows without a `target` are there for comparison.
    """
    ratio = value / aim if more else aim / max(value, 1e-9)
    return {
        "name": name,
        "value": round(value, 3),
        "baseline": theirs,
        "ratio": round(ratio, 2),
        "target": target,
        "unit": unit,
        "note": f"aim {aim:g}; {note}" if note else f"aim {aim:g}",
    }


def _kueue(published: dict[str, Any], quick: bool) -> Iterator[dict[str, Any]]:
    suites = published["kueue"]["suites"]
    for name, aim in (("baseline", 15.0), ("large_scale", 60.0)):
        suite = suites[name]
        ran, bound = kueue.run(suite, quick)
        wall_s = suite["measured_mean"]["wall_ms"] / 1000
        note = f"{ran.placed} placements, {ran.evicted} evictions by the default policy"
        yield line(f"Kueue {name}, CPU", ran.cpu_s, "s", wall_s, aim, note)
        yield line(f"Kueue {name}, makespan", ran.makespan_s, "s", wall_s, bound * 1.1,
                   f"simulated; capacity bound {bound:.1f} s")  # fmt: skip
    for label, policy in kueue.OTHER_POLICIES.items():
        ran, bound = kueue.run(suites["baseline"], quick, policy)
        yield line(f"Kueue baseline, makespan, {label}", ran.makespan_s, "s",
                   suites["baseline"]["measured_mean"]["wall_ms"] / 1000, bound * 1.1,
                   f"simulated; {ran.evicted} evictions; bound {bound:.1f} s", target=None)  # fmt: skip
    ran, _ = kueue.run(suites["tas"], quick)
    theirs = suites["tas"]["derived"]["workloads_per_s"]
    yield line("Kueue topology, 640 nodes", ran.placed / ran.cpu_s, "gangs/CPU s", theirs, 1_000.0,
               "CPU per pod rounded to whole devices", more=True)  # fmt: skip


def _kai() -> Iterator[dict[str, Any]]:
    rows: list[tuple[str, Ran, float, float]] = [
        ("KAI 500 nodes, fill 4,000 jobs", kai.fill_with_single_gpus(), 397.8, 5.0),
        ("KAI 500 nodes, one gang of 512, rack preferred", kai.one_gang_of_512(), 48.7, 0.1),
        ("KAI 500 nodes, verdict: cannot", kai.verdict_cannot(), 249.5, 1.0),
        ("KAI 500 nodes, reclaim for 250 x 8", kai.reclaim(500, 250), 102.0, 2.0),
        ("KAI 1,000 nodes, reclaim for 100 x 8", kai.reclaim(1_000, 100), 76.3, 5.0),
    ]
    for name, ran, theirs, aim in rows:
        yield line(name, ran.cpu_s, "s", theirs, aim, f"{ran.placed} placed, {ran.evicted} evicted")
    yield line("peak memory of this process", peak_mib(), "MiB", 8_060, 1_024.0,
               "after the suites so far; KAI's figure is for reclaim at 1,000 nodes")  # fmt: skip


def _back_fill(jobs: int) -> Iterator[dict[str, Any]]:
    easy = others.long_line(jobs, "easy")
    half = others.long_line(jobs // 2, "conservative")
    ran = others.long_line(jobs, "conservative")
    note = f"EASY took {easy.cpu_s:.1f} s for the same; no published number"
    name = f"conservative back-fill, {jobs:,} jobs waiting for 160 GPUs"
    yield line(f"{name}, CPU", ran.cpu_s, "s", 0, 30.0, note)
    yield line("that, against half as many jobs", ran.cpu_s / half.cpu_s, "times", 0, 3.0,
               "100 planned starts a pass at most (planned_max), as in Slurm")  # fmt: skip


def _others(published: dict[str, Any], quick: bool) -> Iterator[dict[str, Any]]:
    measured = published["kube_scheduler"]["topology_gang"]["measured_pods_per_s"]
    for gangs in (750,) if quick else (750, 1_500, 2_250):
        theirs = max(measured[f"{gangs}x4"]["adaptive"])
        ran = others.topology_gangs(gangs)
        yield line(f"topology gangs, 5,000 nodes, {gangs} x 4", 4 * gangs / ran.cpu_s,
                   "pods/CPU s", theirs, 2_000.0, "rack required", more=True)  # fmt: skip
    small, large = others.unchanged_cycle(1_000), others.unchanged_cycle(10_000)
    yield line("a cycle, 10,000 nodes, 1,000 waiting, unchanged", large.again_ms, "ms", 0, 10.0,
               f"no published number; the first such cycle took {large.first_ms:.1f} ms")  # fmt: skip
    yield line("that cycle, 10,000 against 1,000 nodes", large.again_ms / small.again_ms, "times",
               0, 10.0, "ten times the nodes")  # fmt: skip
    yield from _back_fill(400 if quick else 2_000)
    suite = published["knavigator"]["gang_occupancy"]
    ran, occupancy = others.gang_packing(suite)
    yield line("knavigator gang packing", ran.makespan_s, "s", 0, suite["ideal"]["makespan_s"],
               f"simulated; occupancy {occupancy:.1%}; no stored result")  # fmt: skip
