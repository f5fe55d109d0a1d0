"""What the machine tells, in the control plane's words. Pure."""

from collections.abc import Iterable
from functools import lru_cache

from controlplane.model import Cause, Exit, NodeInfo
from simulator.faults import FaultKind
from simulator.happenings import End, NodeWarned
from simulator.topology import NodeModel

_MESSAGES = {
    FaultKind.CRASH: "node {} crashed",
    FaultKind.SPOT_RECLAIM: "node {} was reclaimed",
    FaultKind.MAINTENANCE: "node {} is down for maintenance",
    FaultKind.GIVEN_BACK: "node {} was given back to its pool",
}
_WARNINGS = {
    FaultKind.CRASH: "node {} will go down",
    FaultKind.SPOT_RECLAIM: "node {} will be reclaimed",
    FaultKind.MAINTENANCE: "node {} will be down for maintenance",
    FaultKind.GIVEN_BACK: "node {} will be given back to its pool",
}


def exits_of(ends: tuple[End, ...]) -> tuple[Exit, ...]:
    if len(ends) == 1 and ends[0].code == 0:
        return _clean_exits(ends[0].ranks)
    return tuple(_exit(rank, end) for end in ends for rank in end.ranks)


# The same for every gang of a size.
@lru_cache(maxsize=1024)
def _clean_exits(ranks: tuple[int, ...]) -> tuple[Exit, ...]:
    return tuple(Exit(rank, 0) for rank in ranks)


def _exit(rank: int, end: End) -> Exit:
    match end.fault:
        case None if end.code is None:
            return Exit(rank, None, Cause.NODE_LOST, f"node {end.node} could not take the rank")
        case None:
            if not end.code:
                return Exit(rank, end.code)
            if end.permanent:
                lines = (f"error: {end.reason}",)
                return Exit(rank, end.code, Cause.CANNOT_RUN, end.reason, lines)
            if end.reason:
                cause = Cause.OOM if "memory" in end.reason.lower() else Cause.EXIT
                return Exit(rank, end.code, cause, end.reason, (f"error: {end.reason}",))
            message = f"the workload says to exit with {end.code}"
            return Exit(rank, end.code, Cause.EXIT, message, (f"error: {message}",))
        case FaultKind.SPOT_RECLAIM:
            message = fault_message(end.fault, end.node, end.reason)
            return Exit(rank, 137, Cause.SPOT_RECLAIM, message)
        case _:
            message = fault_message(end.fault, end.node, end.reason)
            return Exit(rank, None, Cause.NODE_LOST, message)


def warning(warned: NodeWarned, ranks: tuple[int, ...]) -> tuple[Exit, ...]:
    """The ranks of a gang that will lose their node, while they still run there."""
    told = fault_message(warned.kind, warned.node, left_s=warned.left_s)
    reclaimed = warned.kind is FaultKind.SPOT_RECLAIM
    cause = Cause.SPOT_RECLAIM if reclaimed else Cause.NODE_LOST
    return tuple(Exit(rank, None, cause, told) for rank in ranks)


def fault_message(
    kind: FaultKind, node: str, reason: str = "", *, left_s: float | None = None
) -> str:
    if left_s is not None:
        return f"{_WARNINGS[kind].format(node)} in {left_s:g} s"
    told = _MESSAGES[kind].format(node)
    return f"{told}: {reason}" if reason and kind is FaultKind.CRASH else told


def node_info(node: NodeModel, extended: Iterable[str] = ()) -> NodeInfo:
    """The node as it is reported; of an `extended` resource that it does not declare it has none."""
    return NodeInfo(
        name=node.name,
        gpus=node.gpus,
        gpu_type=node.gpu_type,
        gpu_memory_mib=node.device_memory_mib,
        rack=node.rack,
        labels=node.all_labels,
        resources={**dict.fromkeys(extended, 0), **node.resources},
    )
