"""Muster's own placement: which pods to bind to which nodes, and with which devices. Pure.

Pods are created without a node and with the scheduler name `muster`, so no other scheduler binds
them. They are bound when all pods of the gang exist: a gang that could not be created completely
never runs in part.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from adapters.kubernetes.observe.labels import Document, is_terminating
from adapters.kubernetes.reconcile.plan import Observed, Ref
from adapters.kubernetes.render.site import VISIBLE_DEVICES, Binding
from controlplane.lifecycle.effects import ranks_to_run
from controlplane.lifecycle.job import Job
from controlplane.model.cluster import Slot

# The `schedulerName` of pods that Muster binds.
SCHEDULER = "muster"
# The device indices of a rank, for people and for programs that set up devices.
DEVICES = "muster.dev/devices"
NODE = "muster.dev/node"


class Bind(NamedTuple):
    """The name of a pod, and the node to bind it to."""

    pod: str
    node: str


def by_count(slot: Slot) -> Binding:
    """Let the kubelet choose as many devices as the pod requests; annotate Muster's own choice."""
    return Binding(annotations=_notes(slot))


def by_index(slot: Slot) -> Binding:
    """Show the rank the devices that Muster chose.

    Correct only on nodes where nothing else allocates devices.
    """
    env = {VISIBLE_DEVICES: _indices(slot)} if slot.devices else {}
    return Binding(env=env, annotations=_notes(slot))


BINDINGS: Mapping[str, Callable[[Slot], Binding]] = {"kubelet": by_count, "muster": by_index}


def _notes(slot: Slot) -> dict[str, str]:
    devices = {DEVICES: _indices(slot)} if slot.devices else {}
    return {NODE: slot.node, **devices}


def _indices(slot: Slot) -> str:
    return ",".join(str(device) for device in slot.devices)


def binds(
    job: Job, names: list[str], observed: Observed, is_current: Callable[[int, Document], bool]
) -> list[Bind]:
    """Return the pods to bind now; empty until the pods of all ranks that should run exist.

    `is_current(rank, pod)` returns whether a pod belongs to the rank's present run.
    """
    attempt = job.attempt
    assert attempt is not None
    bindings: list[Bind] = []
    for rank in ranks_to_run(job):
        pod = observed.get(Ref("Pod", names[rank]))
        if pod is None or not is_current(rank, pod):
            return []
        spec: Mapping[str, Any] = pod.get("spec") or {}
        is_ours = spec.get("schedulerName") == SCHEDULER
        if is_ours and not spec.get("nodeName") and not is_terminating(pod):
            bindings.append(Bind(names[rank], attempt.placement[rank].node))
    return bindings


def held_devices(pod: Document) -> tuple[int, ...]:
    """Return the device indices in a pod's annotation; empty if it has none."""
    notes: Mapping[str, str] = (pod.get("metadata") or {}).get("annotations") or {}
    return tuple(int(each) for each in notes.get(DEVICES, "").split(",") if each.isdigit())
