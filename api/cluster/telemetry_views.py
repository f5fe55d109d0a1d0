"""Readings as the API shows them. A separate module: a client need not import the server."""

from msgspec import Struct


class SharerView(Struct, frozen=True, kw_only=True):
    """A rank's part of a GPU that several ranks share. `share` is in thousandths of the GPU."""

    job: str
    rank: int
    share: int
    duty: float
    memory_used_mib: int
    memory_limit_mib: int


class DeviceView(Struct, frozen=True, kw_only=True):
    """A GPU's counters. `job` is NAMESPACE/NAME of the job that holds it; empty when it is free.

    `rank` is the rank that uses it, where that is known. For a GPU that several ranks share, both
    are those of the first entry of `sharers`.
    """

    node: str
    device: int
    job: str
    duty: float
    memory_used_mib: int
    memory_total_mib: int
    temperature_c: float
    power_w: float
    rank: int | None = None
    sharers: list[SharerView] = []


class LinkView(Struct, frozen=True, kw_only=True):
    """A link's load.

    `used` is the fraction of the capacity in use, or 0 where the capacity is not known; `gbps` is
    the traffic in gigabits per second.
    """

    link: str
    used: float
    capacity_gbps: float
    gbps: float


class TelemetryView(Struct, frozen=True, kw_only=True):
    """Readings of all devices and links.

    Both lists are empty where nothing measures; `problem` explains why a configured source has
    none.
    """

    devices: list[DeviceView]
    links: list[LinkView]
    problem: str = ""


class PointView(Struct, frozen=True, kw_only=True):
    """Counters at one instant; null where nothing was measured."""

    at: float
    duty: float | None
    memory_used_mib: int | None
    temperature_c: float | None
    power_w: float | None


class HistoryView(Struct, frozen=True, kw_only=True):
    node: str
    device: int
    rank: int | None
    points: list[PointView]


class HistoryList(Struct, frozen=True, kw_only=True):
    items: list[HistoryView]
