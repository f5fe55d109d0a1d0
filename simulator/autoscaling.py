"""Pools at work: nodes asked for when gangs wait for GPUs, given back when they have been idle.

Every `CHECK_S` the pools look at how many GPUs are waited for, which somebody outside knows. The
cheapest pool with room is asked first.

Every decision is told as it is made. An autoscaler that catches up with a past in which decisions were
made follows those (`follow_request`, `follow_return`) and makes none of its own.
"""

from collections.abc import Callable, Container, Sequence
from functools import partial

from simulator.happenings import NodesRequested, NodesReturned, Scaling
from simulator.machine import Machine
from simulator.pools import Pool, Rent, ready_after_s, wanted_nodes
from simulator.topology import ClusterModel
from simulator.virtual_time import VirtualTime

CHECK_S = 15.0


class _Scaled:
    """One pool: its nodes, which of them are there or coming, and since when they are idle."""

    def __init__(self, pool: Pool, nodes: dict[str, int]) -> None:
        self.pool = pool
        self.nodes = nodes
        # When each that is on its way was asked for, and how long those before it took to come.
        self.coming: dict[str, float] = {}
        self.came_s = 0.0
        self.idle_since: dict[str, float] = {}
        self.rent = Rent(pool.price_h)
        self.requests = 0

    @property
    def gpus_per_node(self) -> int:
        return max(self.nodes.values(), default=1)


class Autoscaler:
    def __init__(
        self,
        env: VirtualTime,
        cluster: ClusterModel,
        machine: Machine,
        waiting_gpus: Callable[[], int],
        tell: Callable[[Scaling], None] = lambda scaling: None,
        there: Container[str] = (),
    ) -> None:
        """Nodes of pools that are `there` already stay, besides the least of each pool."""
        self._agenda = env.agenda
        self._machine = machine
        self._waiting_gpus = waiting_gpus
        self._tell = tell
        # Decisions come from outside, and none is made here.
        self.following = False
        self._seed = cluster.seed
        self._pools = [
            _Scaled(pool, {n.name: n.gpus for n in cluster.nodes if n.rack == pool.rack})
            for pool in sorted(cluster.pools, key=lambda pool: (pool.price_h, pool.rack))
        ]
        for scaled in self._pools:
            self._begin(scaled, there)
        if self._pools:
            self._agenda.call_after(CHECK_S, self._check)

    def spent(self) -> dict[str, float]:
        """What each pool's nodes have cost so far."""
        return {s.pool.rack: s.rent.cost(self._agenda.now) for s in self._pools}

    def there_gpu_s(self) -> dict[str, float]:
        """GPU-seconds of each pool's nodes, from when they came until they were given back."""
        now = self._agenda.now
        return {
            s.pool.rack: s.gpus_per_node
            * (s.rent.paid_for_s(now) - s.came_s - sum(now - at for at in s.coming.values()))
            for s in self._pools
        }

    def follow_request(self, pool: str, nodes: Sequence[str], ready_at_s: Sequence[float]) -> None:
        """These nodes were asked for now. Nodes and pools that are unknown are left out."""
        for scaled in self._pools:
            if scaled.pool.rack == pool:
                for node, at_s in zip(nodes, ready_at_s, strict=True):
                    known = node in scaled.nodes and node not in scaled.coming
                    if known and self._machine.is_withheld(node):
                        self._await(scaled, node, at_s)

    def follow_return(self, pool: str, nodes: Sequence[str]) -> None:
        """These nodes were given back now."""
        for scaled in self._pools:
            if scaled.pool.rack == pool:
                for node in nodes:
                    if node in scaled.nodes and not self._machine.is_withheld(node):
                        self._return(scaled, node, quietly=True)

    def _begin(self, scaled: _Scaled, there: Container[str]) -> None:
        for number, node in enumerate(scaled.nodes):
            if number < scaled.pool.least or node in there:
                scaled.rent.begin(node, self._agenda.now)
            else:
                self._machine.withhold(node, quietly=True)

    def _check(self) -> None:
        waiting = self._waiting_gpus()
        for scaled in self._pools:
            waiting = self._ask(scaled, waiting)
            self._give_back(scaled, waiting)
        self._agenda.call_after(CHECK_S, self._check)

    def _ask(self, scaled: _Scaled, waiting: int) -> int:
        """Asks for nodes; returns the GPUs that would still be waited for."""
        there = [node for node in scaled.nodes if not self._machine.is_withheld(node)]
        count = wanted_nodes(
            scaled.pool,
            waiting_gpus=waiting,
            gpus_per_node=scaled.gpus_per_node,
            busy=len(there),
            coming=len(scaled.coming),
        )
        absent = [
            node
            for node in scaled.nodes
            if self._machine.is_withheld(node) and node not in scaled.coming
        ]
        asked = tuple(absent[:count])
        if asked and not self.following:
            self._request(scaled, asked)
        coming = len(scaled.coming) + (len(asked) if self.following else 0)
        return max(0, waiting - coming * scaled.gpus_per_node)

    def _request(self, scaled: _Scaled, nodes: tuple[str, ...]) -> None:
        now, first = self._agenda.now, scaled.requests + 1
        ready = tuple(
            now + ready_after_s(scaled.pool, number, self._seed)
            for number in range(first, first + len(nodes))
        )
        for node, at_s in zip(nodes, ready, strict=True):
            self._await(scaled, node, at_s)
        self._tell(NodesRequested(scaled.pool.rack, nodes, ready))

    def _await(self, scaled: _Scaled, node: str, at_s: float) -> None:
        scaled.requests += 1
        scaled.coming[node] = self._agenda.now
        scaled.rent.begin(node, self._agenda.now)
        self._agenda.call_at(at_s, partial(self._arrive, scaled, node))

    def _arrive(self, scaled: _Scaled, node: str) -> None:
        scaled.came_s += self._agenda.now - scaled.coming.pop(node)
        self._machine.bring(node)

    def _give_back(self, scaled: _Scaled, waiting: int) -> None:
        now = self._agenda.now
        there = [node for node in scaled.nodes if not self._machine.is_withheld(node)]
        for node in there:
            if waiting or self._machine.is_busy(node):
                scaled.idle_since.pop(node, None)
                continue
            since = scaled.idle_since.setdefault(node, now)
            long = now - since >= scaled.pool.idle_s
            if long and len(there) > scaled.pool.least and not self.following:
                there = [other for other in there if other != node]
                self._tell(NodesReturned(scaled.pool.rack, (node,)))
                self._return(scaled, node)

    def _return(self, scaled: _Scaled, node: str, *, quietly: bool = False) -> None:
        scaled.idle_since.pop(node, None)
        scaled.rent.end(node, self._agenda.now)
        self._machine.withhold(node, quietly=quietly)
