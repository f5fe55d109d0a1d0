"""Pod groups for gang schedulers of Kubernetes: the number of pods, and their minimum resources.

One rule applies to all kinds: `minResources` is the sum over the first `minMember` pods, in the
order of the priority of their roles, of the effective requests of a pod as Kubernetes defines them.
The operators have three rules and count less: they miss a GPU that is given only as a limit, init
containers and overhead, and their order of roles is random.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from controlplane.kinds.kind import GangContext
from controlplane.kinds.manifest.manifest import DEFAULT_TIMEOUT_S
from controlplane.model.resources import Quantities, add_up, pod_requests
from controlplane.model.spec import JobSpec, Role
from controlplane.model.values import Value

VOLCANO_QUEUE = "scheduling.volcano.sh/queue-name"
LAUNCHER = "Launcher"
DEFAULT_QUEUE = "default"
# Seconds that the scheduler plugins wait for the last pod, for kinds that set it.
TIMEOUTS_S = {
    ("MPIJob", "kubeflow.org/v2beta1"): 0,
    ("TrainJob", "trainer.kubeflow.org/v1alpha1"): 60,
}


class PodGroup(Value, frozen=True, kw_only=True):
    """The fields of a PodGroup that Volcano and the scheduler plugins share."""

    name: str
    min_member: int
    # None: no minimum.
    min_resources: dict[str, str] | None
    queue: str
    priority_class: str
    schedule_timeout_s: int | None
    annotations: dict[str, str]


def pod_group(
    gang: GangContext, priorities: Mapping[str, int] | None = None, *, queue_now: str = ""
) -> PodGroup:
    """Return the pod group of a job.

    `priorities` has the values of the cluster's priority classes; a class that is missing counts as
    0. An existing group keeps its queue, because a scheduler may have moved it there.
    """
    spec, policy = gang.spec, _scheduling_policy(gang.spec)
    least = policy.get("minAvailable")
    members: int = least if least is not None else spec.min_available or spec.size
    return PodGroup(
        name=gang.name,
        min_member=members,
        min_resources=_min_resources(spec, members, priorities or {}),
        queue=queue_now or _queue(spec),
        priority_class=_priority_class(spec, policy),
        schedule_timeout_s=_timeout_s(spec),
        annotations=spec.annotations,
    )


def _timeout_s(spec: JobSpec) -> int | None:
    if spec.start_timeout_s != DEFAULT_TIMEOUT_S:
        return int(spec.start_timeout_s)
    return TIMEOUTS_S.get((spec.kind, spec.version))


def _scheduling_policy(spec: JobSpec) -> Mapping[str, Any]:
    """Return the parts of the scheduling policy that have no field in a JobSpec."""
    return (spec.options.get("runPolicy") or {}).get("schedulingPolicy") or {}


def _queue(spec: JobSpec) -> str:
    """Return Muster's queue as the queue of Volcano; the MPI operator also reads an annotation."""
    if over_ssh(spec) and spec.queue == DEFAULT_QUEUE:
        return spec.annotations.get(VOLCANO_QUEUE, "")
    return spec.queue


def over_ssh(spec: JobSpec) -> bool:
    """Return whether the MPI operator would run the job; it differs from the training operator."""
    return (spec.kind, spec.version) == ("MPIJob", "kubeflow.org/v2beta1")


def _priority_class(spec: JobSpec, policy: Mapping[str, Any]) -> str:
    named: str = policy.get("priorityClass") or ""
    if not named and (over_ssh(spec) or spec.kind == "TrainJob"):
        named = next((name for name in map(_class_of, spec.roles) if name), "")
    return named


def priority_classes(spec: JobSpec) -> frozenset[str]:
    """Return the priority classes of the pod templates, by which roles are ordered."""
    return frozenset(name for name in map(_class_of, spec.roles) if name)


def _class_of(role: Role) -> str:
    name: str = role.template.get("spec", {}).get("priorityClassName") or ""
    return name


# ------------------------------------------------------------------ minimum resources


def _min_resources(
    spec: JobSpec, members: int, priorities: Mapping[str, int]
) -> dict[str, str] | None:
    given = _scheduling_policy(spec).get("minResources")
    if given:
        return {name: str(amount) for name, amount in given.items()}
    if members == 0:
        return None
    total: Quantities = {}
    for role, count in _first(spec, members, priorities):
        asked = pod_requests(role.template)
        add_up(total, {name: each.times(count) for name, each in asked.items()})
    return {name: str(total[name]) for name in sorted(total)}


def _first(
    spec: JobSpec, members: int, priorities: Mapping[str, int]
) -> Iterator[tuple[Role, int]]:
    """Yield how many pods of each role are among the first ones; the sort of roles is stable."""

    def rank(role: Role) -> tuple[bool, int]:
        # An MPI gang cannot run without its launcher, so it comes first at any priority.
        first = role.name == LAUNCHER and spec.done_when.role == LAUNCHER
        return not first, -priorities.get(_class_of(role), 0)

    left = members
    for role in sorted(spec.roles, key=rank):
        count = min(role.replicas, left)
        left -= count
        yield role, count
