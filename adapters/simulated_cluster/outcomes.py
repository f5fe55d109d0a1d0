"""Machine events translated into exits, messages and nodes of the control plane. Pure."""

from collections.abc import Iterable
from functools import lru_cache

from controlplane.model.cluster import NodeInfo
from controlplane.model.commands import ReportNodeLost
from controlplane.model.failures import Cause, Exit
from controlplane.model.reasons import Loss, LossReason
from simulator.faults import FaultKind
from simulator.machine.events import End, NodeWarned
from simulator.network.topology import NodeModel

_LOSSES = {
    FaultKind.CRASH: LossReason.CRASHED,
    FaultKind.SPOT_RECLAIM: LossReason.RECLAIMED,
    FaultKind.MAINTENANCE: LossReason.MAINTENANCE,
    FaultKind.GIVEN_BACK: LossReason.GIVEN_BACK,
}


def exits_of(ends: tuple[End, ...]) -> tuple[Exit, ...]:
    if len(ends) == 1 and ends[0].code == 0:
        return _clean_exits(ends[0].ranks)
    return tuple(_exit(rank, end) for end in ends for rank in end.ranks)


# Shared by all gangs of one size.
@lru_cache(maxsize=1024)
def _clean_exits(ranks: tuple[int, ...]) -> tuple[Exit, ...]:
    return tuple(Exit(rank, 0) for rank in ranks)


def _exit(rank: int, end: End) -> Exit:
    match end.fault:
        case None if end.code is None:
            return Exit(rank, None, Cause.NODE_LOST, loss=Loss(LossReason.NODE_REFUSED, end.node))
        case None:
            if not end.code:
                return Exit(rank, end.code)
            if end.permanent:
                lines = (f"error: {end.reason}",)
                return Exit(rank, end.code, Cause.CANNOT_RUN, end.reason, lines)
            if end.reason:
                cause = Cause.OOM if end.out_of_memory else Cause.EXIT
                return Exit(rank, end.code, cause, end.reason, (f"error: {end.reason}",))
            message = f"the workload says to exit with {end.code}"
            return Exit(rank, end.code, Cause.EXIT, message, (f"error: {message}",))
        case FaultKind.SPOT_RECLAIM:
            loss = loss_of(end.fault, end.node, end.reason)
            return Exit(rank, 137, Cause.SPOT_RECLAIM, loss=loss)
        case _:
            loss = loss_of(end.fault, end.node, end.reason)
            return Exit(rank, None, Cause.NODE_LOST, loss=loss)


def warning(warned: NodeWarned, ranks: tuple[int, ...]) -> tuple[Exit, ...]:
    """Return the coming exits of ranks whose node will be taken."""
    loss = loss_of(warned.kind, warned.node, left_s=warned.left_s)
    reclaimed = warned.kind is FaultKind.SPOT_RECLAIM
    cause = Cause.SPOT_RECLAIM if reclaimed else Cause.NODE_LOST
    return tuple(Exit(rank, None, cause, loss=loss) for rank in ranks)


def loss_of(kind: FaultKind, node: str, reason: str = "", *, left_s: float | None = None) -> Loss:
    """Why a node is lost; only of a crash there is more to report than its kind."""
    return Loss(_LOSSES[kind], node, reason if kind is FaultKind.CRASH else "", left_s)


def node_lost(loss: Loss) -> ReportNodeLost:
    return ReportNodeLost(
        node=loss.node, reason=loss.reason, detail=loss.detail, left_s=loss.left_s
    )


def node_info(node: NodeModel, extended: Iterable[str] = ()) -> NodeInfo:
    """Return the node as reported, with 0 of each `extended` resource that it does not declare."""
    return NodeInfo(
        name=node.name,
        gpus=node.gpus,
        gpu_type=node.gpu_type,
        gpu_memory_mib=node.device_memory_mib,
        rack=node.rack,
        labels=node.all_labels,
        resources={**dict.fromkeys(extended, 0), **node.resources},
    )
