"""Telemetry of the simulated machine, as a DCGM exporter would report it."""

import logging
from collections.abc import Sequence

from controlplane.ports import DeviceReading, LinkReading, SharerReading
from simulator.machine import telemetry
from simulator.machine.device_ledger import Allocation
from simulator.machine.machine import Machine
from simulator.machine.time_slicing import WHOLE, Owner
from simulator.network.topology import NodeModel

_log = logging.getLogger("muster")


class SimulatedTelemetry:
    """Device and link readings, computed from the state of the machine."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._unread: set[tuple[str, int]] = set()

    async def devices(self) -> Sequence[DeviceReading]:
        """Return a reading for every device; a device whose reading raises is left out."""
        readings = [self._reading_or_none(*held) for held in self._machine.allocations()]
        return [reading for reading in readings if reading is not None]

    async def links(self) -> Sequence[LinkReading]:
        return [
            LinkReading(link, used, capacity * 8e-9)
            for link, (used, capacity) in self._machine.training.links().items()
            if capacity != float("inf")
        ]

    def _reading_or_none(
        self, node: NodeModel, device: int, held: tuple[Allocation, ...]
    ) -> DeviceReading | None:
        try:
            return self._reading(node, device, held)
        except Exception:  # noqa: BLE001 - only this device cannot be read
            if (node.name, device) not in self._unread:
                # Logged once per device: clients poll every second.
                self._unread.add((node.name, device))
                _log.exception("device %d of %s cannot be read", device, node.name)
            return None

    def _reading(self, node: NodeModel, device: int, held: tuple[Allocation, ...]) -> DeviceReading:
        gpu = node.hardware.gpu if node.hardware else None
        total = node.device_memory_mib
        reads = [self._used(node, device, each) for each in held]
        read = telemetry.together(gpu, reads)
        return DeviceReading(
            node.name,
            device,
            _job(held[0].owner) if held else "",
            round(read.duty, 4),
            read.memory_used_mib,
            total,
            read.temperature_c,
            read.power_w,
            held[0].owner.rank if held else None,
            tuple(map(_sharer, held, reads)) if _is_shared(held) else (),
        )

    def _used(self, node: NodeModel, device: int, held: Allocation) -> telemetry.Reading:
        gpu = node.hardware.gpu if node.hardware else None
        pace = self._machine.training.pace(held.owner.gang)
        if pace is not None and gpu is not None:
            return telemetry.training(gpu, *pace, total_mib=held.memory_mib)
        if held.share == WHOLE:
            return telemetry.busy(gpu)
        speed = self._machine.speed(held.owner, node.name, device)
        return telemetry.sharing(gpu, held.share / WHOLE * speed, held.memory_mib)


def _is_shared(held: tuple[Allocation, ...]) -> bool:
    return bool(held) and held[0].share < WHOLE


def _sharer(held: Allocation, read: telemetry.Reading) -> SharerReading:
    return SharerReading(
        _job(held.owner),
        held.owner.rank,
        held.share,
        round(read.duty, 4),
        read.memory_used_mib,
        held.memory_mib,
    )


def _job(owner: Owner) -> str:
    return str(getattr(owner.gang, "job", ""))
