"""Who computes, who holds parameters and who starts the others follows from the manifest.

Every job here runs through the whole engine on a simulated cluster, and takes as long as its
placement gives: never the default duration, never on the launcher's GPUs alone.
"""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from adapters.clocks.simpy_clock import SimpyClock, as_process
from adapters.logs.memory_log import MemoryLog
from adapters.simulated_cluster.cluster import SimulatedCluster
from adapters.simulated_cluster.training import cpus_of, duties_of, problem_of, scheme_of
from adapters.simulated_cluster.workload import Training, Workload, hints_of, workload_of
from controlplane.engine import Engine, EngineOptions
from controlplane.kinds.registry import read_manifest
from controlplane.lifecycle.job import Job
from controlplane.model.commands import SubmitJob
from controlplane.model.phases import Phase
from controlplane.model.spec import JobSpec
from simulator.kernel.virtual_time import VirtualTime
from simulator.machine.gang import Duty
from simulator.machine.trainer import Trainer
from simulator.network.topology import ClusterModel, parse_cluster
from simulator.training.plans import SCHEMES
from simulator.training.recipes import BadRecipe, Recipe

EXAMPLES = Path(__file__).parents[2] / "examples"
START_S = 5.0
STEPS = 2_000
DAY = 86_400.0
KNOWN = {"gpu_type": "P100", "net": "25GbE"}
UNKNOWN = {"gpu_type": "Z9000"}


def _cluster(nodes: int = 6, gpus: int = 4, **node: Any) -> ClusterModel:
    rack = {"name": "a", "nodes": nodes, "gpus": gpus, **(node or KNOWN)}
    return parse_cluster({"racks": [rack], "start_delay_s": START_S, "stop_delay_s": 2})


def example(name: str, **training: Any) -> JobSpec:
    """The job of an example, which trains something instead of lasting a given time."""
    spec = read_manifest(yaml.safe_load((EXAMPLES / name).read_text())).spec
    work = Workload(training=Training(**({"model": "vgg16", "steps": STEPS} | training)))
    return replace(spec, hints=hints_of(work), ttl_s=None)


def ran(spec: JobSpec, cluster: ClusterModel | None = None) -> Job:
    """The job after it has run to its end, alone."""
    env = VirtualTime()
    simulated = SimulatedCluster(env, cluster or _cluster(gpus=8))
    engine = Engine(SimpyClock(env), MemoryLog(), simulated, EngineOptions(resync_s=None))
    as_process(env, engine.run())
    env.run(until=1.0)
    engine.submit(SubmitJob(id="c", actor="a", job="j", namespace="t", name="j", spec=spec))
    env.run(until=30 * DAY)
    job = engine.world.jobs["j"]
    assert job.phase is Phase.SUCCEEDED, (job.phase, job.restarts)
    assert not simulated.running
    return job


def length_s(job: Job) -> float:
    assert job.attempt is not None
    assert job.attempt.running_at is not None
    assert job.finished_at is not None
    return job.finished_at - job.attempt.running_at


def expected_s(job: Job, cluster: ClusterModel, scheme: str) -> float:
    """The steps at the pace of the ranks that compute, where they are."""
    assert job.attempt is not None
    gpus, servers = Counter[str](), Counter[str]()
    for duty, slot in zip(duties_of(job.spec), job.attempt.placement, strict=True):
        if Duty.COMPUTE in duty:
            gpus[slot.node] += len(slot.devices) if cpus_of(job.spec) is None else 1
        if Duty.SERVE_PARAMETERS in duty:
            servers[slot.node] += 1
    trainer = Trainer(cluster)
    cpus = cpus_of(job.spec)
    recipe = Recipe("vgg16", scheme=SCHEMES[scheme], cpus=cpus)
    trainer.begin("x", recipe, gpus, steps=1, now=0.0, servers=servers)
    return STEPS * trainer.step_s("x")


@pytest.mark.parametrize(
    ("name", "gpus"),
    [
        ("mpijob.yaml", 16),
        ("mpijob-v1.yaml", 3),
        ("mpijob-v1alpha1-horovod.yaml", None),
        ("mpijob-v1alpha2-horovod.yaml", None),
        ("mpijob-v2beta1-mpich.yaml", None),
        ("mpijob-horovod-elastic.yaml", None),
        ("hostfilejob-cntk.yaml", 8),
        ("hostfilejob-caffe.yaml", None),
        ("trainjob-mpi.yaml", 6),
    ],
)
def test_the_workers_of_a_launcher_train_and_its_end_is_the_jobs(
    name: str, gpus: int | None
) -> None:
    spec, cluster = example(name), _cluster(gpus=8)
    job = ran(spec, cluster)
    computing = [
        len(slot.devices)
        for duty, slot in zip(duties_of(spec), job.attempt.placement, strict=True)
        if Duty.COMPUTE in duty
    ]
    assert sum(computing) == (gpus or spec.gpus)
    assert length_s(job) == pytest.approx(expected_s(job, cluster, "ring"), rel=1e-6)


def test_a_launcher_that_works_computes_with_its_workers() -> None:
    document = yaml.safe_load((EXAMPLES / "mpijob.yaml").read_text())
    roles = document["spec"]["mpiReplicaSpecs"]
    roles["Launcher"]["template"]["spec"]["containers"][0]["resources"] = {
        "limits": {"nvidia.com/gpu": 4}
    }
    roles["Worker"]["template"]["spec"]["containers"][0]["resources"] = {
        "limits": {"nvidia.com/gpu": 4}
    }
    lengths = {}
    for works in (False, True):
        document["spec"]["runLauncherAsWorker"] = works
        spec = read_manifest(document).spec
        # The batch of all is the same work, whatever it is spread over.
        spec = replace(
            spec, hints=hints_of(Workload(training=Training(model="vgg16", steps=STEPS)))
        )
        job = ran(spec, cluster := _cluster(gpus=4))
        lengths[works] = length_s(job)
        assert lengths[works] == pytest.approx(expected_s(job, cluster, "ring"), rel=1e-6)
    assert lengths[True] > lengths[False], "a ring of twelve takes longer than one of eight"


def test_workers_on_unknown_hardware_last_as_long_as_stated() -> None:
    spec = replace(
        example("mpijob.yaml"),
        hints=hints_of(Workload(duration_s=77.0, training=Training(model="vgg16"))),
    )
    assert length_s(ran(spec, _cluster(gpus=8, **UNKNOWN))) == 77.0


@pytest.mark.parametrize(
    ("name", "scheme"),
    [
        ("tfjob-ps-workers.yaml", "ps"),
        ("tfjob-v1alpha1.yaml", "ps"),
        ("mxjob.yaml", "ps-split"),
        ("paddlejob-servers.yaml", "ps"),
        ("tfjob-chief-evaluator.yaml", "ps"),
        ("xgboostjob.yaml", "mpi"),
        ("pytorchjob.yaml", "ring"),
    ],
)
def test_the_servers_of_a_manifest_are_its_scheme(name: str, scheme: str) -> None:
    spec, cluster = example(name), _cluster(gpus=8)
    assert scheme_of(spec, Training(model="vgg16")) == scheme
    job = ran(spec, cluster)
    assert length_s(job) == pytest.approx(expected_s(job, cluster, scheme), rel=1e-6)


def test_a_scheme_that_is_named_goes_before_the_servers() -> None:
    served = length_s(ran(example("tfjob-ps-workers.yaml"), _cluster(gpus=2)))
    ring = length_s(ran(example("tfjob-ps-workers.yaml", scheme="ring"), _cluster(gpus=2)))
    assert served > 2.0 * ring


def test_more_servers_are_faster_and_nodes_of_their_own_count() -> None:
    trainer = Trainer(_cluster(nodes=9, gpus=2))
    workers = {f"a-{i}": 2 for i in range(4)}

    def step_s(servers: dict[str, int], scheme: str = "ps-split") -> float:
        key = (tuple(servers.items()), scheme)
        recipe = Recipe("vgg16", scheme=SCHEMES[scheme])
        trainer.begin(key, recipe, workers, steps=1, now=0.0, servers=servers)
        seconds = trainer.step_s(key)
        trainer.end(key, 0.0)
        return seconds

    one, two, four = (step_s({f"a-{4 + i}": 1 for i in range(n)}) for n in (1, 2, 4))
    assert one > 1.5 * two > 2.0 * four
    # Four servers on one node share its NIC.
    assert step_s({"a-4": 4}) > 1.8 * four
    # On the nodes of workers a part of the traffic stays inside.
    assert step_s({f"a-{i}": 1 for i in range(4)}) < four
    # One large tensor stays with one server, whatever their number, unless tensors are split.
    assert step_s({f"a-{4 + i}": 1 for i in range(4)}, "ps") > 2.0 * four


def test_a_worker_waits_for_a_server_on_another_node_and_not_for_one_on_its_own() -> None:
    trainer = Trainer(_cluster(nodes=2, gpus=1))
    recipe = Recipe("vgg16", scheme=SCHEMES["ps"])
    trainer.begin("away", recipe, {"a-0": 1}, steps=1, now=0.0, servers={"a-1": 1})
    trainer.begin("near", recipe, {"a-0": 1}, steps=1, now=0.0, servers={"a-0": 1})
    trainer.begin("none", Recipe("vgg16"), {"a-0": 1}, steps=1, now=0.0)
    assert trainer.step_s("away") > 1.5 * trainer.step_s("near") > 1.5 * trainer.step_s("none")


def test_a_server_carries_the_traffic_of_all_its_clients() -> None:
    """A neighbour on the server's node feels it, one on a node that has nothing of it does not."""
    trainer = Trainer(_cluster(nodes=6, gpus=4, gpu_type="P100", net="10GbE"))
    recipe = Recipe("vgg16", scheme=SCHEMES["ps-split"])
    workers = {"a-0": 2, "a-1": 2}
    ring = Recipe("vgg16", compute_s=0.01)
    trainer.begin("neighbour", ring, {"a-2": 2, "a-3": 2}, steps=1, now=0.0)
    alone_s = trainer.step_s("neighbour")
    trainer.begin("served", recipe, workers, steps=1, now=0.0, servers={"a-3": 1})
    assert trainer.step_s("neighbour") > 1.2 * alone_s
    trainer.end("served", 0.0)
    trainer.begin("served", recipe, workers, steps=1, now=0.0, servers={"a-4": 1})
    assert trainer.step_s("neighbour") == pytest.approx(alone_s)


def _problem(spec: JobSpec) -> BadRecipe | None:
    return problem_of(spec, workload_of(spec).training)


def test_a_number_of_servers_other_than_the_jobs_own_is_refused() -> None:
    assert _problem(example("tfjob-ps-workers.yaml", servers=2)) is None
    wrong = _problem(example("tfjob-ps-workers.yaml", servers=3))
    assert wrong is not None
    assert "the job has 2 servers of its own" in str(wrong)


# -------------------------------------------------------------------- without GPUs


def _cpu_spec(model: str, *, cpu: int, workers: int = 2, **training: Any) -> JobSpec:
    document = yaml.safe_load((EXAMPLES / "tfjob-ps-workers.yaml").read_text())
    roles = document["spec"]["tfReplicaSpecs"]
    worker = roles["Worker"]
    worker["replicas"] = workers
    worker["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": str(cpu)}}
    spec = read_manifest(document).spec
    work = Workload(training=Training(model=model, steps=STEPS, **training))
    return replace(spec, hints=hints_of(work))


@pytest.mark.parametrize("model", ["lenet5", "ptb_lstm"])
def test_cpus_train_what_needs_no_gpu(model: str) -> None:
    rack = {"name": "cpu", "nodes": 4, "gpus": 0, "cpus": 32, "net": "10GbE"}
    cluster = parse_cluster({"racks": [rack]})
    few, many = (length_s(ran(_cpu_spec(model, cpu=cpu), cluster)) for cpu in (2, 16))
    assert few > 1.5 * many > 0.0
    # A worker's rate is what its cores make of the model: a third of their peak.
    assert many != 60.0


def test_ranks_without_a_cpu_request_share_their_node() -> None:
    trainer = Trainer(parse_cluster({"nodes": [{"name": "n", "gpus": 0, "cpus": 32}]}))
    for cpus, ranks in ((0.0, 1), (32.0, 1), (0.0, 4), (8.0, 4)):
        recipe = Recipe("lenet5", scheme=SCHEMES["mpi"], cpus=cpus)
        trainer.begin((cpus, ranks), recipe, {"n": ranks}, steps=1, now=0.0)
    assert trainer.step_s((0.0, 1)) == trainer.step_s((32.0, 1))
    assert trainer.step_s((0.0, 4)) == trainer.step_s((8.0, 4)) > trainer.step_s((0.0, 1))


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"model": "gpt_7.5b"}, "model"),
        ({"model": "lenet5", "scheme": "ring"}, "scheme"),
        ({"model": "lenet5", "compression": "1bit"}, "compression"),
        ({"model": "lenet5", "precision": "fp16"}, "precision"),
    ],
)
def test_what_cpus_cannot_do_is_refused(fields: dict[str, Any], field: str) -> None:
    wrong = _problem(_cpu_spec(fields.pop("model"), cpu=2, **fields))
    assert wrong is not None
    assert wrong.field == field


def test_a_launcher_without_gpus_anywhere_ends_with_the_training() -> None:
    cluster = _cluster(gpus=8)
    job = ran(example("mpijob-v2beta1-intel.yaml", model="lenet5"), cluster)
    assert 0.0 < length_s(job) != 60.0


def test_parameter_servers_stand_on_nodes_without_gpus() -> None:
    racks = [
        {"name": "gpu", "nodes": 4, "gpus": 2, "cpus": 8, **KNOWN},
        {"name": "cpu", "nodes": 2, "gpus": 0, "cpus": 32, "net": "100GbE"},
    ]
    cluster = parse_cluster({"racks": racks})
    job = ran(example("tfjob-ps-workers.yaml"), cluster)
    assert job.attempt is not None
    where = [slot.node[:3] for slot in job.attempt.placement]
    assert sorted(where) == ["cpu"] * 2 + ["gpu"] * 4
    assert length_s(job) == pytest.approx(expected_s(job, cluster, "ps"), rel=1e-6)
