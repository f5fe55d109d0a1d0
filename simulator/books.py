"""The device ledger: which ranks hold which devices, kept apart from what the caller believes.

A rank holds whole devices, or a share of one device together with the same share of its memory. A
device that is given away twice, or shared beyond its whole, is an AssertionError here.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from simulator.gangs import Gang, Part
from simulator.time_slicing import WHOLE, Holder
from simulator.topology import NodeModel


class Held(NamedTuple):
    """A rank's hold on a device: the thousandths of it that it has, and as much of its memory."""

    holder: Holder
    share: int
    memory_mib: int


class Run:
    """A gang while something of it holds devices."""

    __slots__ = ("alive", "awaited", "begun", "broken", "gang", "stopping", "timed", "whole")

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
        # Work of given duration on shared devices, whose end moves with the speed.
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
        # How often the end was set; only the last timer counts.
        self.timer = 0

    def pass_time(self, now: float, speed: float) -> None:
        """Count what was done until now, and go on at another speed."""
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
        # Its pool has not rented it.
        self.withheld = False
        self.down_until = 0.0
        # Sets of devices are bits, so that claiming eight costs no more than claiming one.
        self.devices = (1 << model.gpus) - 1
        # Devices that are held, whole or in shares.
        self.busy = 0
        # Device -> the ranks that share it -> the thousandths that each has.
        self.shared: dict[int, dict[Holder, int]] = {}
        # Until when a node that will be taken is still there, as everybody has been told.
        self.warned_until: float | None = None
        # Who runs here, in the order of arrival, and with how many ranks.
        self.runs: dict[Run, int] = {}


class Books:
    def __init__(self, nodes: Iterable[NodeModel]) -> None:
        self.nodes = {node.name: Node(node) for node in nodes}

    def claim(self, run: Run) -> list[int]:
        """Takes every rank's devices, and returns the ranks whose devices are not there."""
        claimed: list[int] = []
        try:
            return self._claim(run, claimed)
        except BaseException:
            # What was taken so far would otherwise be lost for ever.
            self.release(run, claimed)
            raise

    def _claim(self, run: Run, claimed: list[int]) -> list[int]:
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
                if share := run.gang.share(rank):
                    _claim_share(node, run.gang, rank, share)
                else:
                    assert not node.busy & devices, f"{run.gang.key}: {place} is taken"
                    node.busy |= devices
                node.runs[run] = node.runs.get(run, 0) + 1
                claimed.append(rank)
        return homeless

    def release(self, run: Run, ranks: Iterable[int]) -> None:
        """Gives back the devices of some ranks, which are no more."""
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

    def holders(self) -> Iterator[tuple[NodeModel, int, tuple[Held, ...]]]:
        """Every device of a node that is up, and the ranks that hold it: none, one, or sharers."""
        held: dict[tuple[str, int], list[Held]] = {}
        for run in {run: None for node in self.nodes.values() for run in node.runs}:
            for rank in sorted(run.alive):
                place, share = run.gang.places[rank], run.gang.share(rank)
                memory = self.nodes[place.node].model.device_memory_mib * (share or WHOLE) // WHOLE
                hold = Held(Holder(run.gang.key, rank), share or WHOLE, memory)
                for device in place.devices:
                    held.setdefault((place.node, device), []).append(hold)
        for node in self.nodes.values():
            if node.up:
                for device in range(node.model.gpus):
                    yield node.model, device, tuple(held.get((node.model.name, device), ()))


def _claim_share(node: Node, gang: Gang, rank: int, share: int) -> None:
    """A device is busy from its first sharer to its last."""
    (device,) = gang.places[rank].devices
    sharers = node.shared.get(device)
    if sharers is None:
        assert not node.busy >> device & 1, f"{gang.key}: {gang.places[rank]} is taken as a whole"
        node.busy |= 1 << device
        sharers = node.shared[device] = {}
    taken = sum(sharers.values())
    assert 0 < share <= WHOLE - taken, f"{gang.key}: {share} of {gang.places[rank]}, {taken} taken"
    sharers[Holder(gang.key, rank)] = share


def _release_share(node: Node, gang: Gang, rank: int) -> None:
    (device,) = gang.places[rank].devices
    sharers = node.shared[device]
    del sharers[Holder(gang.key, rank)]
    if not sharers:
        del node.shared[device]
        node.busy ^= 1 << device


# Bounded, because a pool of thousands of GPUs has no end of combinations.
@lru_cache(maxsize=4096)
def _bits(devices: tuple[int, ...]) -> int:
    bits = 0
    for device in devices:
        assert not bits >> device & 1, f"device {device} twice for one rank"
        bits |= 1 << device
    return bits
