"""The simulated cluster of a server, recovered from the log whenever an engine begins to lead.

No state of a cluster outlives its engine, so the next leader, in this process or another one,
continues where the log ends. The first event of a cluster names its model (`ClusterModelled`), and
recovery begins there. If the model has changed since, the machine is new: it adopts the running
gangs, the rented nodes and the progress that checkpoints hold.
"""

from collections.abc import Callable, Container, Hashable, Sequence
from typing import Protocol

from adapters.simulated_cluster.cluster import SimulatedCluster
from adapters.simulated_cluster.feasibility import refusal, undeclared
from adapters.simulated_cluster.log_lines import log_lines
from adapters.simulated_cluster.recovery import catch_up, read_events
from controlplane.lifecycle.effects import Effect
from controlplane.lifecycle.job import Job
from controlplane.log.codec import from_row
from controlplane.log.replay import rebuild
from controlplane.model import events as e
from controlplane.model.commands import Report, ReportModel
from controlplane.model.errors import Rejected
from controlplane.model.spec import JobSpec
from controlplane.ports import DeviceReading, LinkReading, SearchableLog
from controlplane.state.world import World
from simulator.kernel.virtual_time import VirtualTime
from simulator.network.topology import BadCluster, ClusterModel, cluster_from


class Pacing(Protocol):
    """Advances the time of a model as a clock does."""

    def take(self, env: VirtualTime | None, origin: float = 0.0) -> None:
        """Drive another model from now on, whose time 0 is `origin`, or none."""

    def sync(self) -> None:
        """Advance the model's time to the clock's."""


class RecoveredCluster:
    """A Cluster and its Telemetry. `now` is the engine's clock, which the pacer's follows."""

    def __init__(
        self,
        log: SearchableLog,
        model: ClusterModel,
        pacer: Pacing,
        *,
        now: Callable[[], float],
        waiting_gpus: Callable[[], int],
    ) -> None:
        self._log = log
        self._model = model
        self._pacer = pacer
        self._now = now
        self._waiting_gpus = waiting_gpus
        self._report: Callable[[Report], None] = lambda report: None
        # None until an engine requests an effect.
        self._cluster: SimulatedCluster | None = None

    def vet(self, spec: JobSpec) -> Rejected | None:
        """Return why the job cannot train here, or None; see `controlplane.ports.VetsJobs`."""
        known = self._model.extended_resources
        return undeclared(spec, known) or refusal(spec, self._model.nodes)

    async def connect(self, report: Callable[[Report], None]) -> None:
        self._report = report
        self._cluster = None
        self._pacer.take(None)

    async def carry_out(self, effects: Sequence[Effect]) -> None:
        if self._cluster is None:
            self._cluster = await self._recover()
        await self._cluster.carry_out(effects)

    async def logs(self, job: Job, rank: int, lines_max: int) -> list[str]:
        if self._cluster is not None:
            return await self._cluster.logs(job, rank, lines_max)
        lines = log_lines(job, rank, self._now())
        return lines[-lines_max:] if lines_max > 0 else []

    def inject(self, recorded: e.Recorded) -> None:
        """Schedule the fault of a recorded event; a cluster that is recovered later reads it itself."""
        if self._cluster is not None:
            self._pacer.sync()
            self._cluster.inject(recorded)

    async def devices(self) -> Sequence[DeviceReading]:
        return [] if self._cluster is None else await self._cluster.devices()

    async def links(self) -> Sequence[LinkReading]:
        return [] if self._cluster is None else await self._cluster.links()

    async def _recover(self) -> SimulatedCluster:
        # The engine has recorded its start and waits for this call, so the log does not grow.
        head = (await self._log.head()).position
        birth = (await self._log.read(0, 1))[0].at
        rows = await self._log.read_stream("simulator", 0, head)
        last = from_row(rows[-1]) if rows else None
        if last is not None and _document(last) == self._model.document:
            cluster = await self._replayed(self._model, last, head, birth)
        else:
            saved = await self._saved(last, head, birth)
            world = (await rebuild(self._log, position=head)).world
            cluster = self._made(self._model, self._now(), birth, _ready(world), saved)
            self._report(ReportModel(document=self._model.document))
        await cluster.connect(self._report)
        self._pacer.take(cluster.env, birth)
        return cluster

    async def _replayed(
        self, model: ClusterModel, begin: e.Recorded, head: int, birth: float
    ) -> SimulatedCluster:
        """Return the cluster that began with the event `begin`, as it is at `head`."""
        world = (await rebuild(self._log, position=begin.position)).world
        saved = await self._saved(await self._before(begin), begin.position, birth)
        cluster = self._made(model, begin.at, birth, _ready(world), saved)
        catch_up(cluster, world, await read_events(self._log, begin.position, head))
        return cluster

    async def _saved(
        self, begin: e.Recorded | None, upto: int, birth: float
    ) -> dict[Hashable, float]:
        """Return the progress in checkpoints at the end of the model before; none if it is unreadable."""
        if begin is None:
            return {}
        try:
            model = cluster_from(_document(begin))
        except (BadCluster, ValueError):
            return {}
        return (await self._replayed(model, begin, upto, birth)).saved

    async def _before(self, begin: e.Recorded) -> e.Recorded | None:
        rows = await self._log.read_stream("simulator", 0, begin.position - 1)
        return from_row(rows[-1]) if rows else None

    def _made(
        self,
        model: ClusterModel,
        at: float,
        birth: float,
        there: Container[str],
        saved: dict[Hashable, float],
    ) -> SimulatedCluster:
        return SimulatedCluster(
            VirtualTime(initial_time=max(0.0, at - birth)),
            model,
            origin=birth,
            sync=self._pacer.sync,
            waiting_gpus=self._waiting_gpus,
            saved=saved,
            there=there,
        )


def _document(recorded: e.Recorded) -> str:
    assert isinstance(recorded.event, e.ClusterModelled), recorded
    return recorded.event.document


def _ready(world: World) -> frozenset[str]:
    return frozenset(node.name for node in world.nodes.values() if node.ready)
