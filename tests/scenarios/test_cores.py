"""Jobs that request cores and memory on a simulated cluster whose file declares those of its hosts."""

from random import Random

import pytest

from adapters.clocks.simpy_clock import SimpyClock, as_process
from adapters.logs.memory_log import MemoryLog
from adapters.simulated_cluster.cluster import SimulatedCluster
from adapters.simulated_cluster.workload import Workload, hints_of
from controlplane.disciplines.registry import DISCIPLINES
from controlplane.engine import Engine, EngineOptions
from controlplane.model.commands import SetPolicy, SubmitJob
from controlplane.model.phases import Phase
from controlplane.model.policy import Policy
from controlplane.model.spec import DoneWhen, JobSpec, Role, Scheduling
from controlplane.state.world import World
from simulator.kernel.virtual_time import VirtualTime
from simulator.network.topology import parse_cluster
from tests.controlplane.test_requests import check_amounts

FILE = {
    "racks": [
        {"name": "small", "nodes": 3, "gpus": 4, "gpu_type": "V100", "cpus": 8, "memory_gb": 32},
        {"name": "large", "nodes": 2, "gpus": 8, "gpu_type": "V100", "cpus": 24, "memory_gb": 64},
    ],
    "faults": {"node_mtbf_s": 4000, "node_repair_s": 300},
    "seed": 7,
}


def spec(dice: Random) -> JobSpec:
    resources = {"cpu": dice.choice(["500m", "2", "6"]), "memory": dice.choice(["1Gi", "8Gi"])}
    pod = {"spec": {"containers": [{"name": "c", "resources": {"requests": resources}}]}}
    role = Role(name="w", replicas=dice.randint(1, 5), gpus=dice.randint(0, 2), template=pod)
    seconds = dice.uniform(50, 500)
    return JobSpec(
        roles=(role,),
        done_when=DoneWhen("w"),
        hints=hints_of(Workload(duration_s=seconds)),
        scheduling=Scheduling(estimate_s=seconds * dice.uniform(0.5, 2)),
    )


@pytest.mark.parametrize("discipline", DISCIPLINES.names)
def test_every_job_finishes_and_no_host_is_overcommitted(discipline) -> None:
    env, dice, log = VirtualTime(), Random(discipline), MemoryLog()
    cluster = SimulatedCluster(env, parse_cluster(FILE))
    engine = Engine(SimpyClock(env), log, cluster, EngineOptions(snapshot_every=None))
    as_process(env, engine.run())
    engine.submit(SetPolicy(id="policy", policy=Policy(discipline=discipline)))
    for number in range(40):
        name = f"j{number}"
        engine.submit(SubmitJob(id=name, job=name, namespace="default", name=name, spec=spec(dice)))
    env.run(until=40_000)
    assert {job.phase for job in engine.world.jobs.values()} == {Phase.SUCCEEDED}
    assert engine.world.nodes["small-0"].info.resources == {"cpu": 8_000, "memory": 32 << 30}
    assert engine.world.devices.free.allocated == {}
    again, placed = World(), 0
    for recorded in log.events:
        again.apply(recorded)
        if type(recorded.event).__name__ in ("GangPlaced", "RanksReplaced", "RanksAdded"):
            placed += 1
            check_amounts(again)
    assert placed >= 40
    again.check()
