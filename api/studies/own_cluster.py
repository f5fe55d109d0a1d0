"""The cluster and the workload of this server as inputs of a study.

Nodes get names of their own, because a cluster file allows fewer characters than a real cluster.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from io import StringIO
from typing import Any

import numpy as np

from controlplane.model.cluster import NodeInfo
from controlplane.model.errors import Rejected
from controlplane.model.events import JobSubmitted, Recorded
from controlplane.queries.queries import nodes
from controlplane.state.world import World
from studies.workloads.csv_trace import write_csv
from studies.workloads.event_log import trace_of_events
from studies.workloads.trace import BadTrace, Trace

DAY_S = 86_400.0
NAME = "this cluster"


def infos(world: World) -> list[NodeInfo]:
    """Return the nodes of the cluster, also those that are down or cordoned now."""
    return [node.info for node in nodes(world)]


def named(added: int) -> str:
    """Return the name of this cluster with more nodes."""
    return f"{NAME} + {added} node{'s' if added > 1 else ''}" if added else NAME


def document(present: Sequence[NodeInfo], added: int) -> dict[str, Any]:
    """Return the cluster file of `present` with `added` nodes of the most frequent kind.

    Raise Rejected if there is no node to copy.
    """
    if not present:
        raise Rejected("invalid_study", "add_nodes: this cluster has no node yet")
    racks = {rack: f"rack-{i}" for i, rack in enumerate(dict.fromkeys(n.rack for n in present))}
    usual = Counter(_kind(node) for node in present).most_common(1)[0][0]
    old = ((racks[node.rack], _kind(node)) for node in present)
    new = (("rack-new", usual) for _ in range(added))
    return {"nodes": list(_numbered([*old, *new]))}


def _kind(node: NodeInfo) -> tuple[int, str, int]:
    return node.gpus, node.gpu_type, node.gpu_memory_mib


def _numbered(placed: Sequence[tuple[str, tuple[int, str, int]]]) -> Iterator[dict[str, Any]]:
    for i, (rack, (gpus, gpu_type, memory)) in enumerate(placed):
        yield {
            "name": f"node-{i}", "rack": rack, "gpus": gpus,
            "gpu_type": gpu_type, "gpu_memory_mib": memory,
        }  # fmt: skip


def own_trace(events: Sequence[Recorded], last_days: float | None) -> str:
    """Return the jobs of a log as a trace in CSV; raise Rejected if there are none.

    With `last_days`, only jobs that were submitted in that many days before the last event.
    """
    if events and events[0].position > 1:
        raise Rejected("invalid_study", "this is a part of a log; a study needs it from its begin")
    try:
        trace = trace_of_events(NAME, events)
        if last_days is not None:
            trace = _since(trace, events, events[-1].at - last_days * DAY_S)
    except BadTrace as error:
        raise Rejected("invalid_study", str(error)) from None
    text = StringIO()
    write_csv(trace, text)
    return text.getvalue()


def _since(trace: Trace, events: Sequence[Recorded], since: float) -> Trace:
    """Return the jobs that were submitted at `since` or later; raise BadTrace if there are none.

    The times of a trace count from its first job, so they are looked up in the log.
    """
    earlier = {
        recorded.event.job
        for recorded in events
        if recorded.at < since and isinstance(recorded.event, JobSubmitted)
    }
    kept = [row for row, job in enumerate(trace.ids) if job not in earlier]
    if not kept:
        raise BadTrace(NAME, None, "no job that was submitted in these days has ended")
    return trace.rows(np.array(kept))
