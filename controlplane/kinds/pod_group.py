"""What gang schedulers of Kubernetes are told of a job: how many pods, and how much they need.

One rule for all kinds: the first `minMember` pods in the order of the priority of their roles, with
what Kubernetes itself counts for a pod. The operators have three such rules and count less: a GPU
that is only a limit, init containers and overhead are missed, and roles come in random order.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from controlplane.kinds.kind import Gang
from controlplane.kinds.manifest import DEFAULT_TIMEOUT_S
from controlplane.model import JobSpec, Role, Value
from controlplane.requests import Quantities, add_up, pod_requests

VOLCANO_QUEUE = "scheduling.volcano.sh/queue-name"
LAUNCHER = "Launcher"
DEFAULT_QUEUE = "default"
# How long the scheduler plugins wait for the last pod, where a kind has an opinion.
TIMEOUTS_S = {
    ("MPIJob", "kubeflow.org/v2beta1"): 0,
    ("TrainJob", "trainer.kubeflow.org/v1alpha1"): 60,
}


class PodGroup(Value, frozen=True, kw_only=True):
    """A gang, in the words that Volcano and the scheduler plugins share."""

    name: str
    min_member: int
    # None where nothing is asked for in advance.
    min_resources: dict[str, str] | None
    queue: str
    priority_class: str
    schedule_timeout_s: int | None
    annotations: dict[str, str]


def pod_group(
    gang: Gang, priorities: Mapping[str, int] | None = None, *, queue_now: str = ""
) -> PodGroup:
    """The pod group of a job.

    `priorities` are the priority classes that the cluster has; one that it has not counts as 0.
    A queue that the group is in already is kept, since a scheduler may have moved it there.
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
    """What of it has no field of ours."""
    return (spec.options.get("runPolicy") or {}).get("schedulingPolicy") or {}


def _queue(spec: JobSpec) -> str:
    """Ours, which is named after Volcano's; the MPI operator also looks for an annotation."""
    if over_ssh(spec) and spec.queue == DEFAULT_QUEUE:
        return spec.annotations.get(VOLCANO_QUEUE, "")
    return spec.queue


def over_ssh(spec: JobSpec) -> bool:
    """Whether the operator would be the MPI operator, which has habits of its own."""
    return (spec.kind, spec.version) == ("MPIJob", "kubeflow.org/v2beta1")


def _priority_class(spec: JobSpec, policy: Mapping[str, Any]) -> str:
    named: str = policy.get("priorityClass") or ""
    if not named and (over_ssh(spec) or spec.kind == "TrainJob"):
        named = next((name for name in map(_class_of, spec.roles) if name), "")
    return named


def priority_classes(spec: JobSpec) -> frozenset[str]:
    """The priority classes that the pod templates name, by which roles are ordered."""
    return frozenset(name for name in map(_class_of, spec.roles) if name)


def _class_of(role: Role) -> str:
    name: str = role.template.get("spec", {}).get("priorityClassName") or ""
    return name


# ------------------------------------------------------------------ how much it needs


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
    """How many pods of each role are among the first ones. Equal roles keep their order."""

    def rank(role: Role) -> tuple[bool, int]:
        # Without its launcher a gang of MPI can do nothing, whatever its priority.
        first = role.name == LAUNCHER and spec.done_when.role == LAUNCHER
        return not first, -priorities.get(_class_of(role), 0)

    left = members
    for role in sorted(spec.roles, key=rank):
        count = min(role.replicas, left)
        left -= count
        yield role, count
