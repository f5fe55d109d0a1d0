"""The assembled model: start gangs, stop them, and tell what happens to ranks and nodes.

The machine is the honest witness. It keeps its own books on devices, and a device given to two
ranks at once is an AssertionError here, whatever the caller believes.

A gang costs two SimPy events, one when its ranks are up and one when they end, however many ranks
it has, as long as they behave alike; so these are callbacks on timeouts and not processes.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import chain
from typing import NamedTuple

import simpy
from simpy.events import Event, Timeout

from simulator.faults import Fault, FaultKind, node_faults, rack_faults
from simulator.gangs import Gang, Key, Mishap, Part, Place, Work
from simulator.machine_training import Training
from simulator.topology import ClusterModel, NodeModel

__all__ = ["Gang", "Machine", "Mishap", "Part", "Place", "Work"]


class Started(NamedTuple):
    key: Key
    ranks: tuple[int, ...]


class End(NamedTuple):
    """Ranks that exited with a code, that a fault of their node took, or that had no place."""

    ranks: tuple[int, ...]
    code: int | None
    fault: FaultKind | None = None
    node: str = ""
    # Which part of the node failed, or why the rank exited by itself.
    reason: str = ""


class Ended(NamedTuple):
    key: Key
    ends: tuple[End, ...]


class Stopped(NamedTuple):
    """Nothing is left of the ranks that were told to stop."""

    key: Key
    ranks: tuple[int, ...]


class NodeDown(NamedTuple):
    """Comes after the ends of what ran there, at the same instant."""

    node: str
    kind: FaultKind
    reason: str = ""


class NodeUp(NamedTuple):
    node: str


class Misplaced(NamedTuple):
    """Ranks were to start on a node that is down or unknown, or on devices that it lacks."""

    node: str


Happening = Started | Ended | Stopped | NodeDown | NodeUp | Misplaced


class _Run:
    """A gang while something of it holds devices."""

    __slots__ = ("alive", "awaited", "broken", "gang", "stopping", "whole")

    def __init__(self, gang: Gang) -> None:
        self.gang = gang
        self.alive = {rank for part in gang.parts for rank in part.ranks}
        # Every rank is still there.
        self.whole = True
        # A fault took a rank, which the others wait for in vain.
        self.broken = False
        # Ranks that are still to come up.
        self.awaited = 0
        self.stopping = False


class _Node:
    __slots__ = ("busy", "devices", "down_until", "model", "runs", "up", "withheld")

    def __init__(self, model: NodeModel) -> None:
        self.model = model
        self.up = True
        # Its pool has not rented it.
        self.withheld = False
        self.down_until = 0.0
        # Sets of devices are bits, so that claiming eight costs no more than claiming one.
        self.devices = (1 << model.gpus) - 1
        self.busy = 0
        # Who runs here, in the order of arrival, and with how many ranks.
        self.runs: dict[_Run, int] = {}


class Machine:
    def __init__(
        self, env: simpy.Environment, cluster: ClusterModel, tell: Callable[[Happening], None]
    ) -> None:
        self._env = env
        self._tell = tell
        self._delays = cluster.delays
        self._seed = cluster.seed
        self._nodes = {node.name: _Node(node) for node in cluster.nodes}
        self._runs: dict[Key, _Run] = {}
        self.training = Training(env, cluster, self._trained)
        for fault in cluster.faults.script:
            self._expect(iter((fault,)))
        racks = defaultdict[str, list[str]](list)
        for node in cluster.nodes:
            self._expect(node_faults(node.name, node.rack, cluster.faults, cluster.seed))
            racks[node.rack].append(node.name)
        for rack, names in racks.items():
            self._expect(rack_faults(rack, tuple(names), cluster.faults, cluster.seed))

    @property
    def nodes(self) -> Iterable[str]:
        return self._nodes.keys()

    @property
    def keys(self) -> Iterable[Key]:
        """The gangs of which something holds devices."""
        return self._runs.keys()

    def node(self, name: str) -> tuple[NodeModel, bool] | None:
        """A node and whether it is up, or None if there is no such node."""
        node = self._nodes.get(name)
        return None if node is None else (node.model, node.up)

    def withhold(self, name: str, *, quietly: bool = False) -> None:
        """An idle node leaves the cluster until it is brought; quietly if it never was there."""
        node = self._nodes[name]
        assert not node.runs, f"{name} is given back, and something runs there"
        was_up, node.up, node.withheld = node.up, False, True
        if was_up and not quietly:
            self._tell(NodeDown(name, FaultKind.GIVEN_BACK))

    def bring(self, name: str) -> None:
        """A node that was withheld comes, unless a fault holds it."""
        node = self._nodes[name]
        node.withheld = False
        if not node.up and self._env.now >= node.down_until:
            node.up = True
            self._tell(NodeUp(name))

    def is_withheld(self, name: str) -> bool:
        return self._nodes[name].withheld

    def is_busy(self, name: str) -> bool:
        return bool(self._nodes[name].runs)

    def holders(self) -> Iterator[tuple[NodeModel, int, Key | None]]:
        """Every device of a node that is up, and the gang that holds it."""
        for node in self._nodes.values():
            if not node.up:
                continue
            held: dict[int, Key] = {}
            for run in node.runs:
                for rank in run.alive:
                    place = run.gang.places[rank]
                    if place.node == node.model.name:
                        held.update(dict.fromkeys(place.devices, run.gang.key))
            for device in range(node.model.gpus):
                yield node.model, device, held.get(device)

    def start(self, gang: Gang, *, since_s: float = 0.0) -> None:
        """Gives every rank its devices now; ranks whose place is down or unknown end at once.

        A gang that was asked for `since_s` ago, elsewhere, has that much of its start behind it.
        """
        assert gang.key not in self._runs, f"{gang.key} runs already"
        run = _Run(gang)
        homeless = self._claim(run)
        if homeless:
            run.alive.difference_update(homeless)
            run.whole = False
            run.broken = gang.together
            self._turn_away(gang, homeless)
        if not run.alive:
            return
        self._runs[gang.key] = run
        coming = _coming(gang.parts)
        run.awaited = len(coming)
        for delay_s, ranks in self._start_groups(gang.key, coming):
            self._after(max(0.0, delay_s - since_s), partial(self._come_up, run, ranks))
        if not gang.together:
            self._work(run, [part for part in gang.parts if part.elapsed_s is not None])
        elif not coming:
            self._work(run, gang.parts)

    def stop(self, key: Key, *, since_s: float = 0.0) -> None:
        """What is left of the gang goes away, and is told as `Stopped`.

        If it was told `since_s` ago, elsewhere, that much of the time it takes is over.
        """
        run = self._runs.get(key)
        if run is not None and not run.stopping:
            run.stopping = True
            self.training.end(key)
            self._after(max(0.0, self._delays.stop_s - since_s), partial(self._vanish, run))

    def stop_ranks(self, key: Key, ranks: Iterable[int]) -> None:
        """Some ranks of a gang go away, and the others go on."""
        run = self._runs.get(key)
        leaving = frozenset(ranks)
        if run is not None and not run.stopping and leaving & run.alive:
            self._after(self._delays.stop_s, partial(self._drop, run, leaving))

    def _drop(self, run: _Run, leaving: frozenset[int], _: Event) -> None:
        ranks = tuple(sorted(leaving & run.alive))
        if ranks:
            self._release(run, ranks)
            self._tell(Stopped(run.gang.key, ranks))

    def fail(
        self,
        name: str,
        repair_s: float | None,
        kind: FaultKind = FaultKind.CRASH,
        *,
        reason: str = "",
        noticed_s: float = 0.0,
    ) -> None:
        """A node fails now, and all that runs there ends with it."""
        node = self._nodes[name]
        until = float("inf") if repair_s is None else self._env.now + repair_s
        node.down_until = max(node.down_until, until)
        if repair_s is not None:
            self._after(repair_s, partial(self._repair, node))
        if not node.up:
            return
        node.up = False
        for run in list(node.runs):
            places = run.gang.places
            ranks = tuple(rank for rank in sorted(run.alive) if places[rank].node == name)
            if run.gang.together:
                self.training.end(run.gang.key, noticed_s=noticed_s)
            self._release(run, ranks)
            run.broken = run.gang.together
            self._tell(Ended(run.gang.key, (End(ranks, None, kind, name, reason),)))
        assert not node.runs, f"{name} is down, and something runs there"
        self._tell(NodeDown(name, kind, reason))

    def _claim(self, run: _Run) -> list[int]:
        """Takes every rank's devices, and returns the ranks whose devices are not there."""
        nodes, places = self._nodes, run.gang.places
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

    def _turn_away(self, gang: Gang, ranks: list[int]) -> None:
        by_node = defaultdict[str, list[int]](list)
        for rank in ranks:
            by_node[gang.places[rank].node].append(rank)
        ends = [End(tuple(ranks), None, node=node) for node, ranks in by_node.items()]
        self._tell(Ended(gang.key, tuple(ends)))
        for node in by_node:
            self._tell(Misplaced(node))

    def _release(self, run: _Run, ranks: Iterable[int]) -> None:
        nodes, places = self._nodes, run.gang.places
        for rank in ranks:
            place = places[rank]
            node = nodes[place.node]
            node.busy ^= _bits(place.devices)
            node.runs[run] -= 1
            if not node.runs[run]:
                del node.runs[run]
        run.alive.difference_update(ranks)
        run.whole = False
        if not run.alive:
            self.training.end(run.gang.key)
            del self._runs[run.gang.key]

    def _start_groups(
        self, key: Key, ranks: tuple[int, ...]
    ) -> list[tuple[float, tuple[int, ...]]]:
        """When ranks come up: all at once, or each at its own time where there is jitter."""
        start_s, jitter_s = self._delays.start_s, self._delays.start_jitter_s
        if not ranks:
            return []
        if not jitter_s:
            return [(start_s, ranks)]
        return [
            (start_s + jitter_s * _fraction(f"{self._seed}/{key}/{rank}"), (rank,))
            for rank in ranks
        ]

    def _come_up(self, run: _Run, ranks: tuple[int, ...], _: Event) -> None:
        if run.stopping or not run.alive:
            return
        gang, up = run.gang, _living(run, ranks)
        if not up:
            return
        run.awaited -= len(up)
        self._tell(Started(gang.key, up))
        if not gang.together:
            self._work(run, _only(gang.parts, up))
        elif run.awaited == 0:
            self._work(run, gang.parts)

    def _work(self, run: _Run, parts: Sequence[Part]) -> None:
        """Lets parts that take equally long end in one event."""
        by_time: dict[float, list[Part]] = {}
        if run.gang.mishap is not None:
            self._after(run.gang.mishap.after_s, partial(self._slip, run, run.gang.mishap))
        for part in parts:
            if part.work is not None and self.training.begin(run.gang, part):
                continue
            if part.run_s is not None:
                left_s = max(0.0, part.run_s - part.elapsed_s) if part.elapsed_s else part.run_s
                by_time.setdefault(left_s, []).append(part)
        for left_s, alike in by_time.items():
            self._after(left_s, partial(self._finish, run, alike))

    def _finish(self, run: _Run, parts: Sequence[Part], _: Event) -> None:
        self._end_parts(run, parts)

    def _end_parts(self, run: _Run, parts: Sequence[Part]) -> None:
        if run.stopping or run.broken or not run.alive:
            return
        ends = [End(ranks, part.code) for part in parts if (ranks := _living(run, part.ranks))]
        if not ends:
            return
        for end in ends:
            self._release(run, end.ranks)
        self._tell(Ended(run.gang.key, tuple(ends)))

    def _trained(self, gang: Gang, parts: tuple[Part, ...]) -> None:
        run = self._runs.get(gang.key)
        if run is not None and run.gang is gang:
            self._end_parts(run, parts)

    def _slip(self, run: _Run, mishap: Mishap, _: Event) -> None:
        """A rank exits by itself, and the others wait for it in vain."""
        if run.stopping or run.broken or mishap.rank not in run.alive:
            return
        if run.gang.together:
            self.training.end(run.gang.key)
        self._release(run, (mishap.rank,))
        run.broken = run.gang.together
        end = End((mishap.rank,), mishap.code, reason=mishap.reason)
        self._tell(Ended(run.gang.key, (end,)))

    def _vanish(self, run: _Run, _: Event) -> None:
        ranks = tuple(sorted(run.alive))
        if ranks:
            self._release(run, ranks)
            self._tell(Stopped(run.gang.key, ranks))

    def _repair(self, node: _Node, _: Event) -> None:
        if not node.up and not node.withheld and self._env.now >= node.down_until:
            node.up = True
            self._tell(NodeUp(node.model.name))

    def _expect(self, faults: Iterator[Fault]) -> None:
        """Waits for the next fault that is not over yet; one that is under way strikes now."""
        now = self._env.now
        fault = next((f for f in faults if f.at_s >= now or f.over_at_s > now), None)
        if fault is None:
            return
        if fault.at_s >= now:
            self._after(fault.at_s - now, partial(self._strike, fault, faults))
        else:
            left_s = None if fault.repair_s is None else fault.over_at_s - now
            self._befall(fault, left_s)
            self._expect(faults)

    def _strike(self, fault: Fault, faults: Iterator[Fault], _: Event) -> None:
        self._befall(fault, fault.repair_s)
        self._expect(faults)

    def _befall(self, fault: Fault, left_s: float | None) -> None:
        if not fault.kind.takes_node:
            self.training.degrade(fault.node, fault.kind, fault.factor, left_s)
            return
        self.fail(fault.node, left_s, fault.kind, reason=fault.cause, noticed_s=fault.notice_s)

    def _after(self, delay_s: float, call: Callable[[Event], None]) -> None:
        Timeout(self._env, delay_s).callbacks.append(call)


def _coming(parts: tuple[Part, ...]) -> tuple[int, ...]:
    """The ranks that are not up yet."""
    coming = [part.ranks for part in parts if part.elapsed_s is None]
    return coming[0] if len(coming) == 1 else tuple(sorted(chain.from_iterable(coming)))


def _living(run: _Run, ranks: tuple[int, ...]) -> tuple[int, ...]:
    return ranks if run.whole else tuple(rank for rank in ranks if rank in run.alive)


def _only(parts: tuple[Part, ...], ranks: tuple[int, ...]) -> list[Part]:
    """The parts reduced to some of their ranks."""
    chosen = set(ranks)
    reduced = [part._replace(ranks=tuple(r for r in part.ranks if r in chosen)) for part in parts]
    return [part for part in reduced if part.ranks]


# Bounded, because a pool of thousands of GPUs has no end of combinations.
@lru_cache(maxsize=4096)
def _bits(devices: tuple[int, ...]) -> int:
    bits = 0
    for device in devices:
        assert not bits >> device & 1, f"device {device} twice for one rank"
        bits |= 1 << device
    return bits


def _fraction(name: str) -> float:
    """A number from 0 to below 1 that looks random and is the same in every run."""
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return int.from_bytes(digest) / 2**64
