"""Jobs that cannot train are refused before they are submitted, with what exists."""

from typing import Any

import pytest
from msgspec.structs import replace

from adapters.clocks.simpy_clock import SimpyClock, as_process
from adapters.logs.memory_log import MemoryLog
from adapters.simulated_cluster.cluster import SimulatedCluster
from adapters.simulated_cluster.workload import Training, Workload, hints_of, workload_of
from controlplane.engine import Engine, EngineOptions
from controlplane.lifecycle.job import Job
from controlplane.messages import job_text
from controlplane.model.commands import SubmitJob
from controlplane.model.phases import Phase
from controlplane.model.spec import DoneWhen, JobSpec, Role, Scheduling
from simulator.hardware.gpus import GPUS, find_gpu
from simulator.kernel.virtual_time import VirtualTime
from simulator.network.topology import ClusterModel, parse_cluster
from simulator.training.memory import GIB, memory_of
from simulator.training.models import MODELS
from simulator.training.plans import Scheme
from simulator.training.recipes import Recipe

SMALL = {"name": "small", "nodes": 2, "gpus": 8, "gpu_type": "V100"}
LARGE = {"name": "large", "nodes": 2, "gpus": 8, "gpu_type": "A100-80"}
UNKNOWN = {"name": "odd", "nodes": 1, "gpus": 8, "gpu_type": "Z9000"}


def _cluster(*racks: dict[str, Any]) -> ClusterModel:
    return parse_cluster({"racks": list(racks)})


def _spec(gpus: int = 1, ranks: int = 1, **training: Any) -> JobSpec:
    return JobSpec(
        roles=(Role(name="Worker", replicas=ranks, gpus=gpus),),
        done_when=DoneWhen("Worker"),
        hints=hints_of(
            Workload(training=Training(**{"model": "resnet50", "steps": 100} | training))
        ),
    )


def _refused(spec: JobSpec, *racks: dict[str, Any]) -> tuple[str, str]:
    refusal = SimulatedCluster(VirtualTime(), _cluster(*(racks or (SMALL,)))).vet(spec)
    return ("", "") if refusal is None else (refusal.code, str(refusal))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"model": "nonesuch"}, "spec.workload.training.model: no model 'nonesuch'"),
        ({"scheme": "magic"}, "spec.workload.training.scheme: must be one of ring, "),
        ({"precision": "int3"}, "spec.workload.training.precision: must be one of fp32, "),
        ({"compression": "zip"}, "spec.workload.training.compression: must be one of none, "),
        (
            {"global_batch": 64},
            "spec.workload.training.global_batch: resnet50 trains data-parallel",
        ),
        ({"servers": 2}, "spec.workload.training.servers: the scheme has no parameter servers"),
        ({"checkpoint_write_s": 2.0}, "checkpoint_write_s: has no meaning without checkpoint_s"),
        ({"evaluate_s": 2.0}, "evaluate_s: has no meaning without evaluate_steps"),
        ({"tensor": 2}, "tensor: resnet50 is no transformer"),
    ],
)
def test_a_recipe_that_no_formula_follows_is_refused(fields: dict[str, Any], expected: str) -> None:
    code, message = _refused(_spec(**fields))
    assert code == "invalid_job"
    assert expected in message


@pytest.mark.parametrize(
    "fields",
    [
        {"scheme": "ps"},
        {"compression": "fp16"},
        {"accumulate": 2},
        {"real_data": True},
        {"precision": "fp32"},
        {"scheme": "ps", "servers": 2},
    ],
)
def test_what_the_formula_of_language_models_does_not_use_is_refused(
    fields: dict[str, Any],
) -> None:
    spec = _spec(8, 2, model="gpt_3.6b", tensor=8)
    assert _refused(spec, LARGE) == ("", "")
    training = replace(workload_of(spec).training, **fields)
    code, message = _refused(replace(spec, hints=hints_of(Workload(training=training))), LARGE)
    assert code == "invalid_job"
    assert f"training.{next(iter(fields))}: " in message


def test_the_field_is_named_as_the_person_wrote_it() -> None:
    spec = replace(
        _spec(model="nonesuch"), kind="PyTorchJob", annotations={"sim.muster.dev/model": "nonesuch"}
    )
    assert _refused(spec)[1].startswith("metadata.annotations[sim.muster.dev/model]: no model")


def test_a_model_that_fits_no_gpu_is_refused_with_what_it_needs() -> None:
    code, message = _refused(_spec(model="gpt_175b"))
    assert code == "can_never_fit"
    assert "gpt_175b needs at least 2," in message
    assert "the largest that this job may use has 16.0 GiB (V100)" in message
    # Cut into enough parts it fits; on hardware that is not known nothing is refused.
    assert _refused(_spec(8, 64, model="gpt_175b", tensor=8, pipeline=64), SMALL) == ("", "")
    assert _refused(_spec(model="gpt_175b"), SMALL, UNKNOWN) == ("", "")
    # Too large a batch is no better than too large a model.
    assert _refused(_spec(batch=64)) == ("", "")
    assert _refused(_spec(batch=4096))[0] == "can_never_fit"


def test_only_gpus_that_the_job_may_use_count() -> None:
    spec = _spec(8, model="gpt_1.7b")
    assert _refused(spec, SMALL)[0] == "can_never_fit"
    assert _refused(spec, SMALL, LARGE) == ("", "")
    only = replace(spec, scheduling=Scheduling(flavors=("V100",)))
    assert _refused(only, SMALL, LARGE)[0] == "can_never_fit"
    labelled = SMALL | {"labels": {"pool": "old"}}
    chosen = replace(spec, scheduling=Scheduling(selector={"pool": "old"}))
    assert _refused(chosen, labelled, LARGE)[0] == "can_never_fit"
    pinned = replace(spec, roles=(replace(spec.roles[0], node="small-0"),))
    assert _refused(pinned, SMALL, LARGE)[0] == "can_never_fit"


def test_a_part_of_a_device_has_a_part_of_its_memory() -> None:
    role = Role(name="Worker", gpu_share=250)
    spec = replace(_spec(batch=64), roles=(role,))
    assert _refused(spec, SMALL)[0] == "can_never_fit"
    assert _refused(spec, LARGE) == ("", "")
    few = replace(spec, roles=(Role(name="Worker", gpu_memory_mib=2048),))
    assert _refused(few, LARGE)[0] == "can_never_fit"


def _ran(spec: JobSpec, *racks: dict[str, Any]) -> Job:
    env = VirtualTime()
    cluster = SimulatedCluster(env, _cluster(*racks))
    engine = Engine(SimpyClock(env), MemoryLog(), cluster, EngineOptions(resync_s=None))
    as_process(env, engine.run())
    env.run(until=1.0)
    engine.submit(SubmitJob(id="c", actor="a", job="j", namespace="t", name="j", spec=spec))
    env.run(until=1e6)
    return engine.world.jobs["j"]


def test_a_job_that_is_placed_on_too_small_a_gpu_is_out_of_memory_for_good() -> None:
    spec = _spec(8, model="gpt_1.7b")
    job = _ran(replace(spec, roles=(replace(spec.roles[0], node="small-0"),)), SMALL, LARGE)
    assert (job.phase, job.reason, job.restarts) == (Phase.FAILED, "cannot_run", ())
    assert "out of memory: gpt_1.7b needs at least" in job_text(job)
    assert "V100 of small-0 has 16.0 GiB" in job_text(job)
    assert _ran(spec, LARGE).phase is Phase.SUCCEEDED


def test_a_recipe_that_came_in_by_another_door_fails_at_once() -> None:
    job = _ran(_spec(model="nonesuch"), SMALL)
    assert (job.phase, job.reason, job.restarts) == (Phase.FAILED, "cannot_run", ())


# -------------------------------------------------------------------- the memory model


@pytest.mark.parametrize("model", MODELS.values(), ids=lambda model: model.name)
def test_every_published_rate_was_measured_with_enough_memory(model: Any) -> None:
    for (gpu, precision), (batch, _) in model.rates.items():
        needed = memory_of(Recipe(model.name, precision=precision, batch=batch), model, 1).total
        assert needed <= find_gpu(gpu).memory_gb * GIB, (gpu, precision, batch)


@pytest.mark.parametrize(
    ("model", "tensor", "pipeline", "gpus", "gpu"),
    [
        # Narayanan et al. 2021, table 1, on A100 with 80 GB.
        ("gpt_1.7b", 1, 1, 32, "A100-80"),
        ("gpt_3.6b", 2, 1, 64, "A100-80"),
        ("gpt_7.5b", 4, 1, 128, "A100-80"),
        ("gpt_18.4b", 8, 1, 256, "A100-80"),
        ("gpt_39.1b", 8, 2, 512, "A100-80"),
        ("gpt_76.1b", 8, 4, 1024, "A100-80"),
        ("gpt_145.6b", 8, 8, 1536, "A100-80"),
        ("gpt_310b", 8, 16, 1920, "A100-80"),
        ("gpt_529.6b", 8, 35, 2520, "A100-80"),
        ("gpt_1008b", 8, 64, 3072, "A100-80"),
    ],
)
def test_published_plans_fit_and_half_of_their_cuts_do_not(
    model: str, tensor: int, pipeline: int, gpus: int, gpu: str
) -> None:
    has = GPUS[gpu].memory_gb * GIB
    recipe = Recipe(model, batch=1, tensor=tensor, pipeline=pipeline)
    assert memory_of(recipe, MODELS[model], gpus).total <= has
    alone = memory_of(Recipe(model, batch=1), MODELS[model], gpus)
    assert alone.weights == pytest.approx(2.0 * MODELS[model].params)
    assert alone.optimizer == pytest.approx(12.0 * MODELS[model].params)
    assert (alone.total > has) == (MODELS[model].params > 4.5e9)


def test_sharding_and_servers_take_state_off_the_devices() -> None:
    model = MODELS["bert_large"]
    whole, sharded, served = (
        memory_of(Recipe(model.name, scheme=scheme), model, 64)
        for scheme in (Scheme.ALL_REDUCE, Scheme.SHARDED, Scheme.PS_GPU)
    )
    assert sharded.optimizer == pytest.approx(whole.optimizer / 64)
    assert sharded.weights < whole.weights
    assert (served.optimizer, served.weights) == (0.0, whole.weights)
