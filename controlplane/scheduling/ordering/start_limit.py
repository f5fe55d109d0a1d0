"""How many gangs may start in one scheduling cycle.

A burst of thousands of small jobs on an empty cluster would otherwise reach the API server and the
kubelets in one instant. Armada limits the jobs of one scheduling round (`maximumSchedulingBurst`)
and their rate (`maximumSchedulingRate`); Kueue admits the head of each queue once a cycle. Here a
cycle begins with the first start after the end of the previous cycle and lasts `cycle_s`; at most
`starts_per_cycle_max` gangs start in it, in any number of passes:

    limit 2      a b | c d | e           a, b, c, d and e are submitted at 0 s, f at 5 s
                 0 s   1 s   2 s   5 s: f

1. A gang for which victims are evicted counts too: none is evicted for a gang beyond the limit.
   When the victims have left, it counts once more, as the start that it then is.
2. The gangs of a group count one by one, but a group starts whole or waits for the next cycle. A
   group larger than the limit starts alone in a cycle.
3. The order is kept. Once the limit is reached no other gang is tried, so none overtakes.
4. Ranks of running gangs (repair, growth, a relaunch) are not starts.
5. A gang that waits with a claim keeps it; no other gang gets what it has claimed.

The number of gangs that the passes of a cycle have admitted is recorded (`StartsCounted`). If gangs
are left over, the end of the cycle is a deadline of the world, and `CycleEnded` then requests the
next pass. A change of the two settings begins a new cycle.
"""

from controlplane.model.events import StartsCounted
from controlplane.scheduling.cluster_view import ClusterView


class StartLimit:
    """The limit in one scheduling pass."""

    def __init__(self, cluster: ClusterView, now: float) -> None:
        self.max = cluster.policy.starts_per_cycle_max
        self._cycle = cluster.cycle
        self.ends_at = now + cluster.policy.cycle_s
        self._admitted = 0
        # Whether gangs are left over for the next cycle.
        self.leaves_over = False
        if self._cycle is not None and now < self._cycle.ends_at:
            self.ends_at, self._admitted = self._cycle.ends_at, self._cycle.admitted

    @property
    def is_open(self) -> bool:
        """Whether any gang may start. Once a gang was left over, no gang behind it may."""
        return self.max is None or (self._admitted < self.max and not self.leaves_over)

    def admits(self, gangs: int) -> bool:
        """Whether these gangs may start together in this cycle."""
        return self.is_open and (
            self.max is None or not self._admitted or self._admitted + gangs <= self.max
        )

    def count(self) -> None:
        """Count one start, or one gang for which victims are evicted."""
        self._admitted += 1

    def leave_over(self) -> None:
        """Note that a gang is left over for the next cycle."""
        self.leaves_over = True

    def counted(self) -> StartsCounted | None:
        """The event to record after the pass; None if nothing has changed."""
        if self.max is None or not self._admitted:
            return None
        known, limited = self._cycle, self.leaves_over
        if known is not None and known.ends_at == self.ends_at:
            limited = limited or known.limited
            if (known.admitted, known.limited) == (self._admitted, limited):
                return None
        return StartsCounted(self.ends_at, self._admitted, limited)
