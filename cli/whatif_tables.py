"""What people see of a study on the terminal: a bar while it runs, and a table in the end."""

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

from studies.grid import Progress
from studies.report.units import duration, money, percent, some
from studies.search import Probe

Bars = tuple[Callable[[Progress], None], Callable[[Probe], None]]


@contextmanager
def bar_on_stderr(quiet: bool) -> Iterator[Bars]:
    """A progress bar with the time that is left, on the error stream of a terminal."""
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

        def on_progress(told: Progress) -> None:
            bar.update(line, completed=told.done, total=told.total)

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
        found = "no number of nodes" if goal["nodes"] is None else f"{goal['nodes']} nodes"
        click.echo(f"{goal['measure']} <= {goal['at_most']:g}: {found}")
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


def _with_interval(value: dict[str, Any], tell: Callable[[float | None], str]) -> str:
    if value["low"] is None:
        return tell(value["mean"])
    return f"{tell(value['mean'])} ({tell(max(0.0, value['low']))} to {tell(value['high'])})"
