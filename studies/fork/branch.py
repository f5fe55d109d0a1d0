"""One branch of a fork: the engine on the simulator, with the recorded requests."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from simpy.events import Event

from adapters.clocks.simpy_clock import SimpyClock, as_process
from adapters.simulated_cluster.cluster import SimulatedCluster
from adapters.simulated_cluster.recovery import catch_up, pass_until
from controlplane.decisions.step import Answer
from controlplane.engine import Engine, EngineOptions
from controlplane.log.replay import open_snapshot
from controlplane.model.cluster import NodeInfo
from controlplane.model.commands import AnyCommand
from controlplane.model.errors import Rejected
from controlplane.model.events import FaultInjected, Recorded
from controlplane.model.reasons import LossReason
from controlplane.ports import StateSnapshot
from controlplane.queries.queries import gpus_wanted
from controlplane.state.world import World
from simulator.faults import Fault, FaultKind, FaultModel, Preset
from simulator.kernel.virtual_time import VirtualTime
from simulator.network.topology import ClusterModel, Delays, NodeModel
from studies.fork.branch_log import BranchLog
from studies.fork.past import NodeFault, Simulated, Timed


@dataclass(frozen=True, slots=True)
class Refusal:
    """A recorded request that the engine refused in this branch."""

    at: float
    what: str
    why: str


@dataclass(frozen=True, slots=True)
class Branch:
    """The events of a branch from the fork on, the world at its end, and the refused requests."""

    events: Sequence[Recorded]
    world: World
    refused: Sequence[Refusal]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The inputs of a branch. Times are UTC seconds."""

    at: float
    until: float
    snapshot: StateSnapshot
    hash: bytes
    nodes: Sequence[NodeInfo]
    delays: Delays
    seed: int
    # The preset under which jobs fail by themselves; faults of nodes are those that were recorded.
    preset: Preset | None
    faults: Sequence[NodeFault]
    # Commands submitted at the fork, and commands with the times of their submission.
    first: Sequence[AnyCommand]
    asked: Sequence[Timed]
    # For a cluster whose past is known: the nodes added to it, the nodes whose faults are left out,
    # and additional faults. `nodes`, `delays`, `preset` and `faults` apply to other clusters.
    simulated: Simulated | None = None
    added: Sequence[NodeInfo] = ()
    spared: Sequence[str] = ()
    struck: Sequence[NodeFault] = ()


def run_branch(setting: Setting) -> Branch:
    """Run a branch until `setting.until`."""
    log = BranchLog(setting.snapshot, setting.hash)
    engines: list[Engine] = []
    if setting.simulated is None:
        # The environment's time equals that of the log, so that no time is rounded.
        origin, env = 0.0, VirtualTime(initial_time=setting.at)
        cluster = SimulatedCluster(env, _model(setting), inherits_at=setting.at)
    else:
        origin = setting.simulated.birth
        cluster = _replayed(setting, setting.simulated, engines)
        env = cluster.env
    options = EngineOptions(resync_s=None, snapshot_every=None, carries_on=True)

    def inject(batch: Sequence[Recorded]) -> None:
        for recorded in batch:
            if isinstance(recorded.event, FaultInjected):
                cluster.inject(recorded)

    # A cluster whose past is not known fails as its nodes were recorded to fail.
    on_recorded = None if setting.simulated is None else inject
    engine = Engine(SimpyClock(env, origin=origin), log, cluster, options, on_recorded)
    engines.append(engine)
    refused: list[Refusal] = []
    as_process(env, engine.run())
    env.process(_people(env, engine, setting, refused, origin))
    env.run(until=setting.until - origin + 1e-6)
    return Branch(log.events, engine.world, refused)


def _replayed(setting: Setting, past: Simulated, engines: Sequence[Engine]) -> SimulatedCluster:
    """Return the simulated cluster as it was at the fork, with the changes of `setting`.

    As soon as there is an engine, pools grow by the GPUs that jobs in its world wait for.
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
            cluster.env.call_at(fault.at - past.birth, strike)
    return cluster


def _added(added: Sequence[NodeInfo], model: ClusterModel) -> list[NodeModel]:
    """Return models for the added nodes, with the hardware of the model's first node."""
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
            yield env.at(at - origin)
        ask(command)


def _model(setting: Setting) -> ClusterModel:
    nodes = tuple(
        NodeModel(
            n.name, n.rack, n.gpus, n.gpu_type, n.gpu_memory_mib, n.labels,
            # What other programs use stays reserved, because the log does not record when they end.
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


# The kinds of loss that the simulator repeats; it repeats any other loss as a crash.
_KINDS = {
    LossReason.RECLAIMED: FaultKind.SPOT_RECLAIM,
    LossReason.MAINTENANCE: FaultKind.MAINTENANCE,
    LossReason.GIVEN_BACK: FaultKind.GIVEN_BACK,
}


def _fault(fault: NodeFault, fork_at: float) -> Fault:
    """Return the fault in simulated time; a fault from before the fork began 1 s before it."""
    at = max(fault.at, fork_at - 1.0)
    repair_s = None if fault.back_at is None else fault.back_at - at
    loss = fault.loss
    kind = FaultKind.CRASH if loss is None else _KINDS.get(loss.reason, FaultKind.CRASH)
    cause = "" if loss is None else loss.detail
    return Fault(at_s=at, node=fault.node, repair_s=repair_s, kind=kind, cause=cause)
