"""What node documents say: machines with devices, and which of them answer. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from adapters.kubernetes.marks import Document, labels_of, name_of
from controlplane.commands import ReportCluster
from controlplane.kinds.pods import GPU_RESOURCES
from controlplane.model import NodeInfo

# Labels that say what a node's devices are and where it stands, the best known first.
GPU_TYPE_LABELS = ("nvidia.com/gpu.product", "accelerator", "cloud.google.com/gke-accelerator")
GPU_MEMORY_LABELS = ("nvidia.com/gpu.memory",)
RACK_LABELS = ("topology.kubernetes.io/rack", "muster.dev/rack", "topology.kubernetes.io/zone")


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


def info(node: Document) -> NodeInfo:
    labels = labels_of(node)
    allocatable: Mapping[str, Any] = (node.get("status") or {}).get("allocatable") or {}
    memory = _first(labels, GPU_MEMORY_LABELS)
    return NodeInfo(
        name=name_of(node),
        gpus=sum(int(allocatable.get(name, 0)) for name in GPU_RESOURCES),
        gpu_type=_first(labels, GPU_TYPE_LABELS),
        gpu_memory_mib=int(memory) if memory.isdigit() else 0,
        rack=_first(labels, RACK_LABELS),
        labels=dict(labels),
    )


def _first(labels: Mapping[str, str], names: Iterable[str]) -> str:
    return next((labels[name] for name in names if name in labels), "")
