"""What the model of a cluster knows beforehand of a job that cannot train there. Pure.

A recipe that no formula can follow is refused with what exists. A training whose memory
(`simulator/training/memory.py`) exceeds every GPU that the job may get is refused too; where only
some of them are too small, it runs out of memory if it is placed on one of those.
"""

from collections.abc import Iterable, Mapping

from adapters.simulated_cluster.training import cpus_of, duties_of, problem_of, recipe_of, trains_on
from controlplane.asks import pods_selector
from controlplane.errors import Rejected
from controlplane.kinds.manifest import WORKLOAD_PREFIX
from controlplane.model import JobSpec, Placement, Role
from controlplane.requests import requests_of
from simulator.gangs import Duty
from simulator.topology import NodeModel
from simulator.training.memory import MIB, memory_of
from simulator.training.models import find_model

# Annotations that are spelt otherwise than the field of the native form.
_SPELT = {
    "compute_s": "compute-seconds",
    "checkpoint_s": "checkpoint-seconds",
    "checkpoint_write_s": "checkpoint-write-seconds",
    "evaluate_s": "evaluate-seconds",
}


def refusal(spec: JobSpec, nodes: Iterable[NodeModel]) -> Rejected | None:
    """Why a job cannot train on any cluster, or on none of these nodes; None if it may."""
    wrong = problem_of(spec)
    if wrong is not None:
        field = _written(spec, wrong.field)
        return Rejected("invalid_job", f"{field}: {wrong.problem}", field=field)
    needed_mib = memory_mib(spec)
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
        # No node at all is allowed, which others say better.
        return None
    field = _written(spec, "model")
    has_mib, name = largest
    told = f"the largest that this job may use has {_gib(has_mib)} ({name})"
    return Rejected("can_never_fit", f"{field}: {_needs(spec, needed_mib)}; {told}", field=field)


def undeclared(spec: JobSpec, extended: Mapping[str, int]) -> Rejected | None:
    """The refusal of a job that requests devices which no node of the cluster file declares."""
    for role, amounts in zip(spec.roles, requests_of(spec), strict=False):
        for name in amounts:
            if "/" in name and name not in extended:
                known = f"they declare {', '.join(sorted(extended))}" if extended else "none does"
                told = f"a rank of {role.name} requests {name}, which no node has: {known}"
                return Rejected("can_never_fit", f"{told} (`resources` of the cluster file)")
    return None


def too_small(
    spec: JobSpec, placement: Placement, ranks: Iterable[int], nodes: Mapping[str, NodeModel]
) -> tuple[int, str] | None:
    """The first rank whose device cannot hold the training, and what its framework would print."""
    needed_mib = memory_mib(spec)
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
            told = f"{node.gpu_type or 'the device'} of {node.name} has {_gib(has_mib)}"
            return rank, f"out of memory: {_needs(spec, needed_mib)}; {told}"
    return None


def memory_mib(spec: JobSpec) -> float | None:
    """What the training takes on each GPU; None for a job that trains nothing, or on CPUs."""
    recipe = recipe_of(spec)
    if recipe is None or cpus_of(spec) is not None:
        return None
    gpus = sum(role.replicas * role.devices_of_rank for role in trains_on(spec))
    return memory_of(recipe, find_model(recipe.model), gpus).total / MIB


def _needs(spec: JobSpec, needed_mib: float) -> str:
    training = spec.workload.training
    assert training is not None
    return f"{training.model} needs at least {_gib(needed_mib)} on each GPU"


def _gib(mib: float) -> str:
    return f"{mib / 1024:,.1f} GiB"


def _granted_mib(role: Role, node: NodeModel) -> int:
    """The memory that a rank of the role has on one device of the node; 0 if it is not known."""
    whole = node.device_memory_mib
    if role.gpu_memory_mib:
        return role.gpu_memory_mib
    return whole * role.gpu_share // 1_000 if role.gpu_share else whole


def _allows(spec: JobSpec, role: Role, node: NodeModel) -> bool:
    """Whether the scheduler may give the node to a rank of the role."""
    asks = spec.scheduling
    if role.node and role.node != node.name:
        return False
    if asks.flavors and node.flavor not in asks.flavors:
        return False
    labels = node.all_labels
    return {**pods_selector(spec), **asks.selector}.items() <= labels.items()


def _written(spec: JobSpec, field: str) -> str:
    """Where the person wrote a field of the training."""
    if WORKLOAD_PREFIX + "model" in spec.annotations:
        name = _SPELT.get(field, field.replace("_", "-"))
        return f"metadata.annotations[{WORKLOAD_PREFIX}{name}]"
    return f"spec.workload.training.{field}"
