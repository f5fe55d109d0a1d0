"""Why a job cannot start on the cluster as it is, and which change would let it start."""

from enum import StrEnum

from controlplane.model.reasons import WaitReason
from controlplane.model.values import Value


class Remedy(StrEnum):
    """The change that would let an unschedulable job start."""

    # More nodes take work: nodes that are down or cordoned now, nodes that a pool has not requested
    # yet, or nodes that a cluster autoscaler may add (`Policy.autoscaled`).
    NODES = "nodes"
    # The job's queue, or a queue above it, gets more quota.
    QUOTA = "quota"
    # The missing members of the job's group are submitted.
    GROUP = "group"
    # The cluster gets other nodes, or the job asks for less.
    OTHER = "other"


class Obstacle(Value, frozen=True, kw_only=True):
    """Why a job could not start even if nothing ran: a code with its parameters.

    `controlplane/messages.py` renders it. A field that does not apply has its default.
    """

    code: WaitReason
    remedy: Remedy = Remedy.OTHER
    # How much of `resource` the job needs, and how much is available at most. A resource is ranks,
    # gpus, gangs, gpu_memory_mib, or a resource that pods request.
    needed: int | None = None
    available: int | None = None
    resource: str = ""
    # Several resources, where each is sufficient alone but not all of them together.
    resources: tuple[str, ...] = ()
    role: str = ""
    node: str = ""
    devices: tuple[int, ...] = ()
    level: str = ""
    flavors: tuple[str, ...] = ()
    # The node labels that the job requires, with their values.
    selector: tuple[tuple[str, str], ...] = ()
    # Taints that the job does not tolerate, on nodes that would suit it otherwise.
    taints: tuple[str, ...] = ()
    queue: str = ""
    group: str = ""
