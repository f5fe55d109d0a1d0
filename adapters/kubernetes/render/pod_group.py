"""Pod groups for gang schedulers: Volcano, and the coscheduling plugin of scheduler-plugins. Pure.

Muster places gangs itself by default. Where a gang scheduler of the cluster does that instead, a
PodGroup object describes the gang, and each pod names its group.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from adapters.kubernetes.observe.labels import Document
from controlplane.kinds.manifest.pod_group import PodGroup

VOLCANO = "volcano"
# The default name of the scheduler of scheduler-plugins.
PLUGINS = "scheduler-plugins-scheduler"
VOLCANO_GROUP = "scheduling.k8s.io/group-name"
VOLCANO_TASK = "volcano.sh/task-spec"
PLUGINS_GROUP = "scheduling.x-k8s.io/pod-group"
# Volcano has not admitted a group that is in one of these phases.
UNDECIDED = ("", "Pending")


class Membership(NamedTuple):
    """The labels and annotations of a pod that name its group."""

    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}


def membership(scheduler: str, group: str, role: str) -> Membership:
    """Return what a pod of `role` carries for `scheduler`; nothing if that is ""."""
    if not scheduler:
        return Membership()
    if scheduler == VOLCANO:
        return Membership(annotations={VOLCANO_GROUP: group, VOLCANO_TASK: role.lower()})
    return Membership(labels={PLUGINS_GROUP: group})


def version(scheduler: str) -> str:
    """Return the apiVersion of the scheduler's PodGroup."""
    return (
        "scheduling.volcano.sh/v1beta1" if scheduler == VOLCANO else "scheduling.x-k8s.io/v1alpha1"
    )


def document(scheduler: str, group: PodGroup) -> dict[str, Any]:
    """Return the PodGroup object of a gang, in the form of `scheduler`."""
    spec: dict[str, Any] = {"minMember": group.min_member}
    if group.min_resources is not None:
        spec["minResources"] = group.min_resources
    if scheduler == VOLCANO:
        if group.queue:
            spec["queue"] = group.queue
        if group.priority_class:
            spec["priorityClassName"] = group.priority_class
    else:
        if group.schedule_timeout_s is not None:
            spec["scheduleTimeoutSeconds"] = group.schedule_timeout_s
    metadata: dict[str, Any] = {"name": group.name}
    if group.annotations:
        metadata["annotations"] = dict(group.annotations)
    return {
        "apiVersion": version(scheduler),
        "kind": "PodGroup",
        "metadata": metadata,
        "spec": spec,
    }


def lets_pods_in(scheduler: str, group: Document | None) -> bool:
    """Return whether pods may be created: Volcano must have admitted the group first."""
    if scheduler != VOLCANO:
        return True
    return group is not None and (group.get("status") or {}).get("phase", "") not in UNDECIDED


def changes(observed: Document, wanted: Document) -> dict[str, Any]:
    """Return a merge patch of the spec fields that differ; empty if none does.

    Only the fields that Muster sets are compared: the scheduler fills in the rest.
    """
    have: Mapping[str, Any] = observed.get("spec") or {}
    ask: Mapping[str, Any] = wanted["spec"]
    body = {name: value for name, value in ask.items() if have.get(name) != value}
    return {"spec": body} if body else {}
