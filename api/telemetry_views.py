"""Readings as the API shows them. Apart, so that a client need not load a server."""

from msgspec import Struct


class SharerView(Struct, frozen=True, kw_only=True):
    """A rank's part in a GPU that it shares. `share` is in thousandths of the GPU."""

    job: str
    rank: int
    share: int
    duty: float
    memory_used_mib: int
    memory_limit_mib: int


class DeviceView(Struct, frozen=True, kw_only=True):
    """A GPU's counters. `job` is NAMESPACE/NAME of who holds it; empty when it is free.

    `rank` is the rank that it computes for, where that is known. Of a GPU that several ranks share
    these are the first of `sharers`.
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
    """`used` is the share of the capacity that is in use; where the capacity is not known it is 0,
    and `gbps` is what passes.
    """

    link: str
    used: float
    capacity_gbps: float
    gbps: float


class TelemetryView(Struct, frozen=True, kw_only=True):
    """Both lists are empty where nothing measures; `problem` says why, if something should."""

    devices: list[DeviceView]
    links: list[LinkView]
    problem: str = ""


class PointView(Struct, frozen=True, kw_only=True):
    """Counters at one moment; null where nothing was measured."""

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
