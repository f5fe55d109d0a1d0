"""Random worlds in which jobs are set aside: what holds of every one of them, and of its log."""

from random import Random

import pytest

from adapters.clocks.simpy_clock import SimpyClock, as_process
from adapters.logs.memory_log import MemoryLog
from controlplane.audit.redecide import DecisionVerifier
from controlplane.disciplines.registry import DISCIPLINES
from controlplane.engine import Engine, EngineOptions
from controlplane.model import commands as c
from controlplane.model import events as e
from controlplane.model.cluster import NodeInfo
from controlplane.model.phases import Phase
from controlplane.model.policy import Policy, Preempt, Queue, Reclaim
from controlplane.model.spec import TopologyAsk
from controlplane.scheduling.cluster_view import ClusterView
from controlplane.scheduling.explain.schedulability import changes
from controlplane.scheduling.quota_models.quota_model import QUOTA_MODELS
from controlplane.state.world import World
from simulator.kernel.virtual_time import VirtualTime
from tests.controlplane.test_unschedulable import gang
from tests.instant_cluster import InstantCluster

OPTIONS = EngineOptions(resync_s=None, snapshot_every=None)
SEEDS = range(24)


def a_node(dice: Random, number: int) -> NodeInfo:
    return NodeInfo(
        f"n{number}",
        dice.choice([1, 2, 4]),
        rack=dice.choice("ab"),
        gpu_memory_mib=dice.choice([16_000, 32_000]),
        labels={"zone": dice.choice("xyz")},
        taints=("reserved",) if dice.random() < 0.1 else (),
    )


def a_spec(dice: Random, queues: list[str]):
    asks: dict[str, object] = {}
    match dice.randrange(9):
        case 0:
            asks["selector"] = {"zone": dice.choice("wxyz")}
        case 1:
            required, alone = dice.choice(["rack", "node"]), dice.random() < 0.3
            asks["topology"] = TopologyAsk(required=required, exclusive=alone)
        case 2:
            asks |= {"group": dice.choice("gh"), "group_size": 2}
        case 3:
            asks["node"] = f"n{dice.randrange(6)}"
        case 4:
            asks["min_available"] = 1
        case 5:
            return gang(dice.randint(1, 2), 0, gpu_memory_mib=dice.choice([8_000, 20_000, 40_000]))
        case 6:
            asks["preemptible"] = False
    return gang(dice.randint(1, 3), dice.randint(1, 3), queue=dice.choice(queues), **asks)


def commands(dice: Random, nodes: list[NodeInfo], queues: list[str]):
    names = [node.name for node in nodes]
    for number in range(50):
        job, node = f"j{dice.randrange(number + 1)}", dice.choice(names)
        whose = {"namespace": "d", "name": job}
        match dice.randrange(16):
            case 0:
                yield c.CordonNode(id=f"c{number}", node=node)
            case 1:
                yield c.UncordonNode(id=f"c{number}", node=node)
            case 2:
                yield c.ReportNodeLost(node=node)
            case 3 | 4:
                yield c.ReportNode(node=a_node(dice, int(node[1:])))
            case 5:
                yield c.CancelJob(id=f"c{number}", **whose)
            case 6:
                yield c.SuspendJob(id=f"c{number}", **whose)
            case 7:
                yield c.ResumeJob(id=f"c{number}", **whose)
            case 8:
                yield c.ScaleJob(
                    id=f"c{number}", **whose, role="worker", replicas=dice.randint(1, 3)
                )
            case 9:
                changed = Queue(dice.choice(queues), gpus_max=dice.choice([None, 1, 4]))
                yield c.DefineQueue(id=f"c{number}", queue=changed)
            case _:
                spec = a_spec(dice, queues)
                yield c.SubmitJob(
                    id=f"c{number}", job=f"j{number}", namespace="d", name=f"j{number}", spec=spec
                )


def live_through(seed: int) -> tuple[Engine, list[e.Recorded]]:
    dice = Random(seed)
    env, log = VirtualTime(), MemoryLog()
    nodes = [a_node(dice, number) for number in range(dice.randint(1, 4))]
    queues = ["default", "left", "right"]
    policy = Policy(
        discipline=dice.choice(DISCIPLINES.names),
        model=dice.choice(QUOTA_MODELS.names),
        preempt=Preempt(reclaim=dice.choice(list(Reclaim))),
    )
    engine = Engine(SimpyClock(env), log, InstantCluster(env, nodes), OPTIONS)
    as_process(env, engine.run())
    env.run(until=env.timeout(0.0))
    engine.submit(c.SetPolicy(id="policy", policy=policy))
    for name in queues[1:]:
        engine.submit(c.DefineQueue(id=f"queue-{name}", queue=Queue(name)))

    def report():
        for command in commands(dice, nodes, queues):
            yield env.timeout(dice.choice([0.0, 0.0, 7.0, 45.0]))
            engine.submit(command)
            if dice.random() < 0.3:
                yield env.timeout(0.0)
                check_step(engine)

    env.process(report())
    env.run(until=2_000.0)
    check_step(engine)
    return engine, log.events


def check_step(engine: Engine) -> None:
    """Between two steps every verdict is that of the state, however the world came to be."""
    if engine._step is None and not engine._inbox:
        twin = World(engine.world.image())
        assert [(job.id, o) for job, o in changes(ClusterView(twin))] == []


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_world_is_looked_at_whenever_it_must_be_and_is_decided_alike_again(seed):
    engine, events = live_through(seed)
    engine.world.check()
    verifier = DecisionVerifier(World())
    verifier.take(events)
    verifier.finish()
    assert verifier.world.image() == engine.world.image()


def test_these_worlds_set_jobs_aside_for_many_reasons_and_take_them_back():
    events = [recorded.event for seed in SEEDS for recorded in live_through(seed)[1]]
    aside = [event for event in events if isinstance(event, e.JobUnschedulable)]
    back = sum(isinstance(event, e.JobSchedulable) for event in events)
    assert len({event.obstacle.code for event in aside}) >= 8
    assert back >= 20


def test_every_job_that_could_start_on_an_empty_cluster_does_in_the_end():
    """When all others have ended, only what is set aside, or waits for it, is left."""
    for seed in SEEDS:
        engine, _ = live_through(seed)
        world = engine.world
        waiting = [world.jobs[i] for i in world.phases.by_phase[Phase.QUEUED]]
        assert not waiting or world.devices.live or _is_blocked(world, waiting), (seed, waiting)


def _is_blocked(world: World, waiting) -> bool:
    # Only a group of which a gang waits for its back-off, or has ended, may be left in a line.
    return any(job.spec.scheduling.group for job in waiting)
