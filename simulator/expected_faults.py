"""Faults that are yet to come: each stream's next one waits as a timer, with its warning before it."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial

from simulator.faults import Fault, node_faults, rack_faults
from simulator.topology import ClusterModel
from simulator.virtual_time import VirtualTime

# A fault strikes, and what is left of its repair; without a number it is for good.
Befall = Callable[[Fault, float | None], None]
# A fault will strike in so many seconds.
Warn = Callable[[Fault, float], None]


def expect_faults(env: VirtualTime, cluster: ClusterModel, *, befall: Befall, warn: Warn) -> None:
    """Waits for every fault of the script, and for those of each node and rack."""
    expected = _Expected(env, befall, warn)
    for fault in cluster.faults.script:
        expected.next_of(iter((fault,)))
    racks = defaultdict[str, list[str]](list)
    for node in cluster.nodes:
        expected.next_of(node_faults(node.name, node.rack, cluster.faults, cluster.seed))
        racks[node.rack].append(node.name)
    for rack, names in racks.items():
        expected.next_of(rack_faults(rack, tuple(names), cluster.faults, cluster.seed))


class _Expected:
    def __init__(self, env: VirtualTime, befall: Befall, warn: Warn) -> None:
        self._agenda = env.agenda
        self._befall = befall
        self._warn = warn

    def next_of(self, faults: Iterator[Fault]) -> None:
        """Waits for the next fault that is not over yet; one that is under way strikes now."""
        now = self._agenda.now
        fault = next((f for f in faults if f.at_s >= now or f.over_at_s > now), None)
        if fault is None:
            return
        if fault.at_s >= now:
            if fault.notice_s > 0.0:
                left_s = min(fault.notice_s, fault.at_s - now)
                self._agenda.call_after(
                    fault.at_s - now - left_s, partial(self._tell, fault, left_s)
                )
            self._agenda.call_after(fault.at_s - now, partial(self._strike, fault, faults))
        else:
            left = None if fault.repair_s is None else fault.over_at_s - now
            self._befall(fault, left)
            self.next_of(faults)

    def _tell(self, fault: Fault, left_s: float) -> None:
        self._warn(fault, left_s)

    def _strike(self, fault: Fault, faults: Iterator[Fault]) -> None:
        self._befall(fault, fault.repair_s)
        self.next_of(faults)
