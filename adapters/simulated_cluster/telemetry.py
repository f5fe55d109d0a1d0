"""The model's readings, as a DCGM exporter would give them."""

import logging
from collections.abc import Sequence

from controlplane.ports import DeviceReading, LinkReading, SharerReading
from simulator import readings
from simulator.books import Held
from simulator.machine import Machine
from simulator.time_slicing import WHOLE, Holder
from simulator.topology import NodeModel

_log = logging.getLogger("muster")


class SimulatedTelemetry:
    """Answers from the state of the machine."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._unread: set[tuple[str, int]] = set()

    async def devices(self) -> Sequence[DeviceReading]:
        """A device whose reading raises is left out, as one that an exporter has lost."""
        found = [self._reading_or_none(*held) for held in self._machine.holders()]
        return [reading for reading in found if reading is not None]

    async def links(self) -> Sequence[LinkReading]:
        return [
            LinkReading(link, used, capacity * 8e-9)
            for link, (used, capacity) in self._machine.training.links().items()
            if capacity != float("inf")
        ]

    def _reading_or_none(
        self, node: NodeModel, device: int, held: tuple[Held, ...]
    ) -> DeviceReading | None:
        try:
            return self._reading(node, device, held)
        except Exception:  # noqa: BLE001 - it concerns this device and its holders alone
            if (node.name, device) not in self._unread:
                # Once for each device: people look every second.
                self._unread.add((node.name, device))
                _log.exception("device %d of %s cannot be read", device, node.name)
            return None

    def _reading(self, node: NodeModel, device: int, held: tuple[Held, ...]) -> DeviceReading:
        gpu = node.hardware.gpu if node.hardware else None
        total = node.device_memory_mib
        reads = [self._used(node, device, each) for each in held]
        read = readings.together(gpu, reads)
        return DeviceReading(
            node.name,
            device,
            _job(held[0].holder) if held else "",
            round(read.duty, 4),
            read.memory_used_mib,
            total,
            read.temperature_c,
            read.power_w,
            held[0].holder.rank if held else None,
            tuple(map(_sharer, held, reads)) if _is_shared(held) else (),
        )

    def _used(self, node: NodeModel, device: int, held: Held) -> readings.Reading:
        gpu = node.hardware.gpu if node.hardware else None
        found = self._machine.training.pace(held.holder.gang)
        if found is not None and gpu is not None:
            return readings.training(gpu, *found, total_mib=held.memory_mib)
        if held.share == WHOLE:
            return readings.busy(gpu)
        speed = self._machine.speed(held.holder, node.name, device)
        return readings.sharing(gpu, held.share / WHOLE * speed, held.memory_mib)


def _is_shared(held: tuple[Held, ...]) -> bool:
    return bool(held) and held[0].share < WHOLE


def _sharer(held: Held, read: readings.Reading) -> SharerReading:
    return SharerReading(
        _job(held.holder),
        held.holder.rank,
        held.share,
        round(read.duty, 4),
        read.memory_used_mib,
        held.memory_mib,
    )


def _job(holder: Holder) -> str:
    return str(getattr(holder.gang, "job", ""))
