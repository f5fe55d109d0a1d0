"""The autoscaler of pools: it requests nodes when gangs wait for GPUs, and returns idle nodes.

Every `CHECK_S` it compares the GPUs that queued gangs request, which the caller supplies, with the
nodes that each pool has or awaits. The cheapest pool with room is scaled first.

Every decision is emitted as it is made. During the replay of a log the autoscaler applies the
recorded decisions (`follow_request`, `follow_return`) and makes none of its own.
"""

from collections.abc import Callable, Container, Sequence
from functools import partial

from simulator.kernel.virtual_time import VirtualTime
from simulator.machine.events import NodesRequested, NodesReturned, Scaling
from simulator.machine.machine import Machine
from simulator.machine.pools import Pool, Rent, ready_after_s, wanted_nodes
from simulator.network.topology import ClusterModel

CHECK_S = 15.0


class _PoolState:
    """One pool: its nodes, which of them are rented or awaited, and since when they are idle."""

    def __init__(self, pool: Pool, nodes: dict[str, int]) -> None:
        self.pool = pool
        self.nodes = nodes
        # When each awaited node was requested, and how long the arrivals before took in total.
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
        emit: Callable[[Scaling], None] = lambda scaling: None,
        there: Container[str] = (),
    ) -> None:
        """Nodes that are `there` are rented from the beginning, as is the minimum of each pool."""
        self._env = env
        self._machine = machine
        self._waiting_gpus = waiting_gpus
        self._emit = emit
        # Whether decisions come from a log, so that none is made here.
        self.following = False
        self._seed = cluster.seed
        self._pools = [
            _PoolState(pool, {n.name: n.gpus for n in cluster.nodes if n.rack == pool.rack})
            for pool in sorted(cluster.pools, key=lambda pool: (pool.price_h, pool.rack))
        ]
        for scaled in self._pools:
            self._begin(scaled, there)
        if self._pools:
            self._env.call_after(CHECK_S, self._check)

    def spent(self) -> dict[str, float]:
        """Return the cost of each pool's nodes so far."""
        return {s.pool.rack: s.rent.cost(self._env.now) for s in self._pools}

    def there_gpu_s(self) -> dict[str, float]:
        """Return the GPU-seconds of each pool's nodes, from their arrival to their return."""
        now = self._env.now
        return {
            s.pool.rack: s.gpus_per_node
            * (s.rent.paid_for_s(now) - s.came_s - sum(now - at for at in s.coming.values()))
            for s in self._pools
        }

    def follow_request(self, pool: str, nodes: Sequence[str], ready_at_s: Sequence[float]) -> None:
        """Apply a recorded request of nodes. Unknown nodes and pools are ignored."""
        for scaled in self._pools:
            if scaled.pool.rack == pool:
                for node, at_s in zip(nodes, ready_at_s, strict=True):
                    known = node in scaled.nodes and node not in scaled.coming
                    if known and self._machine.is_withheld(node):
                        self._await(scaled, node, at_s)

    def follow_return(self, pool: str, nodes: Sequence[str]) -> None:
        """Apply a recorded return of nodes."""
        for scaled in self._pools:
            if scaled.pool.rack == pool:
                for node in nodes:
                    if node in scaled.nodes and not self._machine.is_withheld(node):
                        self._return(scaled, node, quietly=True)

    def _begin(self, scaled: _PoolState, there: Container[str]) -> None:
        for number, node in enumerate(scaled.nodes):
            if number < scaled.pool.least or node in there:
                scaled.rent.begin(node, self._env.now)
            else:
                self._machine.withhold(node, quietly=True)

    def _check(self) -> None:
        waiting = self._waiting_gpus()
        for scaled in self._pools:
            waiting = self._scale_up(scaled, waiting)
            self._scale_down(scaled, waiting)
        self._env.call_after(CHECK_S, self._check)

    def _scale_up(self, scaled: _PoolState, waiting: int) -> int:
        """Request nodes, and return the GPUs that would still be missing."""
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

    def _request(self, scaled: _PoolState, nodes: tuple[str, ...]) -> None:
        now, first = self._env.now, scaled.requests + 1
        ready = tuple(
            now + ready_after_s(scaled.pool, number, self._seed)
            for number in range(first, first + len(nodes))
        )
        for node, at_s in zip(nodes, ready, strict=True):
            self._await(scaled, node, at_s)
        self._emit(NodesRequested(scaled.pool.rack, nodes, ready))

    def _await(self, scaled: _PoolState, node: str, at_s: float) -> None:
        scaled.requests += 1
        scaled.coming[node] = self._env.now
        scaled.rent.begin(node, self._env.now)
        self._env.call_at(at_s, partial(self._arrive, scaled, node))

    def _arrive(self, scaled: _PoolState, node: str) -> None:
        scaled.came_s += self._env.now - scaled.coming.pop(node)
        self._machine.bring(node)

    def _scale_down(self, scaled: _PoolState, waiting: int) -> None:
        now = self._env.now
        there = [node for node in scaled.nodes if not self._machine.is_withheld(node)]
        for node in there:
            if waiting or self._machine.is_busy(node):
                scaled.idle_since.pop(node, None)
                continue
            since = scaled.idle_since.setdefault(node, now)
            long = now - since >= scaled.pool.idle_s
            if long and len(there) > scaled.pool.least and not self.following:
                there = [other for other in there if other != node]
                self._emit(NodesReturned(scaled.pool.rack, (node,)))
                self._return(scaled, node)

    def _return(self, scaled: _PoolState, node: str, *, quietly: bool = False) -> None:
        scaled.idle_since.pop(node, None)
        scaled.rent.end(node, self._env.now)
        self._machine.withhold(node, quietly=quietly)
