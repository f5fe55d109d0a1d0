"""The three doors of the engine: time, memory and hands; and eyes, for whoever wants to look."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from controlplane.codec import Row
from controlplane.commands import Report
from controlplane.effects import Effect
from controlplane.errors import Rejected
from controlplane.events import Recorded
from controlplane.job import Job
from controlplane.model import JobSpec
from controlplane.page import Page


class Clock(Protocol):
    """Time as the engine knows it: UTC seconds that it can read and wait for."""

    def now(self) -> float: ...

    async def wait(self, until: float | None) -> None:
        """Returns at `until`, or as soon as `wake` is called; at once if it was called before."""

    def wake(self) -> None: ...


class Head(NamedTuple):
    """The end of the log: its last position, that event's hash, and the leader's epoch."""

    position: int
    hash: bytes
    epoch: int


class Snapshot(NamedTuple):
    """A world at a position, as `codec` writes it. Only a cache."""

    position: int
    body: bytes


# So many are kept, and so many bytes: those of a world with many jobs are larger than their events.
SNAPSHOTS_KEPT = 16
SNAPSHOT_BYTES_KEPT = 512 * 2**20


def spare_snapshots(sizes: Mapping[int, int]) -> list[int]:
    """The snapshots to drop, by position, so that few are left, spread over the whole log.

    The newest stays, for a start needs it. Of the others goes the one whose neighbours lie closest,
    so that no instant of the past is far behind a snapshot.
    """
    kept, spare, size = sorted(sizes), [], sum(sizes.values())
    while len(kept) > SNAPSHOTS_KEPT or (size > SNAPSHOT_BYTES_KEPT and len(kept) > 1):
        before = [0, *kept]
        _, index = min((kept[i + 1] - before[i], i) for i in range(len(kept) - 1))
        spare.append(kept.pop(index))
        size -= sizes[spare[-1]]
    return spare


class LogReader(Protocol):
    """What can be read of a log, by whoever does not write it."""

    async def head(self) -> Head: ...

    async def read(self, after: int, limit: int) -> Sequence[Row]:
        """Rows with positions after `after`, in order, at most `limit` of them."""

    async def latest_snapshot(self, at_most: int | None = None) -> Snapshot | None:
        """The newest snapshot, or the newest whose position is not above `at_most`."""


@runtime_checkable
class PageReader(Protocol):
    """A log that can be read column by column, which is quicker for who reads all of it."""

    async def read_pages(self, after: int, limit: int) -> Sequence[Page]:
        """What follows `after` without a gap, at most `limit` events; it may end anywhere.

        What does not come apart as it should is left for `read`, and so is what is damaged.
        """


class EventLog(LogReader, Protocol):
    """An append-only list of events with one writer at a time.

    Failures are `LogConflict` (another one leads) and `LogUnavailable` (it could not be reached;
    whether the append happened may be unknown). After either the engine stops.
    """

    async def lead(self) -> Head:
        """Takes the lead: from here on, appends with an older epoch are refused."""

    async def append(self, batch: Sequence[Recorded], *, epoch: int) -> None:
        """Adds events durably, all or none.

        The first one must stand right behind the head, and the epoch must be the head's.
        """

    async def save_snapshot(self, snapshot: Snapshot) -> None:
        """Keeps a snapshot; older ones may be dropped when enough of them are kept."""

    async def close(self) -> None: ...


class SearchableLog(EventLog, Protocol):
    """A log that a server stands on."""

    async def read_stream(self, stream: str, after: int, upto: int) -> Sequence[Row]:
        """The rows of one stream with positions after `after` and not above `upto`, in order."""


class SharerReading(NamedTuple):
    """A rank's part in a GPU that it shares."""

    job: str
    rank: int
    # Thousandths of the device that it was given.
    share: int
    duty: float
    memory_used_mib: int
    # What it may use of the device's memory.
    memory_limit_mib: int


class DeviceReading(NamedTuple):
    """What a GPU's own counters say, as a DCGM exporter gives them."""

    node: str
    device: int
    # The job that holds it, as its id; empty when it is free. Of a shared one, the first of `sharers`.
    job: str
    # The share of time in which it computes.
    duty: float
    memory_used_mib: int
    memory_total_mib: int
    temperature_c: float
    power_w: float
    # Which rank of the job; None if that is not known.
    rank: int | None = None
    # The ranks that share it, if it is shared and they are known.
    sharers: tuple[SharerReading, ...] = ()


class LinkReading(NamedTuple):
    """How much of a link's capacity is in use: a NIC (`nic/NODE`), an uplink (`leaf/...`), or a
    device's own (`nvlink/NODE/GPU`, `pcie/NODE/GPU`).

    Exporters know what passes and not what could: then the capacity is 0, and `gbps` says how much.
    """

    link: str
    used: float
    capacity_gbps: float
    gbps: float = 0.0


class Telemetry(Protocol):
    """Readings of devices and links at this moment, from a model or from exporters.

    Both raise TelemetryUnavailable, and soon, if whoever measures cannot be asked.
    """

    async def devices(self) -> Sequence[DeviceReading]: ...

    async def links(self) -> Sequence[LinkReading]: ...


class Point(NamedTuple):
    """A device's counters at one moment of the past; None where nothing was measured."""

    at: float
    duty: float | None = None
    memory_used_mib: int | None = None
    temperature_c: float | None = None
    power_w: float | None = None


class DeviceHistory(NamedTuple):
    node: str
    device: int
    rank: int | None
    points: tuple[Point, ...]


class Window(NamedTuple):
    """A part of the past: so many seconds up to `until` (None means now), at so many points."""

    last_s: float
    points: int
    until: float | None = None


class TelemetryHistory(Protocol):
    """Readings of the past, where something keeps them. Raises TelemetryUnavailable."""

    async def of_node(self, node: str, window: Window) -> Sequence[DeviceHistory]: ...

    async def of_pods(
        self, namespace: str, pods: Mapping[str, int], window: Window
    ) -> Sequence[DeviceHistory]:
        """Of the devices that these pods had; the numbers are the pods' ranks."""


class Cluster(Protocol):
    """What runs ranks: a Kubernetes cluster, or a model of one.

    An effect that is asked for again is harmless and answered by fresh reports on the attempt it
    names, so whatever was lost on the way is healed by asking again.
    """

    async def connect(self, report: Callable[[Report], None]) -> None:
        """From here on, tell what happens through `report`."""

    async def carry_out(self, effects: Sequence[Effect]) -> None:
        """Takes the effects over; the outcome comes as reports."""

    async def logs(self, job: Job, rank: int, lines_max: int) -> list[str]:
        """The last lines that a rank of the job's latest attempt wrote."""


@runtime_checkable
class VetsJobs(Protocol):
    """A cluster that knows of some jobs beforehand that they cannot run on it.

    It is asked at the edge, before a job is submitted or planned; the core does not ask.
    """

    def vet(self, spec: JobSpec) -> Rejected | None:
        """Why the job cannot run here at all, with what exists; None if it may."""


class PodPlace(NamedTuple):
    """Where a rank's pod is, for who wants to go there."""

    # The API server's address.
    cluster: str
    namespace: str
    pod: str
    container: str
    node: str


@runtime_checkable
class RealPods(Protocol):
    """What a cluster with real pods can do beside running ranks; a model of one cannot."""

    def place(self, job: Job, rank: int) -> PodPlace | None:
        """Where the rank's pod is, if it has one now."""

    async def containers(self, job: Job, rank: int, attempt: int = 0) -> list[str]:
        """The containers of a rank that may have written something; attempt 0 is the latest."""

    def follow(
        self, job: Job, rank: int, lines_max: int, container: str = ""
    ) -> AsyncIterator[str]:
        """The last lines, and then each one as it is written, until the rank ends.

        Without a container's name, of the one that speaks for the rank; so below.
        """

    async def older_logs(
        self,
        job: Job,
        rank: int,
        lines_max: int,
        *,
        attempt: int,
        previous: bool,
        container: str = "",
    ) -> list[str]:
        """What a rank wrote in an earlier attempt (0: the latest), or before it was started again
        in place, or in another container."""
