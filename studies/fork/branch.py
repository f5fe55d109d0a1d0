"""One future: the engine on the simulator, from the world as it was, asked what was asked."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from simpy.events import Event

from adapters.simpy_clock import SimpyClock, as_process
from adapters.simulated_cluster import SimulatedCluster
from adapters.simulated_cluster.recovery import catch_up, pass_until
from controlplane.commands import AnyCommand
from controlplane.engine import Answer, Engine, EngineOptions
from controlplane.errors import Rejected
from controlplane.events import Recorded
from controlplane.model import NodeInfo
from controlplane.ports import Snapshot
from controlplane.queries import gpus_wanted
from controlplane.replay import open_snapshot
from controlplane.world import World
from simulator.faults import Fault, FaultKind, FaultModel, Preset
from simulator.topology import ClusterModel, Delays, NodeModel
from simulator.virtual_time import VirtualTime
from studies.fork.branch_log import BranchLog
from studies.fork.past import NodeFault, Simulated, Timed


@dataclass(frozen=True, slots=True)
class Refusal:
    """A request of the real future that could not be met in this one."""

    at: float
    what: str
    why: str


@dataclass(frozen=True, slots=True)
class Branch:
    """What happened from the fork on."""

    events: Sequence[Recorded]
    world: World
    refused: Sequence[Refusal]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a branch is run with."""

    at: float
    until: float
    snapshot: Snapshot
    hash: bytes
    nodes: Sequence[NodeInfo]
    delays: Delays
    seed: int
    # Under which jobs end by themselves; its faults of nodes are those that really happened.
    preset: Preset | None
    faults: Sequence[NodeFault]
    # Asked right at the fork, and later.
    first: Sequence[AnyCommand]
    asked: Sequence[Timed]
    # Where the past of the cluster is known: the nodes that are added to it, those whose faults do
    # not happen, and faults that do. `nodes`, `delays`, `preset` and `faults` are for the others.
    simulated: Simulated | None = None
    added: Sequence[NodeInfo] = ()
    spared: Sequence[str] = ()
    struck: Sequence[NodeFault] = ()


def run_branch(setting: Setting) -> Branch:
    """Runs to the end."""
    log = BranchLog(setting.snapshot, setting.hash)
    engines: list[Engine] = []
    if setting.simulated is None:
        # The environment's time is that of the log, so that no time is rounded.
        origin, env = 0.0, VirtualTime(initial_time=setting.at)
        cluster = SimulatedCluster(env, _model(setting), inherits_at=setting.at)
    else:
        origin = setting.simulated.birth
        cluster = _replayed(setting, setting.simulated, engines)
        env = cluster.env
    options = EngineOptions(resync_s=None, snapshot_every=None, carries_on=True)
    engine = Engine(SimpyClock(env, origin=origin), log, cluster, options)
    engines.append(engine)
    refused: list[Refusal] = []
    as_process(env, engine.run())
    env.process(_people(env, engine, setting, refused, origin))
    env.run(until=env.timeout(setting.until - setting.at + 1e-6))
    return Branch(log.events, engine.world, refused)


def _replayed(setting: Setting, past: Simulated, engines: Sequence[Engine]) -> SimulatedCluster:
    """The simulated cluster as it was at the fork, with what is changed about it.

    As soon as there is an engine, pools grow by what waits in its world.
    """
    world = open_snapshot(past.begin).world
    cluster = SimulatedCluster(
        VirtualTime(initial_time=past.began_at - past.birth),
        past.model,
        origin=past.birth,
        waiting_gpus=lambda: gpus_wanted(engines[0].world if engines else world),
        there=frozenset(node.name for node in world.nodes.values() if node.ready),
        added=_added(setting.added, past.model),
    )
    catch_up(cluster, world, past.events)
    pass_until(cluster, setting.at)
    cluster.spare(setting.spared)
    known = {node.name for node in past.model.nodes} | {node.name for node in setting.added}
    for fault in setting.struck:
        if fault.node in known:
            repair_s = None if fault.back_at is None else fault.back_at - fault.at
            strike = partial(cluster.fail_node, fault.node, repair_s)
            cluster.env.agenda.call_at(fault.at - past.birth, strike)
    return cluster


def _added(added: Sequence[NodeInfo], model: ClusterModel) -> list[NodeModel]:
    """More nodes, with the hardware of the one that they are like."""
    pattern = model.nodes[0]
    return [replace(pattern, name=info.name) for info in added]


def _people(
    env: VirtualTime, engine: Engine, setting: Setting, refused: list[Refusal], origin: float
) -> Generator[Event, Any, None]:
    def ask(command: AnyCommand) -> None:
        def reply(answer: Answer) -> None:
            if isinstance(answer, Rejected):
                refused.append(Refusal(origin + env.now, type(command).__name__, answer.message))

        engine.submit(command, reply)

    for command in setting.first:
        ask(command)
    for at, command in setting.asked:
        if at - origin > env.now:
            yield env.timeout(at - origin - env.now)
        ask(command)


def _model(setting: Setting) -> ClusterModel:
    nodes = tuple(
        NodeModel(
            n.name, n.rack, n.gpus, n.gpu_type, n.gpu_memory_mib, n.labels,
            # What others have stays theirs, since nothing is known of when they end.
            resources={name: max(0, left) for name, left in n.offers.items()},
        )
        for n in setting.nodes
    )  # fmt: skip
    known = {node.name for node in nodes}
    script = tuple(_fault(f, setting.at) for f in setting.faults if f.node in known)
    faults = FaultModel(script=script, preset=_without_node_faults(setting.preset))
    return ClusterModel(nodes, setting.delays, faults, setting.seed)


def _without_node_faults(preset: Preset | None) -> Preset | None:
    return None if preset is None else replace(preset, node_rate_day=0.0, slow_rate_day=0.0)


# How a simulated cluster tells of a node that it lost; a real one has its own words.
_KINDS = {
    "was reclaimed": FaultKind.SPOT_RECLAIM,
    "is down for maintenance": FaultKind.MAINTENANCE,
    "was given back": FaultKind.GIVEN_BACK,
}


def _fault(fault: NodeFault, fork_at: float) -> Fault:
    """A fault from before the fork is one that has been under way for a while."""
    at = max(fault.at, fork_at - 1.0)
    repair_s = None if fault.back_at is None else fault.back_at - at
    told = fault.message.removeprefix(f"node {fault.node} ")
    kind = next((kind for words, kind in _KINDS.items() if told.startswith(words)), FaultKind.CRASH)
    cause = told.removeprefix("crashed").removeprefix(": ")
    return Fault(at_s=at, node=fault.node, repair_s=repair_s, kind=kind, cause=cause)
