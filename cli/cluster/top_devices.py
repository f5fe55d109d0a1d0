"""`muster top job NAME` and `muster top node NAME`: device by device, now or over a time."""

from collections.abc import Iterable, Sequence
from urllib.parse import quote

import click
from msgspec import Raw
from rich.text import Text

from api.cluster.telemetry_views import (
    DeviceView,
    HistoryList,
    HistoryView,
    PointView,
    TelemetryView,
)
from cli.client.client import Client, connect, job_path, run
from cli.cluster.telemetry_summary import COUNTERS, by_holder, read, summed
from cli.output.tables import Column, Table, write, write_as
from cli.output.times import span

BARS = "▁▂▃▄▅▆▇█"
POINTS = 40

_NOW = (
    Column("RANK", right=True),
    Column("NODE"),
    Column("GPU", right=True),
    *COUNTERS,
    Column("JOB", flexible=True),
)
_PAST = (
    Column("RANK", right=True),
    Column("NODE"),
    Column("GPU", right=True),
    Column("DUTY MEAN", right=True),
    Column("MAX", right=True),
    Column("MEMORY MAX", right=True),
    Column("TEMP MAX", right=True),
    Column("POWER MEAN", right=True),
    Column("DUTY", flexible=True),
)


def show(
    url: str | None, output: str, last_s: float | None, *, job: str = "", node: str = ""
) -> None:
    """Show the counters of a job's or a node's devices: now, or over the last `last_s` seconds."""
    if last_s is None:
        _show_now(url, output, job, node)
    else:
        _show_past(url, output, last_s, job, node)


def _show_now(url: str | None, output: str, job: str, node: str) -> None:
    seen, devices = run(_seen(url, job, node))
    if output != "table":
        write_as(output, {"items": devices})
    elif not devices:
        click.echo(seen.problem or f"nothing is measured of {job or node} at the moment")
    else:
        devices.sort(key=lambda d: (d.rank if d.rank is not None else -1, d.node, d.device))
        write(Table(_NOW, [_now_row(device) for device in devices]))


async def _seen(url: str | None, job: str, node: str) -> tuple[TelemetryView, list[DeviceView]]:
    """Return all readings, and those of the job or node; raise CliError if it does not exist."""
    async with connect(url) as server:
        seen = await read(server)
        devices = [d for d in by_holder(seen.devices) if (d.job == job if job else d.node == node)]
        if not devices:
            await _require(server, job, node)
        return seen, devices


async def _require(server: Client, job: str, node: str) -> None:
    namespace, _, name = job.partition("/")
    await server.get(job_path(namespace, name) if job else f"/v1/nodes/{quote(node, safe='')}", Raw)


def _now_row(device: DeviceView) -> list[str | Text]:
    return [
        _rank(device.rank),
        device.node,
        _device(device),
        *summed([device]).cells(),
        device.job or "-",
    ]


def _device(device: DeviceView) -> str:
    """Return the device's index, and the rank's share of it: 0 (25%)."""
    if not device.sharers:
        return str(device.device)
    return f"{device.device} ({device.sharers[0].share / 10:g}%)"


def _show_past(url: str | None, output: str, last_s: float, job: str, node: str) -> None:
    history = run(_history(url, last_s, job=job, node=node))
    if output != "table":
        write_as(output, {"items": history.items})
    elif not history.items:
        click.echo(f"nothing was measured of {job or node} in the last {span(last_s)}")
    else:
        write(Table(_PAST, [_past_row(each) for each in history.items]))


async def _history(url: str | None, last_s: float, *, job: str, node: str) -> HistoryList:
    about = {"job": job} if job else {"node": node}
    async with connect(url) as server:
        history = await server.get(
            "/v1/telemetry/history", HistoryList, **about, last_s=last_s, points=POINTS
        )
        if not history.items:
            await _require(server, job, node)
        return history


def _past_row(each: HistoryView) -> list[str | Text]:
    duty = _known(point.duty for point in each.points)
    memory = _known(point.memory_used_mib for point in each.points)
    heat = _known(point.temperature_c for point in each.points)
    power = _known(point.power_w for point in each.points)
    return [
        _rank(each.rank),
        each.node,
        str(each.device),
        f"{100 * sum(duty) / len(duty):.0f}%" if duty else "-",
        f"{100 * max(duty):.0f}%" if duty else "-",
        f"{max(memory) / 1024:.1f}G" if memory else "-",
        f"{max(heat):.0f}C" if heat else "-",
        f"{sum(power) / len(power):,.0f}W" if power else "-",
        sparkline(each.points),
    ]


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _rank(rank: int | None) -> str:
    return "-" if rank is None else str(rank)


def sparkline(points: Sequence[PointView]) -> str:
    """Return the duty as a line of bars, with a blank where nothing was measured."""
    return "".join(
        " " if p.duty is None else BARS[min(len(BARS) - 1, int(max(0.0, p.duty) * len(BARS)))]
        for p in points
    )
