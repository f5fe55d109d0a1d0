"""Checks at submission whether a job can train on the modelled cluster. Pure.

An invalid recipe is refused with the valid values. A training whose memory
(`simulator/training/memory.py`) exceeds every GPU that the job may use is refused too. If only some
of these GPUs are too small, the job is accepted and runs out of memory when it is placed on one.
"""

from collections.abc import Iterable, Mapping

from adapters.simulated_cluster.training import cpus_of, duties_of, problem_of, recipe_of, trains_on
from adapters.simulated_cluster.workload import NAME, SCHEMA, Training, workload_of
from controlplane.model.cluster import Placement
from controlplane.model.constraints import pods_selector
from controlplane.model.errors import Rejected
from controlplane.model.resources import requests_of
from controlplane.model.spec import JobSpec, Role
from simulator.machine.gang import Duty
from simulator.network.topology import NodeModel
from simulator.training.memory import MIB, memory_of
from simulator.training.models import find_model


def refusal(spec: JobSpec, nodes: Iterable[NodeModel]) -> Rejected | None:
    """Return why a job cannot train at all, or on none of these nodes; None if it can."""
    training = workload_of(spec).training
    if training is None:
        return None
    wrong = problem_of(spec, training)
    if wrong is not None:
        field = _written(spec, wrong.field)
        return Rejected("invalid_job", f"{field}: {wrong.problem}", field=field)
    needed_mib = memory_mib(spec, training)
    if needed_mib is None:
        return None
    largest: tuple[int, str] | None = None
    for node in nodes:
        if not node.gpus:
            continue
        for role in trains_on(spec):
            if not _allows(spec, role, node):
                continue
            has_mib = _granted_mib(role, node)
            if not has_mib or has_mib >= needed_mib:
                return None
            largest = max(largest or (0, ""), (has_mib, node.gpu_type or node.name))
    if largest is None:
        # The job may use no node at all, which the scheduler explains better.
        return None
    field = _written(spec, "model")
    has_mib, name = largest
    limit = f"the largest that this job may use has {_gib(has_mib)} ({name})"
    return Rejected(
        "can_never_fit", f"{field}: {_needs(training, needed_mib)}; {limit}", field=field
    )


def undeclared(spec: JobSpec, extended: Mapping[str, int]) -> Rejected | None:
    """Return the refusal of a job that requests devices which no node declares, or None."""
    for role, amounts in zip(spec.roles, requests_of(spec), strict=False):
        for name in amounts:
            if "/" in name and name not in extended:
                known = f"they declare {', '.join(sorted(extended))}" if extended else "none does"
                problem = f"a rank of {role.name} requests {name}, which no node has: {known}"
                return Rejected("can_never_fit", f"{problem} (`resources` of the cluster file)")
    return None


def too_small(
    spec: JobSpec,
    training: Training,
    placement: Placement,
    ranks: Iterable[int],
    nodes: Mapping[str, NodeModel],
) -> tuple[int, str] | None:
    """Return the first rank whose device is too small, with the error of its framework; or None."""
    needed_mib = memory_mib(spec, training)
    if needed_mib is None:
        return None
    duties = duties_of(spec)
    for rank in ranks:
        node = nodes.get(placement[rank].node)
        if node is None or rank >= len(duties) or Duty.COMPUTE not in duties[rank]:
            continue
        if not placement[rank].devices:
            continue
        has_mib = _granted_mib(spec.role_of(rank)[0], node)
        if 0 < has_mib < needed_mib:
            limit = f"{node.gpu_type or 'the device'} of {node.name} has {_gib(has_mib)}"
            return rank, f"out of memory: {_needs(training, needed_mib)}; {limit}"
    return None


def memory_mib(spec: JobSpec, training: Training) -> float | None:
    """Return the memory of the training on each GPU; None for a job that does not train on GPUs."""
    recipe = recipe_of(spec, training)
    if recipe is None or cpus_of(spec) is not None:
        return None
    gpus = sum(role.replicas * role.devices_of_rank for role in trains_on(spec))
    return memory_of(recipe, find_model(recipe.model), gpus).total / MIB


def _needs(training: Training, needed_mib: float) -> str:
    return f"{training.model} needs at least {_gib(needed_mib)} on each GPU"


def _gib(mib: float) -> str:
    return f"{mib / 1024:,.1f} GiB"


def _granted_mib(role: Role, node: NodeModel) -> int:
    """Return the memory of a rank of the role on one device of the node; 0 if unknown."""
    whole = node.device_memory_mib
    if role.gpu_memory_mib:
        return role.gpu_memory_mib
    return whole * role.gpu_share // 1_000 if role.gpu_share else whole


def _allows(spec: JobSpec, role: Role, node: NodeModel) -> bool:
    """Return whether the scheduler may place a rank of the role on the node."""
    asks = spec.scheduling
    if role.node and role.node != node.name:
        return False
    if asks.flavors and node.flavor not in asks.flavors:
        return False
    labels = node.all_labels
    return {**pods_selector(spec), **asks.selector}.items() <= labels.items()


def _written(spec: JobSpec, field: str) -> str:
    """Return the path of a training field in the manifest that was submitted."""
    if f"{SCHEMA.annotation_prefix}model" in spec.annotations:
        return SCHEMA.annotation_path(field)
    return f"spec.{NAME}.training.{field}"
