"""Readings of GPUs and links, summed up by node and by job."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from api.cluster.telemetry_views import DeviceView, LinkView, TelemetryView
from cli.client.client import Client
from cli.output.tables import Column

PATH = "/v1/telemetry"
# A link gets a line when at least this fraction of its capacity is used.
BUSY = 0.5
LINKS_SHOWN = 5
# The columns of `Sum.cells`.
COUNTERS = tuple(Column(name, right=True) for name in ("DUTY", "MEMORY", "TEMP", "POWER"))


class Sum(NamedTuple):
    """Means and sums over some GPUs."""

    gpus: int = 0
    duty: float = 0.0
    memory_used_mib: int = 0
    memory_total_mib: int = 0
    temperature_c: float = 0.0
    power_w: float = 0.0

    def cells(self) -> list[str]:
        """Return duty, memory, temperature and power as cells of a table."""
        if not self.gpus:
            return ["-", "-", "-", "-"]
        total = self.memory_total_mib
        digits = 1 if self.gpus == 1 else 0
        memory = f"{self.memory_used_mib / 1024:.{digits}f}/{total / 1024:.0f}G" if total else "-"
        heat = f"{self.temperature_c:.0f}C" if self.temperature_c else "-"
        power = f"{self.power_w:,.0f}W" if self.power_w else "-"
        return [f"{100 * self.duty:.0f}%", memory, heat, power]


async def read(server: Client) -> TelemetryView:
    return await server.get(PATH, TelemetryView)


def by(devices: Iterable[DeviceView], key: Callable[[DeviceView], str]) -> dict[str, Sum]:
    groups = defaultdict[str, list[DeviceView]](list)
    for device in devices:
        groups[key(device)].append(device)
    return {name: summed(group) for name, group in groups.items()}


def by_holder(devices: Iterable[DeviceView]) -> list[DeviceView]:
    """Return `devices`, with a shared device once per sharer and only that sharer's readings.

    A sharer's memory limit is its total; the power is divided in proportion to duty.
    """
    rows = []
    for device in devices:
        busy = sum(sharer.duty for sharer in device.sharers)
        for sharer in device.sharers:
            part = sharer.duty / busy if busy else 1 / len(device.sharers)
            rows.append(
                msgspec.structs.replace(
                    device,
                    job=sharer.job,
                    rank=sharer.rank,
                    duty=sharer.duty,
                    memory_used_mib=sharer.memory_used_mib,
                    memory_total_mib=sharer.memory_limit_mib,
                    power_w=round(device.power_w * part, 1),
                    sharers=[sharer],
                )
            )
        if not device.sharers:
            rows.append(device)
    return rows


def summed(devices: Sequence[DeviceView]) -> Sum:
    return Sum(
        len(devices),
        sum(d.duty for d in devices) / len(devices),
        sum(d.memory_used_mib for d in devices),
        sum(d.memory_total_mib for d in devices),
        max(d.temperature_c for d in devices),
        sum(d.power_w for d in devices),
    )


def link_lines(links: Iterable[LinkView]) -> list[str]:
    """Return lines on the most used links; none if no link is well used."""
    full = sorted((link for link in links if link.used >= BUSY), key=lambda link: -link.used)
    return [
        f"{link.link}: {100 * link.used:.0f} % of {link.capacity_gbps:,.0f} Gb/s"
        for link in full[:LINKS_SHOWN]
    ]


def plain(view: TelemetryView) -> dict[str, object]:
    fields: dict[str, object] = msgspec.to_builtins(view)
    return fields
