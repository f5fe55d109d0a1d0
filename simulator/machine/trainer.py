"""Progress and ends of training gangs, while neighbours and faults change their pace.

The trainer has no clock: `now` is an argument of every call. Between two changes a gang keeps a
constant pace, so a job of a million steps costs as much as one of ten. Calls return the gangs whose
end has moved; the caller, who keeps the timers, asks `ends_at` for each of them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from simulator.config.node_hardware import Hardware
from simulator.faults import FaultKind
from simulator.hardware.constants import FITTED, Constants
from simulator.hardware.hosts import as_device
from simulator.hardware.links import LINKS
from simulator.network.links import ClusterLinks, nic
from simulator.network.max_min_fair import Flow, Key, MaxMinFair
from simulator.network.topology import ClusterModel
from simulator.training.checkpoints import Checkpointing
from simulator.training.pace import Pace, pace
from simulator.training.placement import Place, ServedFrom
from simulator.training.plans import SERVED, Scheme
from simulator.training.recipes import BadRecipe, Recipe

PACES_MAX = 10_000
# Schemes whose traffic goes around a ring; in the others every node sends to every other.
RINGS = frozenset(
    {Scheme.ALL_REDUCE, Scheme.SHARDED, Scheme.HIERARCHICAL, Scheme.TORUS, Scheme.NONE}
)


class Progress(NamedTuple):
    """How a gang's training ended, in steps and seconds."""

    done: float
    # The whole work, in steps of the number of GPUs at the end.
    steps: float
    # The steps that a checkpoint holds, and the seconds of work lost with the others.
    kept: float
    lost_s: float
    step_s: float


class _Training:
    __slots__ = (
        "alone_s",
        "done",
        "nodes",
        "pace",
        "recipe",
        "ring",
        "servers",
        "since",
        "speeds",
        "step_s",
        "steps",
    )

    def __init__(
        self,
        recipe: Recipe,
        how: Pace,
        alone_s: float,
        nodes: tuple[str, ...],
        servers: tuple[str, ...],
        steps: float,
        done: float,
    ) -> None:
        self.recipe = recipe
        self.pace = how
        # A step without other traffic on its links, on healthy nodes.
        self.alone_s = alone_s
        self.nodes = nodes
        # The nodes of its own parameter servers.
        self.servers = servers
        self.ring = recipe.scheme in RINGS
        self.steps = steps
        self.done = done
        self.since = 0.0
        self.step_s = alone_s
        # The fraction of their speed at which shared GPUs compute for it, by node; 1 for other nodes.
        self.speeds: Mapping[str, float] = {}


class Trainer:
    def __init__(self, cluster: ClusterModel, constants: Constants = FITTED) -> None:
        self._constants = constants
        self._fabric = cluster.fabric
        self._hardware = {node.name: node.hardware for node in cluster.nodes}
        self._links = ClusterLinks(cluster)
        self.fluid = MaxMinFair(self._links.capacity)
        self._gangs: dict[Key, _Training] = {}
        self._paces: dict[tuple[object, ...], tuple[Pace, float]] = {}
        # The remaining fraction of the speed of faulty nodes, by node and kind of fault.
        self._factors: dict[tuple[str, FaultKind], float] = {}
        self._on_node: dict[str, dict[Key, None]] = {}

    def place(
        self,
        gpus: Mapping[str, int],
        servers: Mapping[str, int] | None = None,
        cpus: float | None = None,
    ) -> Place | None:
        """Return the place of a gang with these GPUs by node; None if its hardware is unknown.

        Different nodes count as the slowest of them. `servers` are the gang's own parameter servers
        by node. With `cpus` (see `Recipe`) ranks compute on CPUs, and `gpus` is their number by node.
        """
        used = {name: count for name, count in gpus.items() if count > 0}
        known = self._known(used)
        if not known:
            return None
        if cpus is not None:
            most = max(used.values())
            slowest = min(known, key=lambda hardware: hardware.host.cpus)
            device = as_device(slowest.host, cpus or slowest.host.cpus / most)
        elif all(hardware.gpu for hardware in known):
            slowest = min(known, key=_speed)
            assert slowest.gpu is not None
            device = slowest.gpu
        else:
            return None
        network = min((h.network for h in known), key=lambda n: n.gbps)
        return Place(
            device,
            slowest.link if cpus is None else LINKS["none"],
            sum(used.values()),
            len(used),
            network,
            slowest.host,
            self._fabric,
            self._served_from(used, servers or {}),
        )

    def _served_from(
        self, used: Mapping[str, int], servers: Mapping[str, int]
    ) -> ServedFrom | None:
        nodes = [name for name, count in servers.items() if count > 0]
        if not nodes:
            return None
        lines = [h.network.line_gbs for name in nodes if (h := self._hardware.get(name))]
        return ServedFrom(
            servers=sum(servers[name] for name in nodes),
            nodes=len(nodes),
            shared=sum(name in used for name in nodes),
            # A node of unknown hardware limits nothing.
            line_gbs=min(lines, default=float("inf")),
        )

    def _known(self, nodes: Iterable[str]) -> list[Hardware]:
        """Return the distinct hardware of these nodes; empty if that of one is unknown."""
        kinds = {id(hardware): hardware for hardware in map(self._hardware.get, nodes)}
        known = [hardware for hardware in kinds.values() if hardware is not None]
        return known if len(known) == len(kinds) else []

    def _pace(
        self, recipe: Recipe, gpus: Mapping[str, int], servers: Mapping[str, int]
    ) -> tuple[Pace, float]:
        """Return the pace of a gang and its undisturbed step time; cached, since gangs repeat."""
        kinds = tuple(id(hardware) for hardware in self._known(gpus))
        served = self._served_from(gpus, servers)
        most = max(gpus.values()) if recipe.cpus is not None else 0
        key = (recipe, kinds, sum(gpus.values()), len(gpus), served, most)
        cached = self._paces.get(key)
        if cached is None:
            place = self.place(gpus, servers, recipe.cpus)
            assert place is not None, f"{gpus} is unknown hardware"
            how = pace(recipe, place, self._constants)
            if len(self._paces) >= PACES_MAX:
                self._paces.clear()
            cached = self._paces[key] = (how, how.step_s())
        return cached

    def begin(
        self,
        key: Key,
        recipe: Recipe,
        gpus: Mapping[str, int],
        *,
        steps: float,
        done: float = 0.0,
        now: float,
        servers: Mapping[str, int] | None = None,
    ) -> list[Key]:
        """Begin a gang, whose nodes must be known (`place`); return the gangs whose end has moved."""
        used = {name: count for name, count in gpus.items() if count > 0}
        held = _held(recipe, servers)
        nodes = tuple(used)
        how = self._pace(recipe, used, held)
        gang = _Training(recipe, *how, nodes, tuple(held), steps, done)
        gang.since = now
        self._gangs[key] = gang
        for name in nodes:
            self._on_node.setdefault(name, {})[key] = None
        return self._moved(self.fluid.add(key, self._flow(gang)), now)

    def end(self, key: Key, now: float, *, noticed_s: float = 0.0) -> tuple[Progress, list[Key]]:
        """End a gang, finished or not; with enough notice it writes a last checkpoint."""
        gang = self._gangs[key]
        done = self.done(key, now)
        how = gang.recipe.checkpoint
        kept = _kept(done, gang, how, noticed_s)
        progress = Progress(done, gang.steps, kept, (done - kept) * gang.step_s, gang.step_s)
        del self._gangs[key]
        for name in gang.nodes:
            del self._on_node[name][key]
        return progress, self._moved(self.fluid.remove(key), now)

    def resize(
        self,
        key: Key,
        gpus: Mapping[str, int],
        now: float,
        servers: Mapping[str, int] | None = None,
    ) -> list[Key]:
        """Continue a gang on other GPUs, with the same number of samples left.

        If the recipe cannot use that number of GPUs, the gang stays as it is and the others idle.
        """
        gang = self._gangs[key]
        used = {name: count for name, count in gpus.items() if count > 0}
        try:
            held = _held(gang.recipe, servers)
            how, alone_s = self._pace(gang.recipe, used, held)
        except BadRecipe:
            return []
        scale = gang.pace.samples / how.samples
        gang.done, gang.since = self.done(key, now) * scale, now
        gang.steps *= scale
        gang.pace, gang.alone_s, gang.servers = how, alone_s, tuple(held)
        for name in gang.nodes:
            del self._on_node[name][key]
        gang.nodes = tuple(used)
        for name in gang.nodes:
            self._on_node.setdefault(name, {})[key] = None
        return self._moved(self.fluid.change(key, self._flow(gang)), now)

    def credit(self, key: Key, worked_s: float, now: float) -> None:
        """Credit a gang that has just begun with `worked_s` of work at its present pace."""
        gang = self._gangs[key]
        gang.done = min(gang.steps, self.done(key, now) + worked_s / gang.step_s)
        gang.since = now

    def __contains__(self, key: Key) -> bool:
        return key in self._gangs

    def done(self, key: Key, now: float) -> float:
        """Return the steps that the gang has finished."""
        gang = self._gangs[key]
        return min(gang.steps, gang.done + max(0.0, now - gang.since) / gang.step_s)

    def ends_at(self, key: Key) -> float:
        gang = self._gangs[key]
        return gang.since + (gang.steps - gang.done) * gang.step_s

    def step_s(self, key: Key) -> float:
        return self._gangs[key].step_s

    def pace(self, key: Key) -> Pace:
        return self._gangs[key].pace

    def degrade(self, node: str, kind: FaultKind, factor: float, now: float) -> list[Key]:
        """Reduce the compute, link or storage speed of a node to `factor`; 1 restores it."""
        if factor >= 1.0:
            self._factors.pop((node, kind), None)
        else:
            self._factors[node, kind] = factor
        if kind is FaultKind.LINK:
            capacity = self._links.capacity[nic(node)] * min(factor, 1.0)
            return self._moved(self.fluid.set_capacity(nic(node), capacity), now)
        changed: dict[Key, None] = {}
        for key in self._on_node.get(node, {}):
            changed.update(dict.fromkeys(self.fluid.change(key, self._flow(self._gangs[key]))))
            changed[key] = None
        return self._moved(list(changed), now)

    def slow(self, key: Key, speeds: Mapping[str, float], now: float) -> list[Key]:
        """Set the fraction of their speed at which a gang's shared GPUs compute, by node."""
        gang = self._gangs[key]
        if gang.speeds == speeds:
            return []
        gang.speeds = speeds
        return self._moved(self.fluid.change(key, self._flow(gang)), now)

    def _unhampered_s(self, gang: _Training) -> float:
        """Return the step time without other traffic, on the nodes in their present state."""
        if not self._factors and not gang.speeds:
            return gang.alone_s
        factors, speeds = self._factors, gang.speeds
        slow = min(
            factors.get((name, FaultKind.SLOW), 1.0) * speeds.get(name, 1.0) for name in gang.nodes
        )
        starved = min(factors.get((name, FaultKind.STORAGE), 1.0) for name in gang.nodes)
        how = gang.pace
        if slow == 1.0 and starved == 1.0:
            return gang.alone_s
        how = replace(how, compute_s=how.compute_s / slow, input_s=how.input_s / starved)
        return how.step_s()

    def _flow(self, gang: _Training) -> Flow:
        size = gang.pace.plan.node_bytes
        if size <= 0.0 or (len(gang.nodes) < 2 and not gang.servers):
            return Flow(0.0, ())
        rate = size / self._unhampered_s(gang)
        if gang.servers:
            share = gang.pace.plan.server_bytes / size
            return Flow(rate, self._links.served_loads(gang.nodes, gang.servers, share))
        return Flow(rate, self._links.loads(gang.nodes, ring=gang.ring))

    def _moved(self, keys: Iterable[Key], now: float) -> list[Key]:
        """Update gangs to `now` with their new pace; return those whose pace changed."""
        moved = []
        for key in keys:
            gang = self._gangs[key]
            new = self._unhampered_s(gang)
            rate = self.fluid.rate(key)
            if rate > 0.0:
                new = max(new, gang.pace.plan.node_bytes / rate)
            if new != gang.step_s or gang.since == now:
                gang.done = self.done(key, now)
                gang.since = now
                gang.step_s = new
                moved.append(key)
        return moved


def _held(recipe: Recipe, servers: Mapping[str, int] | None) -> dict[str, int]:
    """Return the parameter servers by node; empty if the scheme uses none."""
    if recipe.scheme not in SERVED or not servers:
        return {}
    return {name: count for name, count in servers.items() if count > 0}


def _speed(hardware: Hardware) -> tuple[float, float]:
    assert hardware.gpu is not None
    return (hardware.gpu.fp32_tflops, hardware.network.gbps)


def _kept(done: float, gang: _Training, how: Checkpointing | None, noticed_s: float) -> float:
    """Return the steps that a checkpoint holds: up to the last interval, or all with enough notice."""
    if done >= gang.steps:
        return done
    if how is None or how.interval_s <= 0.0:
        return 0.0
    if noticed_s > 0.0 and noticed_s >= how.write_s:
        return done
    # An interval counts work without pauses; the time of a step includes its share of them.
    per_interval = max(1e-9, (how.interval_s + how.write_s) / gang.step_s)
    return done // per_interval * per_interval
