"""The assembled model of a cluster: starts and stops gangs, and emits what happens to ranks and nodes.

The machine keeps its own ledger of devices (`device_ledger.py`), independent of the control plane's,
so that a device given out twice is an error here. What it emits is in `events.py`.

A gang whose ranks behave alike costs two SimPy events, whatever its size: one when its ranks are up
and one when they end. They are callbacks on timeouts, since a process per rank would cost more.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from simulator.faults import Fault, FaultKind
from simulator.kernel.virtual_time import VirtualTime
from simulator.machine.device_ledger import Allocation, DeviceLedger, GangRun, Node
from simulator.machine.events import (
    Broke,
    End,
    Ended,
    MachineEvent,
    NodeDown,
    NodeUp,
    NodeWarned,
    PlacementFailed,
    Started,
    Stopped,
)
from simulator.machine.fault_schedule import schedule_faults
from simulator.machine.gang import Gang, Key, Part, PlannedFailure, coming_ranks, only_ranks
from simulator.machine.gang_training import Saved, Training
from simulator.machine.shared_compute import SharedCompute
from simulator.machine.time_slicing import Device, Owner
from simulator.network.topology import ClusterModel, NodeModel


class Machine:
    def __init__(
        self,
        env: VirtualTime,
        cluster: ClusterModel,
        emit: Callable[[MachineEvent], None],
        saved: Saved | None = None,
        added: Sequence[NodeModel] = (),
    ) -> None:
        """`added` nodes run work as the model's nodes do, but have no faults."""
        self._env = env
        self._emit = emit
        self._delays = cluster.delays
        self._seed = cluster.seed
        whole = replace(cluster, nodes=(*cluster.nodes, *added)) if added else cluster
        self._ledger = DeviceLedger(whole.nodes)
        self._nodes = self._ledger.nodes
        self._runs: dict[Key, GangRun] = {}
        self.training = Training(env, whole, self._trained, saved, self.guarded)
        self._sharing = SharedCompute(env, self._runs, self.training, self._end_parts, self.guarded)
        # Nodes whose faults are suppressed from now on.
        self.spared: frozenset[str] = frozenset()
        self._expected = schedule_faults(
            env, cluster, apply_fault=self._apply_fault, warn=self._warn
        )

    @property
    def nodes(self) -> Iterable[str]:
        return self._nodes.keys()

    @property
    def keys(self) -> Iterable[Key]:
        """The gangs that hold devices."""
        return self._runs.keys()

    def node(self, name: str) -> tuple[NodeModel, bool] | None:
        """Return a node and whether it accepts work; None if there is no such node."""
        node = self._nodes.get(name)
        return None if node is None else (node.model, node.up and node.warned_until is None)

    def withhold(self, name: str, *, quietly: bool = False) -> None:
        """Remove a node until `bring`. Unless `quietly`, it must be idle, and its loss is emitted."""
        node = self._nodes[name]
        if quietly:
            for run in list(node.runs):
                self.forget(run.gang.key, run.ranks_on(name))
        assert not node.runs, f"{name} is given back, and something runs there"
        was_up, node.up, node.withheld = node.up, False, True
        if was_up and not quietly:
            self._emit(NodeDown(name, FaultKind.GIVEN_BACK))

    def bring(self, name: str) -> None:
        """Add a node that was withheld, unless a fault keeps it down."""
        node = self._nodes[name]
        node.withheld = False
        if not node.up and self._env.now >= node.down_until:
            node.up = True
            self._emit(NodeUp(name))

    def is_withheld(self, name: str) -> bool:
        return self._nodes[name].withheld

    def is_busy(self, name: str) -> bool:
        return bool(self._nodes[name].runs)

    def allocations(self) -> Iterator[tuple[NodeModel, int, tuple[Allocation, ...]]]:
        """Yield every device of the nodes that are up, with its allocations: none, one, or several shares."""
        return self._ledger.allocations()

    def speed(self, owner: Owner, node: str, device: int) -> float:
        """Return the fraction of its own speed at which a rank computes on a shared device."""
        return self._sharing.speed(owner, Device(node, device))

    def start(self, gang: Gang, *, since_s: float = 0.0) -> None:
        """Allocate every rank's devices now; ranks whose node is down or unknown end at once.

        The start of a gang that was requested `since_s` ago, elsewhere, takes that much less.
        """
        assert gang.key not in self._runs, f"{gang.key} runs already"
        run = GangRun(gang)
        unplaced = self._ledger.claim(run)
        if unplaced:
            run.alive.difference_update(unplaced)
            run.whole = False
            run.broken = gang.together
            self._reject(gang, unplaced)
        if not run.alive:
            return
        self._runs[gang.key] = run
        coming = coming_ranks(gang.parts)
        run.awaited = len(coming)
        for delay_s, ranks in self._start_groups(gang.key, coming):
            self._later(max(0.0, delay_s - since_s), run, partial(self._come_up, run, ranks))
        if not gang.together:
            self._work(run, [part for part in gang.parts if part.elapsed_s is not None])
        elif not coming:
            self._work(run, gang.parts)

    def stop(self, key: Key, *, since_s: float = 0.0) -> None:
        """Stop the remaining ranks of the gang; `Stopped` is emitted when they are gone.

        A gang that trains on a node with notice of its loss writes a checkpoint first, if it can.
        A stop that was requested `since_s` ago, elsewhere, takes that much less.
        """
        run = self._runs.get(key)
        if run is not None and not run.stopping:
            run.stopping = True
            written_s = self.training.end(key, noticed_s=self._notice_s(run))
            stop_s = max(self._delays.stop_s, written_s)
            self._later(max(0.0, stop_s - since_s), run, partial(self._remove, run))

    def alive(self, key: Key) -> frozenset[int]:
        """Return the ranks of a gang that hold devices."""
        run = self._runs.get(key)
        return frozenset() if run is None else frozenset(run.alive)

    def forget(self, key: Key, ranks: Iterable[int]) -> None:
        """Remove ranks of a gang without emitting anything, because the caller knows of their end."""
        run = self._runs.get(key)
        gone = () if run is None else tuple(sorted(run.alive.intersection(ranks)))
        if run is not None and gone:
            self._release(run, gone)

    def stop_ranks(self, key: Key, ranks: Iterable[int]) -> None:
        """Stop some ranks of a gang; the others continue."""
        run = self._runs.get(key)
        leaving = frozenset(ranks)
        if run is not None and not run.stopping and leaving & run.alive:
            self._later(self._delays.stop_s, run, partial(self._drop, run, leaving))

    def _drop(self, run: GangRun, leaving: frozenset[int]) -> None:
        ranks = tuple(sorted(leaving & run.alive))
        if ranks:
            self._release(run, ranks)
            self._emit(Stopped(run.gang.key, ranks))

    def expect(self, fault: Fault) -> None:
        """Schedule one more fault, of a node of this machine; one that is due begins now."""
        self._expected.schedule_next(iter((fault,)))

    def fail(
        self,
        name: str,
        repair_s: float | None,
        kind: FaultKind = FaultKind.CRASH,
        *,
        reason: str = "",
        noticed_s: float = 0.0,
    ) -> None:
        """Make a node fail now, with every rank on it; for `repair_s`, or for good if that is None."""
        node = self._nodes[name]
        until = float("inf") if repair_s is None else self._env.now + repair_s
        node.down_until = max(node.down_until, until)
        if repair_s is not None:
            self._env.call_after(repair_s, partial(self._repair, node))
        if not node.up:
            return
        node.up, node.warned_until = False, None
        for run in list(node.runs):
            end = End(run.ranks_on(name), None, kind, name, reason)
            self.guarded(run.gang.key, partial(self._take_down, run, end, noticed_s))
        assert not node.runs, f"{name} is down, and something runs there"
        self._emit(NodeDown(name, kind, reason))

    def _take_down(self, run: GangRun, end: End, noticed_s: float) -> None:
        if run.gang.together:
            self.training.end(run.gang.key, noticed_s=noticed_s, whole=True)
        self._release(run, end.ranks)
        self._break(run)
        if run.gang.elastic:
            # The ranks that are left need a new rendezvous, which takes as long as a start.
            self._later(self._delays.start_s, run, partial(self._rendezvous, run))
        self._emit(Ended(run.gang.key, (end,)))

    # -- errors that concern one gang ---------------------------------------------------------

    def _later(self, delay_s: float, run: GangRun, call: Callable[[], None]) -> None:
        self._env.call_after(delay_s, partial(self.guarded, run.gang.key, call))

    def guarded(self, key: Key, call: Callable[[], None]) -> None:
        """Run `call` for one gang; if it raises, discard that gang and emit `Broke`."""
        try:
            call()
        except Exception as error:  # noqa: BLE001 - emitted as the end of the gang
            ranks = self.discard(key)
            self._emit(Broke(key, ranks, error))

    def discard(self, key: Key) -> tuple[int, ...]:
        """Remove a gang, whatever its state, without emitting anything. Return the ranks it had."""
        run = self._runs.pop(key, None)
        ranks = () if run is None else tuple(sorted(run.alive))
        if run is not None:
            run.stopping = True
            self._ledger.release(run, ranks)
        self.training.discard(key)
        if run is not None and run.gang.shares:
            with suppress(Exception):
                # The same error for which the gang is discarded may be raised again.
                self._sharing.release(run, ranks)
        return ranks

    def _reject(self, gang: Gang, ranks: list[int]) -> None:
        by_node = defaultdict[str, list[int]](list)
        for rank in ranks:
            by_node[gang.places[rank].node].append(rank)
        ends = [End(tuple(ranks), None, node=node) for node, ranks in by_node.items()]
        self._emit(Ended(gang.key, tuple(ends)))
        for node in by_node:
            self._emit(PlacementFailed(node))

    def _release(self, run: GangRun, ranks: Iterable[int]) -> None:
        self._ledger.release(run, ranks)
        if not run.alive:
            self.training.end(run.gang.key)
            del self._runs[run.gang.key]
        else:
            self.training.leave(run.gang.key, ranks)
        if run.gang.shares:
            self._sharing.release(run, ranks)

    def _start_groups(
        self, key: Key, ranks: tuple[int, ...]
    ) -> list[tuple[float, tuple[int, ...]]]:
        """Return the start delays with their ranks: one delay, or one per rank if there is jitter."""
        start_s, jitter_s = self._delays.start_s, self._delays.start_jitter_s
        if not ranks:
            return []
        if not jitter_s:
            return [(start_s, ranks)]
        return [
            (start_s + jitter_s * _fraction(f"{self._seed}/{key}/{rank}"), (rank,))
            for rank in ranks
        ]

    def _come_up(self, run: GangRun, ranks: tuple[int, ...]) -> None:
        if run.stopping or not run.alive:
            return
        gang, up = run.gang, run.living(ranks)
        if not up:
            return
        run.awaited -= len(up)
        self._emit(Started(gang.key, up))
        if not gang.together:
            self._work(run, only_ranks(gang.parts, up))
        elif run.awaited == 0:
            self._work(run, gang.parts)

    def _break(self, run: GangRun) -> None:
        """Mark a gang that lost a rank, and those joined with it, as hanging in a collective."""
        run.broken = run.gang.together
        if run.gang.joins is not None or run.begun > 1 or run.gang.elastic:
            for other in self._group_members(run):
                other.broken = True

    def _group_members(self, run: GangRun) -> list[GangRun]:
        """Return the other gangs that work together with this one, because one joined the other."""
        first = run.gang.key if run.gang.joins is None else run.gang.joins
        return [
            other
            for key, other in self._runs.items()
            if other is not run and (key == first or other.gang.joins == first)
        ]

    def _resume_group(self, run: GangRun) -> None:
        """Restart the work of the gangs that were hanging until this one joined them."""
        for other in self._group_members(run):
            self._restart_work(other)

    def _rendezvous(self, run: GangRun) -> None:
        """Continue an elastic gang with the ranks that are left, if it still hangs."""
        for one in (run, *self._group_members(run)):
            if one.alive and not one.awaited:
                self._restart_work(one)

    def _restart_work(self, run: GangRun) -> None:
        if run.broken and not run.stopping:
            run.broken = False
            parts = run.gang.parts
            left = [part._replace(ranks=run.living(part.ranks)) for part in parts]
            self._work(run, [part._replace(elapsed_s=None) for part in left if part.ranks])

    def _work(self, run: GangRun, parts: Sequence[Part]) -> None:
        """Schedule the end of each part; parts of the same length share one event."""
        run.begun += 1
        by_time: dict[float, list[Part]] = {}
        if run.gang.failure is not None and run.begun == 1:
            failure = run.gang.failure
            self._later(failure.after_s, run, partial(self._fail_rank, run, failure))
        for part in parts:
            if part.work is not None and self.training.begin(run.gang, part, run.alive):
                continue
            if part.run_s is not None:
                left_s = max(0.0, part.run_s - part.elapsed_s) if part.elapsed_s else part.run_s
                by_time.setdefault(left_s, []).append(part)
        if run.gang.shares:
            self._sharing.begin(run, parts, by_time)
            by_time = {}
        for left_s, alike in by_time.items():
            self._later(left_s, run, partial(self._finish, run, alike, run.begun))
        if run.gang.joins is not None:
            self._resume_group(run)

    def _finish(self, run: GangRun, parts: Sequence[Part], begun: int) -> None:
        if begun == run.begun or not run.gang.together:
            self._end_parts(run, parts)

    def _end_parts(self, run: GangRun, parts: Sequence[Part]) -> None:
        if run.stopping or run.broken or not run.alive:
            return
        ends = [End(ranks, part.code) for part in parts if (ranks := run.living(part.ranks))]
        if not ends:
            return
        for end in ends:
            self._release(run, end.ranks)
        self._emit(Ended(run.gang.key, tuple(ends)))

    def _trained(self, gang: Gang, parts: tuple[Part, ...]) -> None:
        run = self._runs.get(gang.key)
        if run is not None and run.gang is gang:
            self._end_parts(run, parts)

    def _fail_rank(self, run: GangRun, failure: PlannedFailure) -> None:
        """Exit a rank as planned; the others hang."""
        if run.stopping or run.broken or failure.rank not in run.alive:
            return
        if run.gang.together:
            self.training.end(run.gang.key, whole=True)
        self._release(run, (failure.rank,))
        self._break(run)
        end = End(
            (failure.rank,),
            failure.code,
            reason=failure.reason,
            permanent=failure.permanent,
            out_of_memory=failure.out_of_memory,
        )
        self._emit(Ended(run.gang.key, (end,)))

    def _remove(self, run: GangRun) -> None:
        ranks = tuple(sorted(run.alive))
        if ranks:
            self._release(run, ranks)
            self._emit(Stopped(run.gang.key, ranks))

    def _repair(self, node: Node) -> None:
        if not node.up and not node.withheld and self._env.now >= node.down_until:
            node.up = True
            self._emit(NodeUp(node.model.name))

    def _apply_fault(self, fault: Fault, left_s: float | None) -> None:
        if fault.node in self.spared:
            return
        if not fault.kind.takes_node:
            self.training.degrade(fault.node, fault.kind, fault.factor, left_s)
            return
        self.fail(fault.node, left_s, fault.kind, reason=fault.cause, noticed_s=fault.notice_s)

    def _warn(self, fault: Fault, left_s: float) -> None:
        node = self._nodes[fault.node]
        if not node.up or not fault.kind.takes_node or fault.node in self.spared:
            return
        node.warned_until = self._env.now + left_s
        there = tuple((run.gang.key, run.ranks_on(fault.node)) for run in node.runs)
        self._emit(NodeWarned(fault.node, fault.kind, left_s, there))

    def _notice_s(self, run: GangRun) -> float:
        """Return the seconds until the first of its nodes is taken; 0 if none has notice."""
        places = run.gang.places
        ends = [self._nodes[places[rank].node].warned_until for rank in run.alive]
        return max(0.0, min((end for end in ends if end), default=0.0) - self._env.now)


def _fraction(name: str) -> float:
    """Return a pseudo-random number in [0, 1) that depends on the name alone."""
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return int.from_bytes(digest) / 2**64
