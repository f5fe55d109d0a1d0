"""The ports of the engine (Clock, EventLog, Cluster), and telemetry for the API."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from controlplane.lifecycle.effects import Effect
from controlplane.lifecycle.job import Job
from controlplane.model.addresses import AddressBook, ServiceNames
from controlplane.model.commands import Report
from controlplane.model.errors import Rejected
from controlplane.model.events import Recorded
from controlplane.model.rows import Row
from controlplane.model.spec import JobSpec


class Clock(Protocol):
    """Time for the engine: UTC seconds, to read and to wait for."""

    def now(self) -> float: ...

    async def wait(self, until: float | None) -> None:
        """Return at `until` or at the next `wake`, whichever is first.

        Return at once if `wake` was called since the last wait.
        """

    def wake(self) -> None: ...


class Head(NamedTuple):
    """The end of the log: its last position, that event's hash, and the leader's epoch."""

    position: int
    hash: bytes
    epoch: int


class StateSnapshot(NamedTuple):
    """A state at a position, as `log.snapshots` encodes it. Only a cache."""

    position: int
    body: bytes


# A snapshot of many jobs may be larger than their events, so the total size is limited too.
SNAPSHOTS_KEPT = 16
SNAPSHOT_BYTES_KEPT = 512 * 2**20


def spare_snapshots(sizes: Mapping[int, int]) -> list[int]:
    """Return the positions of the snapshots to drop; `sizes` maps position to bytes.

    The newest snapshot stays, because a start needs it. Of the others, the one whose neighbours are
    closest is dropped first, so that no past position is far behind a snapshot.
    """
    kept, spare, size = sorted(sizes), [], sum(sizes.values())
    while len(kept) > SNAPSHOTS_KEPT or (size > SNAPSHOT_BYTES_KEPT and len(kept) > 1):
        before = [0, *kept]
        _, index = min((kept[i + 1] - before[i], i) for i in range(len(kept) - 1))
        spare.append(kept.pop(index))
        size -= sizes[spare[-1]]
    return spare


class LogReader(Protocol):
    """A log that is only read."""

    async def head(self) -> Head: ...

    async def read(self, after: int, limit: int) -> Sequence[Row]:
        """Return rows with positions after `after`, in order, at most `limit` of them."""

    async def latest_snapshot(self, at_most: int | None = None) -> StateSnapshot | None:
        """Return the newest snapshot whose position is at most `at_most`, or None without one."""


class EventLog(LogReader, Protocol):
    """An append-only list of events with one writer at a time.

    Methods raise `LogConflict` (another engine leads) and `LogUnavailable` (the log could not be
    reached; whether an append happened may be unknown). After either the engine stops.
    """

    async def lead(self) -> Head:
        """Take the lead with a new epoch: appends with an older epoch are refused from here on."""

    async def append(self, batch: Sequence[Recorded], *, epoch: int) -> None:
        """Append events durably, all or none.

        The first position must be the head's plus one, and the epoch must be the head's.
        """

    async def save_snapshot(self, snapshot: StateSnapshot) -> None:
        """Store a snapshot; older ones may be dropped, see `spare_snapshots`."""

    async def close(self) -> None: ...


class SearchableLog(EventLog, Protocol):
    """A log that a server runs on: it can also be read by stream."""

    async def read_stream(self, stream: str, after: int, upto: int) -> Sequence[Row]:
        """Return the rows of `stream` with positions after `after` and at most `upto`, in order."""


class SharerReading(NamedTuple):
    """A rank's share of a GPU, and how much of it the rank uses."""

    job: str
    rank: int
    # Thousandths of the device that are allocated to the rank.
    share: int
    duty: float
    memory_used_mib: int
    # How much of the device's memory the rank may use.
    memory_limit_mib: int


class DeviceReading(NamedTuple):
    """The counters of a GPU, as a DCGM exporter reports them."""

    node: str
    device: int
    # The id of the job that has the device, empty when it is free; for a shared device, the job of
    # the first of `sharers`.
    job: str
    # The share of time in which the device computes, from 0 to 1.
    duty: float
    memory_used_mib: int
    memory_total_mib: int
    temperature_c: float
    power_w: float
    # The rank of the job; None if it is not known.
    rank: int | None = None
    # The ranks that share the device, if it is shared and they are known.
    sharers: tuple[SharerReading, ...] = ()


class LinkReading(NamedTuple):
    """How much of a link's capacity is in use.

    A link is a NIC (`nic/NODE`), an uplink (`leaf/...`), or a device's own (`nvlink/NODE/GPU`,
    `pcie/NODE/GPU`). Exporters measure traffic but not capacity: then the capacity is 0, and `gbps`
    is the traffic.
    """

    link: str
    used: float
    capacity_gbps: float
    gbps: float = 0.0


class Telemetry(Protocol):
    """Current readings of devices and links, from a model or from exporters.

    Both methods raise TelemetryUnavailable, without a long wait, if the source cannot be reached.
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
    """The readings of one device over a window."""

    node: str
    device: int
    rank: int | None
    points: tuple[Point, ...]


class Window(NamedTuple):
    """The last `last_s` seconds before `until` (None means now), at `points` points."""

    last_s: float
    points: int
    until: float | None = None


class TelemetryHistory(Protocol):
    """Stored readings. Methods raise TelemetryUnavailable."""

    async def of_node(self, node: str, window: Window) -> Sequence[DeviceHistory]: ...

    async def of_pods(
        self, namespace: str, pods: Mapping[str, int], window: Window
    ) -> Sequence[DeviceHistory]:
        """Return the devices that these pods had; `pods` maps a pod's name to its rank."""


class Cluster(Protocol):
    """Runs ranks: a Kubernetes cluster, or a model of one.

    A repeated effect is harmless and is answered by fresh reports on its attempt, so a lost effect
    or report is repaired by a second request.
    """

    async def connect(self, report: Callable[[Report], None]) -> None:
        """Pass every observation to `report` from here on."""

    async def carry_out(self, effects: Sequence[Effect]) -> None:
        """Accept the effects; their outcome arrives as reports."""

    async def logs(self, job: Job, rank: int, lines_max: int) -> list[str]:
        """Return the last `lines_max` lines that a rank of the job's latest attempt wrote."""


@runtime_checkable
class VetsJobs(Protocol):
    """A cluster that can refuse a job that cannot run on it.

    The edge asks before a job is submitted or planned; the core does not.
    """

    def vet(self, spec: JobSpec) -> Rejected | None:
        """Return why the job cannot run here with the objects that exist; None if it may run."""


@runtime_checkable
class SuppliesAddresses(Protocol):
    """A cluster that knows how the ranks of a gang reach each other on it."""

    def addresses(self, job: Job) -> AddressBook:
        """Return the hosts and ports of the job's ranks."""


def addresses_of(cluster: Cluster, job: Job) -> AddressBook:
    """Return the address book of a job on the cluster.

    A cluster that supplies none, as the simulated one, has service names: it shows the environment
    that the ranks would have on Kubernetes.
    """
    return cluster.addresses(job) if isinstance(cluster, SuppliesAddresses) else ServiceNames()


@runtime_checkable
class InjectsFaults(Protocol):
    """A cluster whose nodes can be made to fail: a simulated one.

    A fault is recorded first, as `FaultInjected`, and the event is then passed to the cluster.
    """

    def inject(self, recorded: Recorded) -> None:
        """Schedule the fault of a recorded `FaultInjected`."""


class RankConsole(NamedTuple):
    """Where a client can open a shell in a running rank."""

    # The API server's address.
    cluster: str
    namespace: str
    pod: str
    container: str
    node: str


@runtime_checkable
class RankConsoles(Protocol):
    """A cluster in whose ranks a shell can be opened."""

    def console(self, job: Job, rank: int) -> RankConsole | None:
        """Return the console of the rank, or None if the rank does not run now."""


@runtime_checkable
class RankLogs(Protocol):
    """A cluster that can follow logs, and keeps those of earlier attempts and other containers."""

    async def containers(self, job: Job, rank: int, attempt: int = 0) -> list[str]:
        """Return the containers of a rank that may have written logs; attempt 0 is the latest."""

    def follow(
        self, job: Job, rank: int, lines_max: int, container: str = ""
    ) -> AsyncIterator[str] | None:
        """Yield the last `lines_max` lines, then each line as it is written, until the rank ends.

        None if the rank does not run now. An empty `container` means the rank's main container, here and below.
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
        """Return what a rank wrote in an earlier attempt, an earlier run or another container.

        Attempt 0 is the latest; `previous` selects the run before a restart in place.
        """


class ContainerRun(NamedTuple):
    """One run of one rank, in one container of its pod."""

    job: str
    attempt: int
    rank: int
    incarnation: int
    # Containers have the indices 0, 1, ... in their pod; init containers have -1, -2, ...
    place: int = 0
    container: str = ""


class RankLogArchive(Protocol):
    """Stores what ranks wrote, after their pods are gone.

    It is a cache: without it the lines are lost with the pods, and nothing else is. Reading raises
    LogUnavailable; lines that cannot be stored are dropped.
    """

    async def keep(self, run: ContainerRun, lines: list[str]) -> None:
        """Store the lines of a run, replacing those stored before."""

    async def lines(
        self, job: str, attempt: int, rank: int, lines_max: int, container: str = ""
    ) -> list[str]:
        """Return the last lines of a rank's runs in an attempt, one run after the other.

        Without a container's name, return those of the first container of the pod.
        """

    async def containers(self, job: str, attempt: int, rank: int) -> list[str]:
        """Return the containers of a rank with stored lines, in the order of their pod."""

    async def forget(self, job: str) -> None:
        """Drop the lines of a deleted job."""
