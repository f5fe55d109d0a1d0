"""The assembled model: start gangs, stop them, and tell what happens to ranks and nodes.

The machine is the honest witness: it keeps its own books on devices (`books.py`), and what it tells
are `happenings.py`.

A gang costs two SimPy events, one when its ranks are up and one when they end, however many ranks
it has, as long as they behave alike; so these are callbacks on timeouts and not processes.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from simulator.books import Books, Held, Node, Run
from simulator.expected_faults import expect_faults
from simulator.faults import Fault, FaultKind
from simulator.gangs import Gang, Key, Mishap, Part, coming_ranks, only_ranks
from simulator.happenings import (
    Broke,
    End,
    Ended,
    Happening,
    Misplaced,
    NodeDown,
    NodeUp,
    NodeWarned,
    Started,
    Stopped,
)
from simulator.machine_training import Saved, Training
from simulator.shared_compute import SharedCompute
from simulator.time_slicing import Device, Holder
from simulator.topology import ClusterModel, NodeModel
from simulator.virtual_time import VirtualTime


class Machine:
    def __init__(
        self,
        env: VirtualTime,
        cluster: ClusterModel,
        tell: Callable[[Happening], None],
        saved: Saved | None = None,
        added: Sequence[NodeModel] = (),
    ) -> None:
        """`added` nodes take work as the others do, and no fault of the model touches them."""
        self._agenda = env.agenda
        self._tell = tell
        self._delays = cluster.delays
        self._seed = cluster.seed
        whole = replace(cluster, nodes=(*cluster.nodes, *added)) if added else cluster
        self._books = Books(whole.nodes)
        self._nodes = self._books.nodes
        self._runs: dict[Key, Run] = {}
        self.training = Training(env, whole, self._trained, saved, self.guarded)
        self._sharing = SharedCompute(
            env.agenda, self._runs, self.training, self._end_parts, self.guarded
        )
        # Nodes whose faults do not happen from here on.
        self.spared: frozenset[str] = frozenset()
        expect_faults(env, cluster, befall=self._befall, warn=self._warn)

    @property
    def nodes(self) -> Iterable[str]:
        return self._nodes.keys()

    @property
    def keys(self) -> Iterable[Key]:
        """The gangs of which something holds devices."""
        return self._runs.keys()

    def node(self, name: str) -> tuple[NodeModel, bool] | None:
        """A node and whether it is there to stay, or None if there is no such node."""
        node = self._nodes.get(name)
        return None if node is None else (node.model, node.up and node.warned_until is None)

    def withhold(self, name: str, *, quietly: bool = False) -> None:
        """An idle node leaves the cluster until it is brought; quietly if it never was there."""
        node = self._nodes[name]
        if quietly:
            for run in list(node.runs):
                self.forget(run.gang.key, run.ranks_on(name))
        assert not node.runs, f"{name} is given back, and something runs there"
        was_up, node.up, node.withheld = node.up, False, True
        if was_up and not quietly:
            self._tell(NodeDown(name, FaultKind.GIVEN_BACK))

    def bring(self, name: str) -> None:
        """A node that was withheld comes, unless a fault holds it."""
        node = self._nodes[name]
        node.withheld = False
        if not node.up and self._agenda.now >= node.down_until:
            node.up = True
            self._tell(NodeUp(name))

    def is_withheld(self, name: str) -> bool:
        return self._nodes[name].withheld

    def is_busy(self, name: str) -> bool:
        return bool(self._nodes[name].runs)

    def holders(self) -> Iterator[tuple[NodeModel, int, tuple[Held, ...]]]:
        """Every device of a node that is up, and the ranks that hold it: none, one, or sharers."""
        return self._books.holders()

    def speed(self, holder: Holder, node: str, device: int) -> float:
        """The part of its own speed at which a rank computes on a device that it shares."""
        return self._sharing.speed(holder, Device(node, device))

    def start(self, gang: Gang, *, since_s: float = 0.0) -> None:
        """Gives every rank its devices now; ranks whose place is down or unknown end at once.

        A gang that was asked for `since_s` ago, elsewhere, has that much of its start behind it.
        """
        assert gang.key not in self._runs, f"{gang.key} runs already"
        run = Run(gang)
        homeless = self._books.claim(run)
        if homeless:
            run.alive.difference_update(homeless)
            run.whole = False
            run.broken = gang.together
            self._turn_away(gang, homeless)
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
        """What is left of the gang goes away, and is told as `Stopped`.

        One that trains on a node which is about to be taken writes a checkpoint first, in time.
        If it was told `since_s` ago, elsewhere, that much of the time it takes is over.
        """
        run = self._runs.get(key)
        if run is not None and not run.stopping:
            run.stopping = True
            written_s = self.training.end(key, noticed_s=self._notice_s(run))
            stop_s = max(self._delays.stop_s, written_s)
            self._later(max(0.0, stop_s - since_s), run, partial(self._vanish, run))

    def alive(self, key: Key) -> frozenset[int]:
        """The ranks of a gang that hold devices."""
        run = self._runs.get(key)
        return frozenset() if run is None else frozenset(run.alive)

    def forget(self, key: Key, ranks: Iterable[int]) -> None:
        """Some ranks of a gang are no more, which is known already and is not told."""
        run = self._runs.get(key)
        gone = () if run is None else tuple(sorted(run.alive.intersection(ranks)))
        if run is not None and gone:
            self._release(run, gone)

    def stop_ranks(self, key: Key, ranks: Iterable[int]) -> None:
        """Some ranks of a gang go away, and the others go on."""
        run = self._runs.get(key)
        leaving = frozenset(ranks)
        if run is not None and not run.stopping and leaving & run.alive:
            self._later(self._delays.stop_s, run, partial(self._drop, run, leaving))

    def _drop(self, run: Run, leaving: frozenset[int]) -> None:
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
        until = float("inf") if repair_s is None else self._agenda.now + repair_s
        node.down_until = max(node.down_until, until)
        if repair_s is not None:
            self._agenda.call_after(repair_s, partial(self._repair, node))
        if not node.up:
            return
        node.up, node.warned_until = False, None
        for run in list(node.runs):
            end = End(run.ranks_on(name), None, kind, name, reason)
            self.guarded(run.gang.key, partial(self._take_down, run, end, noticed_s))
        assert not node.runs, f"{name} is down, and something runs there"
        self._tell(NodeDown(name, kind, reason))

    def _take_down(self, run: Run, end: End, noticed_s: float) -> None:
        if run.gang.together:
            self.training.end(run.gang.key, noticed_s=noticed_s, whole=True)
        self._release(run, end.ranks)
        self._break(run)
        if run.gang.elastic:
            # They notice the loss and meet again, which takes as long as to come up.
            self._later(self._delays.start_s, run, partial(self._meet_again, run))
        self._tell(Ended(run.gang.key, (end,)))

    # -- what raises for one gang -------------------------------------------------------------

    def _later(self, delay_s: float, run: Run, call: Callable[[], None]) -> None:
        self._agenda.call_after(delay_s, partial(self.guarded, run.gang.key, call))

    def guarded(self, key: Key, call: Callable[[], None]) -> None:
        """Calls for one gang; if that raises, the gang is no more, and all others go on."""
        try:
            call()
        except Exception as error:  # noqa: BLE001 - it is told as what became of the gang
            ranks = self.discard(key)
            self._tell(Broke(key, ranks, error))

    def discard(self, key: Key) -> tuple[int, ...]:
        """Takes a gang away, whatever is wrong with it; nothing is told. Returns the ranks it had."""
        run = self._runs.pop(key, None)
        ranks = () if run is None else tuple(sorted(run.alive))
        if run is not None:
            run.stopping = True
            self._books.release(run, ranks)
        self.training.discard(key)
        if run is not None and run.gang.shares:
            with suppress(Exception):
                # What raises here is what the gang is discarded for.
                self._sharing.release(run, ranks)
        return ranks

    def _turn_away(self, gang: Gang, ranks: list[int]) -> None:
        by_node = defaultdict[str, list[int]](list)
        for rank in ranks:
            by_node[gang.places[rank].node].append(rank)
        ends = [End(tuple(ranks), None, node=node) for node, ranks in by_node.items()]
        self._tell(Ended(gang.key, tuple(ends)))
        for node in by_node:
            self._tell(Misplaced(node))

    def _release(self, run: Run, ranks: Iterable[int]) -> None:
        self._books.release(run, ranks)
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

    def _come_up(self, run: Run, ranks: tuple[int, ...]) -> None:
        if run.stopping or not run.alive:
            return
        gang, up = run.gang, run.living(ranks)
        if not up:
            return
        run.awaited -= len(up)
        self._tell(Started(gang.key, up))
        if not gang.together:
            self._work(run, only_ranks(gang.parts, up))
        elif run.awaited == 0:
            self._work(run, gang.parts)

    def _break(self, run: Run) -> None:
        """A rank is no more, and the others of its gang, and who joined them, wait for it in vain."""
        run.broken = run.gang.together
        if run.gang.joins is not None or run.begun > 1 or run.gang.elastic:
            for other in self._fellows(run):
                other.broken = True

    def _fellows(self, run: Run) -> list[Run]:
        """The others that work together with it, because one joined the other."""
        first = run.gang.key if run.gang.joins is None else run.gang.joins
        return [
            other
            for key, other in self._runs.items()
            if other is not run and (key == first or other.gang.joins == first)
        ]

    def _mend(self, run: Run) -> None:
        """Whoever waited for it in vain begins again beside it."""
        for other in self._fellows(run):
            self._begin_again(other)

    def _meet_again(self, run: Run) -> None:
        """What is left of an elastic gang goes on, if it still waits for those that were lost."""
        for one in (run, *self._fellows(run)):
            if one.alive and not one.awaited:
                self._begin_again(one)

    def _begin_again(self, run: Run) -> None:
        if run.broken and not run.stopping:
            run.broken = False
            parts = run.gang.parts
            left = [part._replace(ranks=run.living(part.ranks)) for part in parts]
            self._work(run, [part._replace(elapsed_s=None) for part in left if part.ranks])

    def _work(self, run: Run, parts: Sequence[Part]) -> None:
        """Lets parts that take equally long end in one event."""
        run.begun += 1
        by_time: dict[float, list[Part]] = {}
        if run.gang.mishap is not None and run.begun == 1:
            mishap = run.gang.mishap
            self._later(mishap.after_s, run, partial(self._slip, run, mishap))
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
            self._mend(run)

    def _finish(self, run: Run, parts: Sequence[Part], begun: int) -> None:
        if begun == run.begun or not run.gang.together:
            self._end_parts(run, parts)

    def _end_parts(self, run: Run, parts: Sequence[Part]) -> None:
        if run.stopping or run.broken or not run.alive:
            return
        ends = [End(ranks, part.code) for part in parts if (ranks := run.living(part.ranks))]
        if not ends:
            return
        for end in ends:
            self._release(run, end.ranks)
        self._tell(Ended(run.gang.key, tuple(ends)))

    def _trained(self, gang: Gang, parts: tuple[Part, ...]) -> None:
        run = self._runs.get(gang.key)
        if run is not None and run.gang is gang:
            self._end_parts(run, parts)

    def _slip(self, run: Run, mishap: Mishap) -> None:
        """A rank exits by itself, and the others wait for it in vain."""
        if run.stopping or run.broken or mishap.rank not in run.alive:
            return
        if run.gang.together:
            self.training.end(run.gang.key, whole=True)
        self._release(run, (mishap.rank,))
        self._break(run)
        end = End((mishap.rank,), mishap.code, reason=mishap.reason, permanent=mishap.permanent)
        self._tell(Ended(run.gang.key, (end,)))

    def _vanish(self, run: Run) -> None:
        ranks = tuple(sorted(run.alive))
        if ranks:
            self._release(run, ranks)
            self._tell(Stopped(run.gang.key, ranks))

    def _repair(self, node: Node) -> None:
        if not node.up and not node.withheld and self._agenda.now >= node.down_until:
            node.up = True
            self._tell(NodeUp(node.model.name))

    def _befall(self, fault: Fault, left_s: float | None) -> None:
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
        node.warned_until = self._agenda.now + left_s
        there = tuple((run.gang.key, run.ranks_on(fault.node)) for run in node.runs)
        self._tell(NodeWarned(fault.node, fault.kind, left_s, there))

    def _notice_s(self, run: Run) -> float:
        """How long the soonest of its nodes that will be taken is still there; 0 if all stay."""
        places = run.gang.places
        ends = [self._nodes[places[rank].node].warned_until for rank in run.alive]
        return max(0.0, min((end for end in ends if end), default=0.0) - self._agenda.now)


def _fraction(name: str) -> float:
    """A number from 0 to below 1 that looks random and is the same in every run."""
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return int.from_bytes(digest) / 2**64
