"""Obstacles in words: the one place where an `Obstacle` becomes a sentence, and what would help."""

from collections.abc import Callable

from controlplane.model import Obstacle, Remedy
from controlplane.requests import noun
from controlplane.scheduling.reasons import Reason, reason

GPUS = "gpus"


def reason_of(obstacle: Obstacle) -> Reason:
    """The reason that `why` and the API show for a job that is set aside."""
    return reason(
        obstacle.code,
        in_words(obstacle),
        needed=obstacle.needed,
        available=obstacle.available,
        helps=_HELPS[obstacle.remedy],
    )


def in_words(obstacle: Obstacle) -> str:
    return _WORDS[obstacle.code](obstacle)


_HELPS = {
    Remedy.NODES: "nodes that are down, cordoned, or not rented or added yet take work",
    Remedy.QUOTA: "more quota, or a job that asks for less",
    Remedy.GROUP: "the rest of its group is submitted, and is not suspended",
    Remedy.OTHER: "other or relabelled nodes, or a job that asks for less",
}


def _queue_limit(o: Obstacle) -> str:
    return f"it needs {o.needed} GPUs; queue {o.queue} may hold at most {o.available}"


def _quota(o: Obstacle) -> str:
    counted = "GPUs" if o.resource == GPUS else noun(o.resource)
    of = f" of {', '.join(o.flavors)}" if o.flavors else ""
    return f"it needs {o.needed} {counted}{of} of quota; queue {o.queue} can have at most {o.available}"


def _fixed(o: Obstacle) -> str:
    return (
        f"it cannot be evicted and needs {o.needed} GPUs; what cannot be evicted must stay within "
        f"the {o.available} GPUs of quota of queue {o.queue}"
    )


def _no_match(o: Obstacle) -> str:
    wishes = [f"{key}={value}" for key, value in o.selector]
    if o.flavors:
        wishes.append(f"flavour {' or '.join(o.flavors)}")
    if o.taints:
        what = f" with {', '.join(wishes)}" if wishes else ""
        return f"every node{what} has a taint that it does not tolerate: {', '.join(o.taints)}"
    return f"no node that takes work has {', '.join(wishes)}" if wishes else "no node takes it"


def _devices(o: Obstacle) -> str:
    if o.devices:
        named = ", ".join(map(str, o.devices))
        return f"{o.role} must run on devices {named} of node {o.node}, which cannot be used"
    return f"{o.role} must run on node {o.node} and needs {o.needed} GPUs; it has {o.available}"


def _memory(o: Obstacle) -> str:
    have = (
        f"the largest has {o.available} MiB" if o.available else "no node says what its GPUs have"
    )
    return f"a rank needs {o.needed} MiB of memory of one GPU; {have}"


def _resources(o: Obstacle) -> str:
    what = " and ".join(noun(name).removeprefix("of ") for name in o.resource.split("+"))
    return f"{o.needed} ranks need {what}; empty nodes have enough of it for {o.available}"


def _topology(o: Obstacle) -> str:
    where = f"one {o.level}" if o.level else "one domain"
    return f"{o.needed} ranks must be in {where}; an empty one takes at most {o.available}"


def _capacity(o: Obstacle) -> str:
    if o.resource == "ranks":
        return (
            f"it has {o.needed} ranks; nodes that take work, if empty, have room for {o.available}"
        )
    if o.needed is not None and o.available is not None and o.needed <= o.available:
        return "nodes that take work, if empty, do not have room for all its ranks at once"
    return f"it needs {o.needed} GPUs; nodes that take work have {o.available}"


_WORDS: dict[str, Callable[[Obstacle], str]] = {
    "gang_incomplete": lambda o: (
        f"{o.available} of the gang's {o.needed} members have been submitted"
    ),
    "group_incomplete": lambda o: (
        f"{o.available} of the {o.needed} gangs of group {o.group} are there, and they start together"
    ),
    "group_member_unschedulable": lambda o: (
        f"another gang of group {o.group} cannot start, and they start together"
    ),
    "group_exceeds_cluster": lambda o: (
        f"the gangs of group {o.group} start together and need {o.needed} GPUs; "
        f"nodes that take work have {o.available}, and not so that all of them fit"
    ),
    "queue_limit": _queue_limit,
    "insufficient_quota": _quota,
    "non_preemptible_over_quota": _fixed,
    "unknown_topology_level": lambda o: f"the policy has no topology level {o.level!r}",
    "pinned_node_absent": lambda o: (
        f"{o.role} must run on node {o.node}, which the cluster does not have"
    ),
    "pinned_node_unavailable": lambda o: (
        f"{o.role} must run on node {o.node}, which takes no work now"
    ),
    "pinned_devices_unavailable": _devices,
    "no_matching_node": _no_match,
    "no_node_takes_work": lambda o: "no node of the cluster takes work now",
    "gpu_memory_exceeds_device": _memory,
    "rank_exceeds_node": lambda o: (
        f"a rank needs {o.needed} GPUs on one node; the largest node that takes work has {o.available}"
    ),
    "insufficient_resources": _resources,
    "insufficient_capacity": _capacity,
    "topology_unsatisfied": _topology,
}
