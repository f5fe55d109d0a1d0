"""Node documents to `NodeInfo`: devices, resources, taints, topology and readiness. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from adapters.kubernetes.observe.labels import Document, labels_of, name_of
from controlplane.model.cluster import NodeInfo
from controlplane.model.quantities import parse
from controlplane.model.resources import GPU_RESOURCES, NO_AMOUNTS, amounts, pod_requests

# Labels for the type and memory of a node's devices and for its rack; the first present counts.
GPU_TYPE_LABELS = ("nvidia.com/gpu.product", "accelerator", "cloud.google.com/gke-accelerator")
GPU_MEMORY_LABELS = ("nvidia.com/gpu.memory",)
RACK_LABELS = ("topology.kubernetes.io/rack", "muster.dev/rack", "topology.kubernetes.io/zone")
# Taints with these effects repel pods; PreferNoSchedule does not.
KEEPS_AWAY = ("NoSchedule", "NoExecute")
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
# Set by a person who has verified that the machine is off (Kubernetes: non-graceful node shutdown).
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
# Pods that request GPUs tolerate these taints: the admission plugin ExtendedResourceToleration of
# Kubernetes adds the tolerations.
GPU_TAINTS = frozenset(GPU_RESOURCES)
# Devices are tracked one by one, and "pods" is a capacity that no pod requests.
NOT_REQUESTED = frozenset({*GPU_RESOURCES, "pods"})


def is_ready(node: Document) -> bool:
    """Return whether the condition Ready of a node is True."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)


def is_out_of_service(node: Document) -> bool:
    """Return whether a node is not ready and a person has marked it as switched off."""
    taints = (node.get("spec") or {}).get("taints") or ()
    return not is_ready(node) and any(each.get("key") == OUT_OF_SERVICE for each in taints)


def info(
    node: Document,
    *,
    unusable: Sequence[int] = (),
    levels: Sequence[str] = (),
    others: Mapping[str, int] = NO_AMOUNTS,
) -> NodeInfo:
    """Return the NodeInfo of a node.

    `unusable` are indices of devices to leave alone. `levels` are the labels that name the topology
    levels, outermost first; a missing label gives "". `others` is what pods of other workloads
    request on the node besides GPUs.
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
    """Return the number of devices, healthy or not."""
    status: Mapping[str, Any] = node.get("status") or {}
    return max(_gpus(status.get("capacity")), _gpus(status.get("allocatable")))


def sick(node: Document) -> int:
    """Return the number of devices that the kubelet does not allocate; it does not name them."""
    return gpus(node) - _gpus((node.get("status") or {}).get("allocatable"))


def unusable(gpus: int, count: int, held: Collection[int], before: Sequence[int]) -> list[int]:
    """Choose `count` of `gpus` device indices to mark as unusable, sorted.

    The cluster reports only how many devices are unhealthy or in use by other workloads. Kubelets
    choose the devices, so only the number has to be right. Preferred are devices not in `held`, and
    among them those in `before` (the last choice), then the highest indices.
    """
    free = [i for i in range(gpus - 1, -1, -1) if i not in held]
    taken = [i for i in range(gpus - 1, -1, -1) if i in held]
    ranked = sorted(free, key=lambda i: i not in before) + taken
    return sorted(ranked[: min(count, gpus)])


def taints(node: Document) -> tuple[str, ...]:
    """Return the taints that repel pods, sorted, each as `key` or `key=value`."""
    spec: Mapping[str, Any] = node.get("spec") or {}
    taints = {
        f"{each['key']}={each['value']}" if each.get("value") else str(each["key"])
        for each in spec.get("taints") or ()
        if each.get("effect") in KEEPS_AWAY and each.get("key") not in GPU_TAINTS
    }
    if spec.get("unschedulable"):
        taints.add(UNSCHEDULABLE)
    return tuple(sorted(taints))


def resources(node: Document) -> dict[str, int]:
    """Return the allocatable amounts of a node besides GPUs."""
    given = (node.get("status") or {}).get("allocatable") or {}
    amounts_given = {
        name: parse(given[name]) for name in sorted(given) if name not in NOT_REQUESTED
    }
    known = {name: each for name, each in amounts_given.items() if each is not None}
    # A resource listed with 0 is exhausted; a resource that is not listed is unlimited.
    return dict.fromkeys(known, 0) | amounts(known)


def asks_something(pod: Document) -> bool:
    """Return whether a pod may request resources; a cheap check before the exact computation."""
    spec: Mapping[str, Any] = pod.get("spec") or {}
    containers = (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
    return any(each.get("resources") for each in (spec, *containers)) or bool(spec.get("overhead"))


def requested(pod: Document) -> dict[str, int]:
    """Return what a pod takes of its node besides GPUs.

    A pod that is being resized in place counts with the larger of what it requests and what the
    kubelet has allocated (`allocatedResources`).
    """
    spec: Mapping[str, Any] = pod.get("spec") or {}
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    given = {each.get("name"): each.get("allocatedResources") for each in statuses}
    total = amounts(pod_requests(pod))
    if any(given.values()):
        grown = [_with_given(each, given.get(each.get("name"))) for each in spec["containers"]]
        before = amounts(pod_requests({"spec": {**spec, "containers": grown}}))
        total = {name: max(total.get(name, 0), before.get(name, 0)) for name in total | before}
    return total


def _with_given(container: Mapping[str, Any], given: Mapping[str, Any] | None) -> Document:
    return {**container, "resources": {"requests": given}} if given else container


def gpus_asked(pod: Document) -> int:
    """Return the number of devices that a pod takes.

    Init containers run before the containers, so the larger of the two demands counts.
    """
    spec: Mapping[str, Any] = pod.get("spec") or {}
    running = sum(_asked(each) for each in spec.get("containers") or ())
    return max([running, *(_asked(each) for each in spec.get("initContainers") or ())])


def _asked(container: Mapping[str, Any]) -> int:
    resources = container.get("resources") or {}
    return _gpus({**(resources.get("requests") or {}), **(resources.get("limits") or {})})


def _gpus(amounts: Mapping[str, Any] | None) -> int:
    count = 0
    for name in GPU_RESOURCES:
        amount = str((amounts or {}).get(name, 0))
        count += int(amount) if amount.isdigit() else 0
    return count


def _first(labels: Mapping[str, str], names: Iterable[str]) -> str:
    return next((labels[name] for name in names if name in labels), "")
