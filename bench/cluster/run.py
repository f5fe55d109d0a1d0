"""Measures Muster on a real API server: a table, and bench/cluster.json.

`python -m bench.cluster.run [--quick]`. KUBECONFIG names a cluster whose nodes have enough free GPUs
and start nothing by themselves (made-up ones); without it the test cluster is started, with
made-up nodes only. Figures are for this machine and this run; the ratios are what travels.
"""

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.cluster import measures
from bench.run import table
from deploy.testcluster import cluster, places, processes

RESULTS = Path(__file__).parents[1] / "cluster.json"
GPUS = 8
NODES = 130


async def measure(kubeconfig: Path, folder: Path, *, quick: bool) -> list[dict[str, Any]]:
    ranks, rounds, seconds = (200, 1, 20.0) if quick else (1_000, 2, 60.0)
    jobs = 20 if quick else 100
    lines: list[dict[str, Any]] = []
    for measuring in (
        measures.creation(kubeconfig, folder, ranks, rounds),
        measures.rest(kubeconfig, folder, ranks, seconds),
        measures.many(kubeconfig, folder, jobs, 8),
    ):
        for line in await measuring:
            # At once, so that what was measured is not lost with what comes after.
            print(f"{line['name']}: {line['value']} {line['unit']} ({line['note']})", flush=True)
            lines.append(line)
    return lines


def main(words: list[str]) -> int:
    given, place, was_running = os.environ.get("KUBECONFIG"), None, True
    if not given:
        try:
            place = places.here()
            was_running = processes.pid_of(place.state, "apiserver") is not None
            place = cluster.up(place, real=0, made_up=NODES, gpus=GPUS, grace_s=60)
        except places.Trouble as trouble:
            print(f"no cluster: {trouble}. Or name one with KUBECONFIG.", file=sys.stderr)
            return 1
    kubeconfig = place.kubeconfig if place else Path(str(given))
    try:
        with tempfile.TemporaryDirectory() as folder:
            work = measure(kubeconfig, Path(folder), quick="--quick" in words)
            results = asyncio.run(work)
    finally:
        if place is not None and not was_running:
            cluster.down(place)
    load = os.getloadavg()[0]
    RESULTS.write_text(json.dumps({"load": load, "lines": results}, indent=1) + "\n")
    Console(width=160).print(table(results))
    print(f"load of the machine at the end: {load:.1f} on {os.cpu_count()} cores")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
