"""Coming faults: the next fault of each stream is a timer, preceded by its notice if it has one."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial

from simulator.faults import Fault, node_faults, rack_faults
from simulator.kernel.virtual_time import VirtualTime
from simulator.network.topology import ClusterModel

# Called when a fault begins, with the seconds left of its repair; None if it is permanent.
ApplyFault = Callable[[Fault, float | None], None]
# Called when a node gets notice of a fault, with the seconds until it begins.
Warn = Callable[[Fault, float], None]


def schedule_faults(
    env: VirtualTime, cluster: ClusterModel, *, apply_fault: ApplyFault, warn: Warn
) -> "FaultSchedule":
    """Schedule every fault of the script, and the faults of each node and rack.

    Return the schedule, to which more faults can be added.
    """
    expected = FaultSchedule(env, apply_fault, warn)
    for fault in cluster.faults.script:
        expected.schedule_next(iter((fault,)))
    racks = defaultdict[str, list[str]](list)
    for node in cluster.nodes:
        expected.schedule_next(node_faults(node.name, node.rack, cluster.faults, cluster.seed))
        racks[node.rack].append(node.name)
    for rack, names in racks.items():
        expected.schedule_next(rack_faults(rack, tuple(names), cluster.faults, cluster.seed))
    return expected


class FaultSchedule:
    """Streams of faults, each with a timer for its next one."""

    def __init__(self, env: VirtualTime, apply_fault: ApplyFault, warn: Warn) -> None:
        self._env = env
        self._apply_fault = apply_fault
        self._warn = warn

    def schedule_next(self, faults: Iterator[Fault]) -> None:
        """Schedule the next fault of a stream that is not over; one that is under way begins now."""
        now = self._env.now
        fault = next((f for f in faults if f.at_s >= now or f.over_at_s > now), None)
        if fault is None:
            return
        if fault.at_s >= now:
            if fault.notice_s > 0.0:
                noticed_at_s = max(now, fault.at_s - fault.notice_s)
                left_s = fault.at_s - noticed_at_s
                self._env.call_at(noticed_at_s, partial(self._give_notice, fault, left_s))
            self._env.call_at(fault.at_s, partial(self._begin_fault, fault, faults))
        else:
            left = None if fault.repair_s is None else fault.over_at_s - now
            self._apply_fault(fault, left)
            self.schedule_next(faults)

    def _give_notice(self, fault: Fault, left_s: float) -> None:
        self._warn(fault, left_s)

    def _begin_fault(self, fault: Fault, faults: Iterator[Fault]) -> None:
        self._apply_fault(fault, fault.repair_s)
        self.schedule_next(faults)
