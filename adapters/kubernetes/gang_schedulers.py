"""Gangs for other people's schedulers: Volcano, and the coscheduling of the scheduler plugins.

Muster places whole gangs itself. Where it is told to leave that to the cluster, a pod group says
what belongs together, and each pod says to which group it belongs.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from adapters.kubernetes.marks import Document
from controlplane.kinds.pod_group import PodGroup

VOLCANO = "volcano"
# What the scheduler plugins' scheduler is called unless somebody named it otherwise.
PLUGINS = "scheduler-plugins-scheduler"
VOLCANO_GROUP = "scheduling.k8s.io/group-name"
VOLCANO_TASK = "volcano.sh/task-spec"
PLUGINS_GROUP = "scheduling.x-k8s.io/pod-group"
# Volcano has not yet looked at a group that is in one of these phases.
UNDECIDED = ("", "Pending")


class Membership(NamedTuple):
    """What a pod carries so that its scheduler knows its gang."""

    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}


def membership(scheduler: str, group: str, role: str) -> Membership:
    if not scheduler:
        return Membership()
    if scheduler == VOLCANO:
        return Membership(annotations={VOLCANO_GROUP: group, VOLCANO_TASK: role.lower()})
    return Membership(labels={PLUGINS_GROUP: group})


def version(scheduler: str) -> str:
    """The apiVersion of its pod groups."""
    return (
        "scheduling.volcano.sh/v1beta1" if scheduler == VOLCANO else "scheduling.x-k8s.io/v1alpha1"
    )


def document(scheduler: str, group: PodGroup) -> dict[str, Any]:
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
    """Whether pods may be made: Volcano wants to see the group first."""
    if scheduler != VOLCANO:
        return True
    return group is not None and (group.get("status") or {}).get("phase", "") not in UNDECIDED


def changes(found: Document, wanted: Document) -> dict[str, Any]:
    """Only what we ask for is compared: the scheduler fills in the rest."""
    have: Mapping[str, Any] = found.get("spec") or {}
    ask: Mapping[str, Any] = wanted["spec"]
    body = {name: value for name, value in ask.items() if have.get(name) != value}
    return {"spec": body} if body else {}
