"""Who holds which devices: the machine's books, whatever the caller believes.

A device given to two ranks at once is an AssertionError here.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from simulator.gangs import Gang, Key
from simulator.topology import NodeModel


class Holder(NamedTuple):
    """Whose a device is."""

    gang: Key
    rank: int


class Run:
    """A gang while something of it holds devices."""

    __slots__ = ("alive", "awaited", "begun", "broken", "gang", "stopping", "whole")

    def __init__(self, gang: Gang) -> None:
        self.gang = gang
        self.alive = {rank for part in gang.parts for rank in part.ranks}
        # Every rank is still there.
        self.whole = True
        # A fault took a rank, which the others wait for in vain.
        self.broken = False
        # How often it began its work: what was timed for an earlier time counts no more.
        self.begun = 0
        # Ranks that are still to come up.
        self.awaited = 0
        self.stopping = False

    def living(self, ranks: tuple[int, ...]) -> tuple[int, ...]:
        return ranks if self.whole else tuple(rank for rank in ranks if rank in self.alive)

    def ranks_on(self, node: str) -> tuple[int, ...]:
        places = self.gang.places
        return tuple(rank for rank in sorted(self.alive) if places[rank].node == node)


class Node:
    __slots__ = (
        "busy",
        "devices",
        "down_until",
        "model",
        "runs",
        "up",
        "warned_until",
        "withheld",
    )

    def __init__(self, model: NodeModel) -> None:
        self.model = model
        self.up = True
        # Its pool has not rented it.
        self.withheld = False
        self.down_until = 0.0
        # Sets of devices are bits, so that claiming eight costs no more than claiming one.
        self.devices = (1 << model.gpus) - 1
        self.busy = 0
        # Until when a node that will be taken is still there, as everybody has been told.
        self.warned_until: float | None = None
        # Who runs here, in the order of arrival, and with how many ranks.
        self.runs: dict[Run, int] = {}


class Books:
    def __init__(self, nodes: Iterable[NodeModel]) -> None:
        self.nodes = {node.name: Node(node) for node in nodes}

    def claim(self, run: Run) -> list[int]:
        """Takes every rank's devices, and returns the ranks whose devices are not there."""
        nodes, places = self.nodes, run.gang.places
        homeless = []
        for part in run.gang.parts:
            for rank in part.ranks:
                place = places[rank]
                node = nodes.get(place.node)
                devices = _bits(place.devices)
                if node is None or not node.up or devices & ~node.devices:
                    homeless.append(rank)
                    continue
                assert not node.busy & devices, f"{run.gang.key}: {place} is taken"
                node.busy |= devices
                node.runs[run] = node.runs.get(run, 0) + 1
        return homeless

    def release(self, run: Run, ranks: Iterable[int]) -> None:
        """Gives back the devices of some ranks, which are no more."""
        nodes, places = self.nodes, run.gang.places
        for rank in ranks:
            place = places[rank]
            node = nodes[place.node]
            node.busy ^= _bits(place.devices)
            node.runs[run] -= 1
            if not node.runs[run]:
                del node.runs[run]
        run.alive.difference_update(ranks)
        run.whole = False

    def holders(self) -> Iterator[tuple[NodeModel, int, Holder | None]]:
        """Every device of a node that is up, and who holds it."""
        held: dict[tuple[str, int], Holder] = {}
        for run in {run: None for node in self.nodes.values() for run in node.runs}:
            for rank in run.alive:
                place = run.gang.places[rank]
                holder = Holder(run.gang.key, rank)
                held.update({(place.node, device): holder for device in place.devices})
        for node in self.nodes.values():
            if node.up:
                for device in range(node.model.gpus):
                    yield node.model, device, held.get((node.model.name, device))


# Bounded, because a pool of thousands of GPUs has no end of combinations.
@lru_cache(maxsize=4096)
def _bits(devices: tuple[int, ...]) -> int:
    bits = 0
    for device in devices:
        assert not bits >> device & 1, f"device {device} twice for one rank"
        bits |= 1 << device
    return bits
