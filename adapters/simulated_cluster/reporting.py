"""Reports to the control plane, and the memory of those that may have to be told again."""

from collections import deque
from collections.abc import Callable, Hashable, Iterable

from adapters.simulated_cluster.keys import GangKey, Seen
from adapters.simulated_cluster.outcomes import node_info
from controlplane.commands import (
    Report,
    ReportCluster,
    ReportNode,
    ReportNodeLost,
    ReportNodeRemoved,
    ReportRanks,
)
from controlplane.model import Exit
from simulator.machine import Machine

# Attempts that are over are remembered in case their reports were lost on the way. A forgotten one
# does no harm: if it is asked for again, the job's state says enough to end it once more.
OVER_KEPT = 4096


class Reporter:
    def __init__(self, extended: Iterable[str] = ()) -> None:
        # Resources of which a node that does not declare them has none.
        self._extended = tuple(extended)
        self.report: Callable[[Report], None] = lambda report: None
        # By job, its latest attempt.
        self.seen: dict[str, Seen] = {}
        self._over: deque[Seen] = deque()

    def tell(
        self,
        key: Hashable,
        *,
        started: tuple[int, ...] = (),
        exited: tuple[Exit, ...] = (),
        gone: tuple[int, ...] = (),
        leaving: tuple[Exit, ...] = (),
        over: int = 0,
    ) -> None:
        """Reports and remembers. `over` is how many ranks the machine is done with by this."""
        assert isinstance(key, GangKey), key
        report = ReportRanks(
            job=key.job,
            attempt=key.attempt,
            incarnation=key.incarnation,
            started=started,
            exited=exited,
            gone=gone,
            leaving=leaving,
        )
        seen = self.seen.get(key.job)
        if seen is not None and seen.attempt == key.attempt:
            seen.reports.append(report)
            seen.left -= over
            if over and seen.left == 0:
                self.put_away(seen)
        self.report(report)

    def tell_again(self, seen: Seen) -> None:
        for report in seen.reports:
            self.report(report)

    def tell_all_nodes(self, machine: Machine) -> None:
        found = [node for name in machine.nodes if (node := machine.node(name))]
        up = tuple(node_info(node, self._extended) for node, is_up in found if is_up)
        down = tuple(node_info(node, self._extended) for node, is_up in found if not is_up)
        self.report(ReportCluster(up=up, down=down))

    def tell_node(self, machine: Machine, name: str) -> None:
        found = machine.node(name)
        if found is None:
            self.report(ReportNodeRemoved(node=name))
            return
        node, up = found
        if up:
            self.report(ReportNode(node=node_info(node, self._extended)))
        else:
            self.report(ReportNodeLost(node=name, message=f"node {name} is down"))

    def put_away(self, seen: Seen) -> None:
        """An attempt that is over is remembered for a while."""
        self._over.append(seen)
        if len(self._over) > OVER_KEPT:
            oldest = self._over.popleft()
            if oldest.left == 0 and self.seen.get(oldest.job) is oldest:
                del self.seen[oldest.job]
