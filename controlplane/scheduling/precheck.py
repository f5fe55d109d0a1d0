"""A cheap necessary condition for a pass to decide anything: on a busy cluster most passes would decide nothing."""

from controlplane.scheduling.cluster_view import ClusterView
from controlplane.scheduling.snapshot import Snapshot
from controlplane.state.queue_order import QueueIndexView


def could_decide(snapshot: Snapshot) -> bool:
    """Return False only if every waiting gang needs more GPUs than are free in total.

    Free GPUs do not settle it if a gang may be repaired, grow, take a claim or preempt, or if wait reasons are
    recorded; then the answer is True.
    """
    cluster = snapshot.cluster
    if cluster.growing or cluster.degraded or cluster.claimed or cluster.policy.records_reasons:
        return True
    if snapshot.preempts:
        return True
    room = cluster.free.total
    queues = cluster.queue_indexes.values()
    return any(_could_start_any(cluster, queue, room) for queue in queues)


def _could_start_any(cluster: ClusterView, queue: QueueIndexView, room: int) -> bool:
    if not queue.order:
        return False
    if queue.skips or queue.plans:
        return any(c.gpus <= room or c.elastic for c in queue.by_shape.values())
    head = cluster.gang(cluster.jobs[queue.order[0].job])
    return head.gpus <= room or head.elastic is not None
