"""Muster's own placement, carried out: which pods to bind to which nodes, and with which devices.

Pods are made without a node, under a scheduler name that is ours, so nobody else binds them. They
are bound when all of the gang that should be there is: a gang that could not be made whole has
never run in part. Pure.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from adapters.kubernetes.marks import Document, is_terminating
from adapters.kubernetes.plan import Observed, Ref
from adapters.kubernetes.site import VISIBLE_DEVICES, Binding
from controlplane.effects import ranks_to_run
from controlplane.job import Job
from controlplane.model import Slot

# The name under which our pods wait for us.
SCHEDULER = "muster"
# Which devices a rank was given, for people and for those who set devices up.
DEVICES = "muster.dev/devices"
NODE = "muster.dev/node"


class Bind(NamedTuple):
    pod: str
    node: str


def by_count(slot: Slot) -> Binding:
    """Kubelets choose the devices, as many as the pod's resources say; ours are only written down."""
    return Binding(annotations=_notes(slot))


def by_index(slot: Slot) -> Binding:
    """Ranks see the devices that Muster chose. Right where nobody else gives devices away."""
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
    """The pods that are to be bound now; none before all that should be there are."""
    attempt = job.attempt
    assert attempt is not None
    found: list[Bind] = []
    for rank in ranks_to_run(job):
        pod = observed.get(Ref("Pod", names[rank]))
        if pod is None or not is_current(rank, pod):
            return []
        spec: Mapping[str, Any] = pod.get("spec") or {}
        is_ours = spec.get("schedulerName") == SCHEDULER
        if is_ours and not spec.get("nodeName") and not is_terminating(pod):
            found.append(Bind(names[rank], attempt.placement[rank].node))
    return found


def held_devices(pod: Document) -> tuple[int, ...]:
    """The devices that a pod of ours was given, as Muster counts them."""
    notes: Mapping[str, str] = (pod.get("metadata") or {}).get("annotations") or {}
    return tuple(int(each) for each in notes.get(DEVICES, "").split(",") if each.isdigit())
