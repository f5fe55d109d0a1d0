"""The device ledger: which ranks hold which devices, independent of the caller's own records.

A rank holds whole devices, or a share of one device with the same share of its memory. Giving a
device out twice, or more than the whole of it in shares, raises AssertionError.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from simulator.machine.gang import Gang, Part
from simulator.machine.time_slicing import WHOLE, Owner
from simulator.network.topology import NodeModel


class Allocation(NamedTuple):
    """A rank's allocation on a device: `share` in thousandths, and the same share of its memory."""

    owner: Owner
    share: int
    memory_mib: int


class GangRun:
    """A gang while some of its ranks hold devices."""

    __slots__ = ("alive", "awaited", "begun", "broken", "gang", "stopping", "timed", "whole")

    def __init__(self, gang: Gang) -> None:
        self.gang = gang
        self.alive = {rank for part in gang.parts for rank in part.ranks}
        # Whether every rank is still alive.
        self.whole = True
        # Whether the ranks hang in a collective because one of them was lost.
        self.broken = False
        # How often it began its work; timers of an earlier time are void.
        self.begun = 0
        # The number of ranks that are not up yet.
        self.awaited = 0
        self.stopping = False
        # Work of fixed duration on shared devices; its end moves with the speed.
        self.timed: list[Timed] = []

    def living(self, ranks: tuple[int, ...]) -> tuple[int, ...]:
        return ranks if self.whole else tuple(rank for rank in ranks if rank in self.alive)

    def ranks_on(self, node: str) -> tuple[int, ...]:
        places = self.gang.places
        return tuple(rank for rank in sorted(self.alive) if places[rank].node == node)


class Timed:
    """Parts of a run that end together after `left_s` at full speed, counted from `since`."""

    __slots__ = ("left_s", "parts", "since", "speed", "timer")

    def __init__(self, parts: Sequence[Part], left_s: float, since: float) -> None:
        self.parts = parts
        self.left_s = left_s
        self.since = since
        self.speed = 1.0
        # How often the end was scheduled; only the last timer is valid.
        self.timer = 0

    def pass_time(self, now: float, speed: float) -> None:
        """Subtract the work done until `now`, and continue at another speed."""
        self.left_s = max(0.0, self.left_s - (now - self.since) * self.speed)
        self.since, self.speed = now, speed


class Node:
    __slots__ = (
        "busy",
        "devices",
        "down_until",
        "model",
        "runs",
        "shared",
        "up",
        "warned_until",
        "withheld",
    )

    def __init__(self, model: NodeModel) -> None:
        self.model = model
        self.up = True
        # Whether its pool has not rented it.
        self.withheld = False
        self.down_until = 0.0
        # Sets of devices are bit sets, so claiming eight costs no more than claiming one.
        self.devices = (1 << model.gpus) - 1
        # Devices that are held, whole or in shares.
        self.busy = 0
        # Device -> the ranks that share it -> the thousandths that each has.
        self.shared: dict[int, dict[Owner, int]] = {}
        # When the node will be taken, if it has notice of that.
        self.warned_until: float | None = None
        # The gangs with ranks here, in the order of arrival, with the number of their ranks.
        self.runs: dict[GangRun, int] = {}


class DeviceLedger:
    def __init__(self, nodes: Iterable[NodeModel]) -> None:
        self.nodes = {node.name: Node(node) for node in nodes}

    def claim(self, run: GangRun) -> list[int]:
        """Allocate every rank's devices, and return the ranks whose devices do not exist."""
        claimed: list[int] = []
        try:
            return self._claim(run, claimed)
        except BaseException:
            # Otherwise the devices claimed so far would never be released.
            self.release(run, claimed)
            raise

    def _claim(self, run: GangRun, claimed: list[int]) -> list[int]:
        nodes, places = self.nodes, run.gang.places
        unplaced = []
        for part in run.gang.parts:
            for rank in part.ranks:
                place = places[rank]
                node = nodes.get(place.node)
                devices = _bits(place.devices)
                if node is None or not node.up or devices & ~node.devices:
                    unplaced.append(rank)
                    continue
                if share := run.gang.share(rank):
                    _claim_share(node, run.gang, rank, share)
                else:
                    assert not node.busy & devices, f"{run.gang.key}: {place} is taken"
                    node.busy |= devices
                node.runs[run] = node.runs.get(run, 0) + 1
                claimed.append(rank)
        return unplaced

    def release(self, run: GangRun, ranks: Iterable[int]) -> None:
        """Release the devices of ranks that have ended."""
        nodes, places = self.nodes, run.gang.places
        for rank in ranks:
            place = places[rank]
            node = nodes[place.node]
            if run.gang.share(rank):
                _release_share(node, run.gang, rank)
            else:
                node.busy ^= _bits(place.devices)
            node.runs[run] -= 1
            if not node.runs[run]:
                del node.runs[run]
        run.alive.difference_update(ranks)
        run.whole = False

    def allocations(self) -> Iterator[tuple[NodeModel, int, tuple[Allocation, ...]]]:
        """Yield every device of the nodes that are up, with its allocations: none, one, or several shares."""
        held: dict[tuple[str, int], list[Allocation]] = {}
        for run in {run: None for node in self.nodes.values() for run in node.runs}:
            for rank in sorted(run.alive):
                place, share = run.gang.places[rank], run.gang.share(rank)
                memory = self.nodes[place.node].model.device_memory_mib * (share or WHOLE) // WHOLE
                hold = Allocation(Owner(run.gang.key, rank), share or WHOLE, memory)
                for device in place.devices:
                    held.setdefault((place.node, device), []).append(hold)
        for node in self.nodes.values():
            if node.up:
                for device in range(node.model.gpus):
                    yield node.model, device, tuple(held.get((node.model.name, device), ()))


def _claim_share(node: Node, gang: Gang, rank: int, share: int) -> None:
    """Allocate a share of a device, which is busy from its first share to its last."""
    (device,) = gang.places[rank].devices
    sharers = node.shared.get(device)
    if sharers is None:
        assert not node.busy >> device & 1, f"{gang.key}: {gang.places[rank]} is taken as a whole"
        node.busy |= 1 << device
        sharers = node.shared[device] = {}
    taken = sum(sharers.values())
    assert 0 < share <= WHOLE - taken, f"{gang.key}: {share} of {gang.places[rank]}, {taken} taken"
    sharers[Owner(gang.key, rank)] = share


def _release_share(node: Node, gang: Gang, rank: int) -> None:
    (device,) = gang.places[rank].devices
    sharers = node.shared[device]
    del sharers[Owner(gang.key, rank)]
    if not sharers:
        del node.shared[device]
        node.busy ^= 1 << device


# Bounded, because the number of combinations is unlimited in a large cluster.
@lru_cache(maxsize=4096)
def _bits(devices: tuple[int, ...]) -> int:
    bits = 0
    for device in devices:
        assert not bits >> device & 1, f"device {device} twice for one rank"
        bits |= 1 << device
    return bits
