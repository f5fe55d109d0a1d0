"""A job's training, as the physics understands it. Pure."""

from functools import lru_cache

from controlplane.job import Job
from controlplane.model import JobSpec, Training
from simulator.gangs import Work
from simulator.training.checkpoints import Checkpointing
from simulator.training.pace import BadRecipe, Recipe, check
from simulator.training.plans import SCHEMES


def training_of(job: Job) -> Work | None:
    """Steps to train, or None for a job with a given duration or an unusable recipe."""
    training = job.spec.workload.training
    if training is None or problem_of(job) is not None:
        return None
    recipe = _recipe(training, _servers(job.spec))
    return Work(recipe, float(training.steps), resume=job.id, gpus=_gpus(job.spec))


def problem_of(job: Job) -> str | None:
    """Why this training cannot be run, for the person who asked for it."""
    training = job.spec.workload.training
    if training is None:
        return None
    return _problem(training, _servers(job.spec), _gpus(job.spec))


@lru_cache(maxsize=1024)
def _problem(training: Training, servers: int, gpus: int) -> str | None:
    if training.scheme not in SCHEMES:
        return f"workload.training.scheme: must be one of {', '.join(SCHEMES)}"
    if training.steps < 1:
        return "workload.training.steps: must be at least 1"
    try:
        check(_recipe(training, servers), gpus)
    except BadRecipe as bad:
        return f"workload.training.{bad}"
    return None


@lru_cache(maxsize=1024)
def _recipe(training: Training, servers: int) -> Recipe:
    every_s = training.checkpoint_s
    return Recipe(
        model=training.model,
        precision=training.precision,
        batch=training.batch,
        scheme=SCHEMES[training.scheme],
        compression=training.compression,
        accumulate=training.accumulate,
        servers=training.servers or servers or None,
        real_data=training.real_data,
        compute_s=training.compute_s,
        tensor=training.tensor,
        pipeline=training.pipeline,
        global_batch=training.global_batch,
        evaluate_steps=training.evaluate_steps,
        evaluate_s=training.evaluate_s,
        checkpoint=Checkpointing(every_s, training.checkpoint_write_s) if every_s > 0 else None,
    )


def _servers(spec: JobSpec) -> int:
    return sum(role.replicas for role in spec.roles if role.serves)


def _gpus(spec: JobSpec) -> int:
    return sum(role.devices_of_rank * role.replicas for role in spec.roles if not role.serves)
