"""Runs every benchmark, or those that are named, prints a table, and writes bench/results.json.

Figures are for this machine and this run; the ratios are what travels.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from adapters.simulated_cluster.workload import SCHEMA
from bench import (
    append,
    engine,
    forecasts,
    http,
    incidents,
    library_baseline,
    manifests,
    physics,
    rendering,
    replay,
    studies,
    virtual,
    watchers,
)
from bench.scheduling import suites
from controlplane.kinds.registry import register_hint

SUITES = {
    "physics": physics.run,
    "append": append.run,
    "library": library_baseline.run,
    "engine": engine.run,
    "replay": replay.run,
    "incidents": incidents.run,
    "virtual": virtual.run,
    "studies": studies.run,
    "forecasts": forecasts.run,
    "http": http.run,
    "watchers": watchers.run,
    "rendering": rendering.run,
    "manifests": manifests.run,
    "scheduling": suites.run,
}
RESULTS = Path(__file__).parent / "results.json"


def main(words: list[str]) -> int:
    asked = _read(words)
    register_hint(SCHEMA)
    results: list[dict[str, Any]] = []
    for name in asked.suites or SUITES:
        print(f"{name} ...", flush=True)
        results += SUITES[name](asked.quick)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    Console(width=160).print(table(results))
    return 0


def _read(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.run", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller sizes and fewer rounds")
    parser.add_argument(
        "suites", nargs="*", metavar="SUITE", help=f"all of them, or some of: {', '.join(SUITES)}"
    )
    asked = parser.parse_args(words)
    if unknown := [name for name in asked.suites if name not in SUITES]:
        parser.error(f"there is no suite {unknown[0]!r}; the suites are: {', '.join(SUITES)}")
    return asked


def table(results: list[dict[str, Any]]) -> Table:
    drawn = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("what", "measured", "unit", "baseline", "ratio", "goal", "note"):
        drawn.add_column(column, justify="right" if column in ("measured", "baseline") else "left")
    for line in results:
        goal = "" if line["target"] is None else f">= {line['target']}"
        missed = line["target"] is not None and line["ratio"] < line["target"]
        ratio = f"[red]{line['ratio']}[/]" if missed else str(line["ratio"])
        figures = (f"{line[key]:,}" for key in ("value", "baseline"))
        value, baseline = figures
        drawn.add_row(line["name"], value, line["unit"], baseline, ratio, goal, line["note"])
    return drawn


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
