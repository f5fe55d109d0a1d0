"""From when on a simulated cluster counts its faults, read off a log that does not name its model.

A server counts from the first event. Worlds in virtual time may count from 0, as their log's times do.
The faults that were recorded tell which; where they fit neither, the log is another cluster's.
"""

from collections import defaultdict
from collections.abc import Sequence

from controlplane import events as e
from simulator.faults import Fault, node_faults, rack_faults
from simulator.topology import ClusterModel

CLOSE_S = 1.0


def birth_of(model: ClusterModel, events: Sequence[e.Recorded]) -> float | None:
    """The time at which the cluster's own time was 0; None if its faults are not the log's."""
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
    # Where there were none, times that are not counted from anywhere are not rounded either.
    for birth in dict.fromkeys((first, 0.0) if lost else (0.0, first)):
        expected = _expected(model, first - birth, last - birth)
        if bool(lost) != any(expected[node] for node in counted):
            continue
        if all(_is_near(at - birth, expected[node]) for node, at in lost):
            return birth
    return None


def _expected(model: ClusterModel, begin_s: float, end_s: float) -> dict[str, list[float]]:
    """By node, when faults take it between two times, and when that is announced."""
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
    found: list[Fault] = []
    for number, stream in enumerate(streams):
        for fault in stream:
            # Only the script is in no order.
            if fault.at_s > end_s and number > 0:
                break
            found.append(fault)
    return found


def _is_near(at_s: float, times: Sequence[float]) -> bool:
    return any(abs(at_s - time) < CLOSE_S for time in times)
