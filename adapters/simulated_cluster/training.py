"""The training of a job, translated into the simulator's terms. Pure.

The kind of the job defines which ranks compute, which hold parameters and which start the others
(`Kind.duties`). Fields that the manifest leaves out get usual values: a job with parameter servers
exchanges gradients through them, where they are placed, unless it names another `scheme`.
"""

from collections.abc import Callable
from functools import lru_cache

from adapters.simulated_cluster.workload import Training
from controlplane.kinds import kind
from controlplane.kinds.registry import kind_of
from controlplane.lifecycle.job import Job
from controlplane.model.resources import CPU, requests_of
from controlplane.model.spec import JobSpec, Role
from simulator.machine.gang import Duty, Work
from simulator.training.checkpoints import Checkpointing
from simulator.training.plans import SCHEMES
from simulator.training.recipes import BadRecipe, Recipe, check

# The schemes of a gang without parameter servers, on GPUs and on CPUs, and of one with servers:
# TensorFlow's workers fetch and send whole variables; MXNet splits large arrays over its servers.
ALONE_SCHEME = "ring"
CPU_SCHEME = "mpi"
SERVED_SCHEME = "ps"
SERVED_SCHEMES = {"MXJob": "ps-split"}

_DUTIES = {
    kind.Duty.COMPUTE: Duty.COMPUTE,
    kind.Duty.SERVE_PARAMETERS: Duty.SERVE_PARAMETERS,
    kind.Duty.DRIVE: Duty.DRIVE,
}


def training_of(job: Job, training: Training | None) -> Work | None:
    """Return the work of a job's training; None if there is none or if its recipe is invalid."""
    spec = job.spec
    if training is None or problem_of(spec, training) is not None:
        return None
    by_role = _by_role(spec)
    driven = any(Duty.DRIVE in by_role[role.name] for role in spec.roles if role.replicas)
    recipe = _recipe(training, scheme_of(spec, training), cpus_of(spec))
    steps = float(training.steps)
    return Work(recipe, steps, resume=job.id, gpus=computing(spec), driven=driven)


def recipe_of(spec: JobSpec, training: Training) -> Recipe | None:
    """Return the recipe of the job's training; None if it is invalid."""
    if problem_of(spec, training) is not None:
        return None
    return _recipe(training, scheme_of(spec, training), cpus_of(spec))


def trains_on(spec: JobSpec) -> list[Role]:
    """Return the roles whose devices compute."""
    by_role = _by_role(spec)
    return [role for role in spec.roles if Duty.COMPUTE in by_role[role.name]]


def duties_of(spec: JobSpec) -> tuple[Duty, ...]:
    """Return the duty of each rank in the training."""
    by_role = _by_role(spec)
    return tuple(by_role[role.name] for role in spec.roles for _ in range(role.replicas))


def all_compute(spec: JobSpec) -> bool:
    return all(duty == Duty.COMPUTE for duty in _by_role(spec).values())


def problem_of(spec: JobSpec, training: Training | None) -> BadRecipe | None:
    """Return why the training cannot be simulated, with the field to change; None if it can."""
    if training is None:
        return None
    scheme = scheme_of(spec, training)
    return _problem(training, scheme, servers_of(spec), computing(spec), cpus_of(spec))


def scheme_of(spec: JobSpec, training: Training) -> str:
    """Return how gradients are exchanged: as requested, else through the job's servers if it has any."""
    if training.scheme:
        return training.scheme
    if servers_of(spec):
        return SERVED_SCHEMES.get(spec.kind, SERVED_SCHEME)
    return ALONE_SCHEME if cpus_of(spec) is None else CPU_SCHEME


def servers_of(spec: JobSpec) -> int:
    """Return the number of parameter servers among the job's ranks."""
    return _count(spec, Duty.SERVE_PARAMETERS, lambda _: 1)


def computing(spec: JobSpec) -> int:
    """Return how many GPUs compute in the whole gang or, without GPUs, how many ranks do."""
    return _gpus(spec) or _count(spec, Duty.COMPUTE, lambda _: 1)


def cpus_of(spec: JobSpec) -> float | None:
    """Return the cores of a rank that computes without GPUs, 0 if not requested; None if GPUs compute."""
    if _gpus(spec):
        return None
    by_role = _by_role(spec)
    asked = [
        request.get(CPU, 0) / 1_000
        for role, request in zip(spec.roles, requests_of(spec), strict=False)
        if Duty.COMPUTE in by_role[role.name]
    ]
    return min(asked, default=0.0)


def _gpus(spec: JobSpec) -> int:
    return _count(spec, Duty.COMPUTE, lambda role: role.devices_of_rank)


def _count(spec: JobSpec, duty: Duty, per_rank: Callable[[Role], int]) -> int:
    by_role = _by_role(spec)
    return sum(role.replicas * per_rank(role) for role in spec.roles if duty in by_role[role.name])


def _by_role(spec: JobSpec) -> dict[str, Duty]:
    given = kind_of(spec).duties(spec)
    return {role.name: _duty(given.get(role.name, kind.Duty(0))) for role in spec.roles}


def _duty(given: kind.Duty) -> Duty:
    duty = Duty(0)
    for theirs, ours in _DUTIES.items():
        if theirs in given:
            duty |= ours
    return duty


@lru_cache(maxsize=1024)
def _problem(
    training: Training, scheme: str, servers: int, gpus: int, cpus: float | None
) -> BadRecipe | None:
    if scheme not in SCHEMES:
        return BadRecipe("scheme", f"must be one of {', '.join(SCHEMES)}")
    if training.steps < 1:
        return BadRecipe("steps", "must be at least 1")
    if training.checkpoint_write_s > 0 and training.checkpoint_s <= 0:
        return BadRecipe("checkpoint_write_s", "has no meaning without checkpoint_s")
    if training.servers is not None and servers and training.servers != servers:
        message = (
            f"is {training.servers}, but the job has {servers} servers of its own; leave it out"
        )
        return BadRecipe("servers", message)
    try:
        check(_recipe(training, scheme, cpus), gpus)
    except BadRecipe as bad:
        return bad
    return None


@lru_cache(maxsize=1024)
def _recipe(training: Training, scheme: str, cpus: float | None) -> Recipe:
    every_s = training.checkpoint_s
    return Recipe(
        model=training.model,
        precision=training.precision,
        batch=training.batch,
        scheme=SCHEMES[scheme],
        compression=training.compression,
        accumulate=training.accumulate,
        servers=training.servers,
        real_data=training.real_data,
        compute_s=training.compute_s,
        tensor=training.tensor,
        pipeline=training.pipeline,
        global_batch=training.global_batch,
        evaluate_steps=training.evaluate_steps,
        evaluate_s=training.evaluate_s,
        cpus=cpus,
        checkpoint=Checkpointing(every_s, training.checkpoint_write_s) if every_s > 0 else None,
    )
