"""The model's readings, as a DCGM exporter would give them."""

from collections.abc import Sequence

from controlplane.ports import DeviceReading, LinkReading
from simulator import readings
from simulator.books import Holder
from simulator.machine import Machine
from simulator.topology import NodeModel


class SimulatedTelemetry:
    """Answers from the state of the machine; `job_of` says whose a gang is."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    async def devices(self) -> Sequence[DeviceReading]:
        return [self._reading(*held) for held in self._machine.holders()]

    async def links(self) -> Sequence[LinkReading]:
        return [
            LinkReading(link, used, capacity * 8e-9)
            for link, (used, capacity) in self._machine.training.links().items()
            if capacity != float("inf")
        ]

    def _reading(self, node: NodeModel, device: int, holder: Holder | None) -> DeviceReading:
        gpu = node.hardware.gpu if node.hardware else None
        total = node.gpu_memory_mib or int((gpu.memory_gb if gpu else 0.0) * 1024)
        found = None if holder is None else self._machine.training.pace(holder.gang)
        if holder is None:
            read = readings.idle(gpu)
        elif found is None or gpu is None:
            read = readings.busy(gpu)
        else:
            read = readings.training(gpu, *found, total)
        job = str(getattr(holder.gang, "job", "")) if holder is not None else ""
        return DeviceReading(
            node.name,
            device,
            job,
            round(read.duty, 4),
            read.memory_used_mib,
            total,
            read.temperature_c,
            read.power_w,
            None if holder is None else holder.rank,
        )
