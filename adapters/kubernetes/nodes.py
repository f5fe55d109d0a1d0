"""What node documents say: machines with devices, and which of them answer. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from adapters.kubernetes.marks import Document, labels_of, name_of
from controlplane.commands import ReportCluster
from controlplane.model import NodeInfo
from controlplane.quantities import parse
from controlplane.requests import GPU_RESOURCES, NO_AMOUNTS, amounts, pod_requests

# Labels that say what a node's devices are and where it stands, the best known first.
GPU_TYPE_LABELS = ("nvidia.com/gpu.product", "accelerator", "cloud.google.com/gke-accelerator")
GPU_MEMORY_LABELS = ("nvidia.com/gpu.memory",)
RACK_LABELS = ("topology.kubernetes.io/rack", "muster.dev/rack", "topology.kubernetes.io/zone")
# Taints with these effects keep pods away; PreferNoSchedule does not.
KEEPS_AWAY = ("NoSchedule", "NoExecute")
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
# Put on by a person who has seen that the machine is off (Kubernetes: non-graceful node shutdown).
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
# Who asks for GPUs means nodes with GPUs: Kubernetes lets such pods past these taints too, by its
# admission plugin ExtendedResourceToleration.
GPU_TAINTS = frozenset(GPU_RESOURCES)
# Devices are counted one by one, and no pod requests that it is one.
NOT_REQUESTED = frozenset({*GPU_RESOURCES, "pods"})


def survey(nodes: Iterable[Document]) -> ReportCluster:
    """A complete listing of the cluster's nodes as one report."""
    up: list[NodeInfo] = []
    down: list[NodeInfo] = []
    for node in sorted(nodes, key=name_of):
        (up if is_ready(node) else down).append(info(node))
    return ReportCluster(up=tuple(up), down=tuple(down))


def is_ready(node: Document) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)


def is_out_of_service(node: Document) -> bool:
    """Whether a person has said that a node which is not ready is off, and not only silent."""
    taints = (node.get("spec") or {}).get("taints") or ()
    return not is_ready(node) and any(each.get("key") == OUT_OF_SERVICE for each in taints)


def info(
    node: Document,
    *,
    unusable: Sequence[int] = (),
    levels: Sequence[str] = (),
    others: Mapping[str, int] = NO_AMOUNTS,
) -> NodeInfo:
    """`levels` are labels that say where a node stands, outermost first.

    `others` is what other people's pods request there beside GPUs.
    """
    offered = resources(node)
    labels = labels_of(node)
    memory = _first(labels, GPU_MEMORY_LABELS)
    return NodeInfo(
        name=name_of(node),
        gpus=gpus(node),
        gpu_type=_first(labels, GPU_TYPE_LABELS),
        gpu_memory_mib=int(memory) if memory.isdigit() else 0,
        rack=_first(labels, RACK_LABELS),
        labels=dict(labels),
        path=tuple(labels.get(level, "") for level in levels),
        taints=taints(node),
        unusable=tuple(unusable),
        resources=offered,
        used_by_others={name: others[name] for name in sorted(others) if name in offered},
    )


def gpus(node: Document) -> int:
    """How many devices it has, well or sick."""
    status: Mapping[str, Any] = node.get("status") or {}
    return max(_gpus(status.get("capacity")), _gpus(status.get("allocatable")))


def sick(node: Document) -> int:
    """How many of its devices its kubelet would not give away. Which ones it does not say."""
    return gpus(node) - _gpus((node.get("status") or {}).get("allocatable"))


def unusable(gpus: int, count: int, held: Collection[int], before: Sequence[int]) -> list[int]:
    """Which devices to leave alone when nobody says which ones are sick or in other hands.

    Kubelets choose devices themselves, so only their number has to be right: first those that were
    named before, then those that no rank of ours holds, the highest first.
    """
    free = [i for i in range(gpus - 1, -1, -1) if i not in held]
    taken = [i for i in range(gpus - 1, -1, -1) if i in held]
    ranked = sorted(free, key=lambda i: i not in before) + taken
    return sorted(ranked[: min(count, gpus)])


def taints(node: Document) -> tuple[str, ...]:
    """As `key` or `key=value`."""
    spec: Mapping[str, Any] = node.get("spec") or {}
    found = {
        f"{each['key']}={each['value']}" if each.get("value") else str(each["key"])
        for each in spec.get("taints") or ()
        if each.get("effect") in KEEPS_AWAY and each.get("key") not in GPU_TAINTS
    }
    if spec.get("unschedulable"):
        found.add(UNSCHEDULABLE)
    return tuple(sorted(found))


def resources(node: Document) -> dict[str, int]:
    """What pods may request of it beside GPUs."""
    given = (node.get("status") or {}).get("allocatable") or {}
    found = {name: parse(given[name]) for name in sorted(given) if name not in NOT_REQUESTED}
    known = {name: each for name, each in found.items() if each is not None}
    # Of what is named with nothing there is nothing; of what is not named there is no end.
    return dict.fromkeys(known, 0) | amounts(known)


def asks_something(pod: Document) -> bool:
    """Whether a pod may request anything at all; quick to find out."""
    spec: Mapping[str, Any] = pod.get("spec") or {}
    containers = (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
    return any(each.get("resources") for each in (spec, *containers)) or bool(spec.get("overhead"))


def requested(pod: Document) -> dict[str, int]:
    """What a pod takes of its node beside GPUs, whoever's it is.

    One that was resized while it runs counts with what it was given so far, if that is more.
    """
    spec: Mapping[str, Any] = pod.get("spec") or {}
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    given = {each.get("name"): each.get("allocatedResources") for each in statuses}
    found = amounts(pod_requests(pod))
    if any(given.values()):
        grown = [_with_given(each, given.get(each.get("name"))) for each in spec["containers"]]
        before = amounts(pod_requests({"spec": {**spec, "containers": grown}}))
        found = {name: max(found.get(name, 0), before.get(name, 0)) for name in found | before}
    return found


def _with_given(container: Mapping[str, Any], given: Mapping[str, Any] | None) -> Document:
    return {**container, "resources": {"requests": given}} if given else container


def gpus_asked(pod: Document) -> int:
    """How many devices a pod was given, whoever's it is."""
    spec: Mapping[str, Any] = pod.get("spec") or {}
    running = sum(_asked(each) for each in spec.get("containers") or ())
    return max([running, *(_asked(each) for each in spec.get("initContainers") or ())])


def _asked(container: Mapping[str, Any]) -> int:
    resources = container.get("resources") or {}
    return _gpus({**(resources.get("requests") or {}), **(resources.get("limits") or {})})


def _gpus(amounts: Mapping[str, Any] | None) -> int:
    found = 0
    for name in GPU_RESOURCES:
        amount = str((amounts or {}).get(name, 0))
        found += int(amount) if amount.isdigit() else 0
    return found


def _first(labels: Mapping[str, str], names: Iterable[str]) -> str:
    return next((labels[name] for name in names if name in labels), "")
