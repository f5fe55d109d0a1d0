"""A study on the terminal: a progress bar while it runs, and a table at the end."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bar
from rich.table import Table

from studies.report.units import duration, money, percent, some
from studies.whatif.capacity_search import Probe
from studies.whatif.grid import Progress

Bars = tuple[Callable[[Progress], None], Callable[[Probe], None]]


@contextmanager
def bar_on_stderr(quiet: bool) -> Iterator[Bars]:
    """Show a progress bar with the remaining time on standard error, if that is a terminal."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=console, disable=quiet or not console.is_terminal) as bar:
        line = bar.add_task("runs", total=None)

        def on_progress(progress: Progress) -> None:
            bar.update(line, completed=progress.done, total=progress.total)

        def on_probe(probe: Probe) -> None:
            verdict = "enough" if probe.granted else "too few"
            bar.update(line, description=f"{probe.nodes} nodes are {verdict};")

        yield on_progress, on_probe


def show(result: dict[str, Any], given: dict[str, Any]) -> None:
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("scenario")
    titles = ("median wait", "p90 wait", "mean JCT", "occupancy", "productive", "cost")
    for title in titles:
        table.add_column(title, justify="right")
    for entry in result["scenarios"]:
        table.add_row(entry["name"], *_figures(entry))
    Console().print(table)
    goal = result.get("goal")
    if goal is not None:
        nodes = "no number of nodes" if goal["nodes"] is None else f"{goal['nodes']} nodes"
        click.echo(f"{goal['measure']} <= {goal['at_most']:g}: {nodes}")
    for entry in result["scenarios"][:1]:
        for note in entry["replication_0"]["notes"]:
            click.echo(f"note: {note}")
    refused = [e for e in result["scenarios"] if e["replication_0"]["refused"]]
    for entry in refused:
        click.echo(
            f"{entry['name']}: {some(entry['replication_0']['refused'], 'job')} can never fit"
        )
    if given["out"]:
        click.echo(f"report: {Path(given['out']) / 'report.html'}")


def _figures(entry: dict[str, Any]) -> list[str]:
    measures = entry["measures"]
    return [
        duration(measures["wait_p50_s"]["mean"]),
        _with_interval(measures["wait_p90_s"], duration),
        duration(measures["jct_mean_s"]["mean"]),
        percent(measures["occupancy"]["mean"]),
        percent(measures["productive"]["mean"]),
        money(measures["cost"]["mean"]) if measures["cost"]["mean"] else "",
    ]


def _with_interval(value: dict[str, Any], describe: Callable[[float | None], str]) -> str:
    if value["low"] is None:
        return describe(value["mean"])
    return f"{describe(value['mean'])} ({describe(max(0.0, value['low']))} to {describe(value['high'])})"
