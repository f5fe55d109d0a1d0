"""What the nodes of a cluster file offer: labels, domains of several levels, devices besides GPUs."""

from typing import Any

import pytest

from adapters.clocks.simpy_clock import SimpyClock, as_process
from adapters.logs.memory_log import MemoryLog
from adapters.simulated_cluster.cluster import SimulatedCluster
from adapters.simulated_cluster.recovered import RecoveredCluster
from adapters.simulated_cluster.workload import Workload, hints_of
from controlplane.engine import Engine, EngineOptions
from controlplane.lifecycle.job import Job
from controlplane.model.commands import SetPolicy, SubmitJob
from controlplane.model.phases import Phase
from controlplane.model.policy import Policy
from controlplane.model.spec import DoneWhen, JobSpec, Role, Scheduling, TopologyAsk
from simulator.config.parsing import BadCluster
from simulator.kernel.virtual_time import VirtualTime
from simulator.network.topology import parse_cluster

RACKS = [
    {
        "name": f"r{i}",
        "zone": "z0",
        "block": f"b{i // 2}",
        "nodes": 2,
        "gpus": 4,
        "gpu_type": "A100",
    }
    for i in range(4)
]


class World:
    def __init__(self, *racks: dict[str, Any], levels: tuple[str, ...] = ()) -> None:
        self.env = VirtualTime()
        model = parse_cluster({"racks": list(racks or RACKS)})
        self.cluster = SimulatedCluster(self.env, model)
        options = EngineOptions(resync_s=None)
        self.engine = Engine(SimpyClock(self.env), MemoryLog(), self.cluster, options)
        as_process(self.env, self.engine.run())
        self.env.run(until=1.0)
        if levels:
            self.engine.submit(SetPolicy(id="p", policy=Policy(levels=levels)))
        self.count = 0

    def submit(self, spec: JobSpec) -> str:
        """The nodes of the job, or why it is not placed."""
        self.count += 1
        name = f"j{self.count}"
        self.engine.submit(SubmitJob(id=name, job=name, namespace="t", name=name, spec=spec))
        self.env.run(until=self.env.now + 1.0)
        job: Job | None = self.engine.world.jobs.get(name)
        if job is None or job.attempt is None or job.phase is Phase.QUEUED:
            return ""
        return ",".join(sorted({slot.node for slot in job.attempt.placement}))


def _spec(
    ranks: int = 1, gpus: int = 1, pod: dict[str, Any] | None = None, **scheduling: Any
) -> JobSpec:
    template = {"spec": pod} if pod else {}
    return JobSpec(
        roles=(Role(name="Worker", replicas=ranks, gpus=gpus, template=template),),
        done_when=DoneWhen("Worker"),
        hints=hints_of(Workload(duration_s=1e6)),
        scheduling=Scheduling(**scheduling),
    )


def test_nodes_have_the_usual_labels_and_those_of_their_domains() -> None:
    world = World()
    assert world.engine.world.nodes["r3-1"].info.labels == {
        "kubernetes.io/hostname": "r3-1",
        "nvidia.com/gpu.product": "A100",
        "topology.kubernetes.io/zone": "z0",
        "topology.muster.dev/zone": "z0",
        "topology.muster.dev/block": "b1",
        "topology.muster.dev/rack": "r3",
    }


def test_a_selector_is_met_by_labels_and_by_nothing_else() -> None:
    world = World()
    pod = {"containers": [{"name": "c"}], "nodeSelector": {"kubernetes.io/hostname": "r2-1"}}
    assert world.submit(_spec(pod=pod)) == "r2-1"
    assert world.submit(_spec(selector={"topology.muster.dev/block": "b1"})) in ("r2-0", "r2-1")
    assert world.submit(_spec(pod=pod | {"nodeSelector": {"disk": "ssd"}})) == ""
    assert world.submit(_spec(selector={"nvidia.com/gpu.product": "H100"})) == ""


@pytest.mark.parametrize("levels", [("block", "rack"), ("zone", "block", "rack"), ("rack",)])
def test_a_gang_stays_within_one_domain_of_the_level_it_names(levels: tuple[str, ...]) -> None:
    world = World(levels=levels)
    rack = world.submit(_spec(2, 4, topology=TopologyAsk(required="rack")))
    assert {node[:2] for node in rack.split(",")} == {rack[:2]}
    assert len(rack.split(",")) == 2
    if "block" in levels:
        block = world.submit(_spec(4, 4, topology=TopologyAsk(required="block")))
        assert block == ("r2-0,r2-1,r3-0,r3-1" if rack[1] in "01" else "r0-0,r0-1,r1-0,r1-1")


def test_racks_that_name_no_block_are_racks_all_the_same() -> None:
    bare = [{"name": f"r{i}", "nodes": 2, "gpus": 4} for i in range(2)]
    world = World(*bare, levels=("block", "rack"))
    nodes = world.submit(_spec(2, 4, topology=TopologyAsk(required="rack")))
    assert nodes in ("r0-0,r0-1", "r1-0,r1-1")


def _wants(name: str, amount: int) -> dict[str, Any]:
    return {"containers": [{"name": "c", "resources": {"limits": {name: amount}}}]}


def test_devices_besides_gpus_are_declared_and_counted() -> None:
    tpus = {"name": "tpu", "nodes": 1, "gpus": 0, "resources": {"google.com/tpu": 4}}
    world = World({"name": "gpu", "nodes": 2, "gpus": 4}, tpus)
    assert world.submit(_spec(gpus=0, pod=_wants("google.com/tpu", 3))) == "tpu-0"
    assert world.submit(_spec(gpus=0, pod=_wants("google.com/tpu", 2))) == ""
    assert world.submit(_spec(gpus=0, pod=_wants("google.com/tpu", 1))) in ("", "tpu-0")


def test_a_device_that_no_node_declares_is_refused_with_what_there_is() -> None:
    spec = _spec(pod=_wants("rdma/hca", 1))
    refusal = World().cluster.vet(spec)
    assert refusal is not None
    assert (refusal.code, "requests rdma/hca, which no node has" in str(refusal)) == (
        "can_never_fit",
        True,
    )
    declared = RACKS[0] | {"resources": {"rdma/hca": 8}}
    assert World(declared).cluster.vet(spec) is None


def test_the_cluster_of_a_server_refuses_what_no_node_declares_too() -> None:
    """It vets before it is recovered from its log."""
    unused: Any = None
    served = RecoveredCluster(
        unused, parse_cluster({"racks": [RACKS[0]]}), unused, now=lambda: 0.0, waiting_gpus=int
    )
    refusal = served.vet(_spec(pod=_wants("rdma/hca", 1)))
    assert refusal is not None
    assert refusal.code == "can_never_fit"


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        ({"cpu": 4}, "cpus, memory_gb and gpus have fields"),
        ({"nvidia.com/gpu": 4}, "cpus, memory_gb and gpus have fields"),
        ({"rdma/hca": "many"}, "must be a whole number"),
        ({"rdma/hca": -1}, "must be from 0"),
        (["rdma/hca"], "must be a mapping"),
    ],
)
def test_resources_that_cannot_be_declared_are_refused(resources: Any, message: str) -> None:
    with pytest.raises(BadCluster, match=message):
        parse_cluster({"racks": [{"name": "a", "resources": resources}]})


def test_a_network_of_a_rack_without_gpus_is_taken_and_a_link_is_not() -> None:
    cpus = {"name": "cpu", "nodes": 2, "gpus": 0, "cpus": 32, "net": "10GbE"}
    (node, _) = parse_cluster({"racks": [cpus]}).nodes
    assert node.hardware is not None
    assert (node.hardware.gpu, node.hardware.network.gbps) == (None, 10.0)
    with pytest.raises(BadCluster, match="this one has none"):
        parse_cluster({"racks": [cpus | {"link": "pcie3"}]})
