"""The origin of a simulated cluster's time, inferred from a log that does not record its model.

A server counts the cluster's time from the first event; simulations in virtual time may count from
0, as the times of their log do. The recorded faults decide between the two. If they fit neither,
the log belongs to another cluster.
"""

from collections import defaultdict
from collections.abc import Sequence

from controlplane.model import events as e
from simulator.faults import Fault, node_faults, rack_faults
from simulator.network.topology import ClusterModel

CLOSE_S = 1.0


def birth_of(model: ClusterModel, events: Sequence[e.Recorded]) -> float | None:
    """Return the time at which the cluster's own time was 0.

    None if there are no events, or if the faults of the model do not match the log.
    """
    if not events:
        return None
    first, last = events[0].at, events[-1].at
    pooled = {pool.rack for pool in model.pools}
    counted = {node.name for node in model.nodes if node.rack not in pooled}
    lost = [
        (x.event.node, x.at)
        for x in events
        if isinstance(x.event, e.NodeLost) and x.event.node in counted and x.at > first + CLOSE_S
    ]
    asked = [pair for x in events for pair in _asked_for(x)]
    lost = [
        (node, at)
        for node, at in lost
        if not _is_near(at, [time for name, time in asked if name == node])
    ]
    # Without recorded losses 0 comes first: times that are not shifted are not rounded either.
    for birth in dict.fromkeys((first, 0.0) if lost else (0.0, first)):
        expected = _expected(model, first - birth, last - birth)
        if bool(lost) != any(expected[node] for node in counted):
            continue
        if all(_is_near(at - birth, expected[node]) for node, at in lost):
            return birth
    return None


def _asked_for(recorded: e.Recorded) -> list[tuple[str, float]]:
    """Return the node of a fault that a person asked for, and when it is announced and begins."""
    event = recorded.event
    if not isinstance(event, e.FaultInjected) or not event.fault.kind.takes_node:
        return []
    begins_at = recorded.at + event.delay_s
    return [(event.node, begins_at), (event.node, begins_at + event.fault.notice_s)]


def _expected(model: ClusterModel, begin_s: float, end_s: float) -> dict[str, list[float]]:
    """Return by node when faults take it down between two times, and when that is announced."""
    times = defaultdict[str, list[float]](list)
    for fault in _faults(model, end_s):
        if fault.kind.takes_node and begin_s <= fault.at_s <= end_s:
            times[fault.node] += [fault.at_s, fault.at_s - fault.notice_s]
    return times


def _faults(model: ClusterModel, end_s: float) -> list[Fault]:
    racks = defaultdict[str, list[str]](list)
    for node in model.nodes:
        racks[node.rack].append(node.name)
    streams = [iter(model.faults.script)]
    streams += [node_faults(n.name, n.rack, model.faults, model.seed) for n in model.nodes]
    streams += [
        rack_faults(rack, tuple(names), model.faults, model.seed) for rack, names in racks.items()
    ]
    faults: list[Fault] = []
    for number, stream in enumerate(streams):
        for fault in stream:
            # Every stream but the script is in the order of time.
            if fault.at_s > end_s and number > 0:
                break
            faults.append(fault)
    return faults


def _is_near(at_s: float, times: Sequence[float]) -> bool:
    return any(abs(at_s - time) < CLOSE_S for time in times)
