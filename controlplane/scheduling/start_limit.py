"""How many gangs may start in one scheduling cycle.

A burst of thousands of small jobs on an empty cluster would otherwise reach the API server and the
kubelets in one instant. Armada limits the jobs of one scheduling round (`maximumSchedulingBurst`) and
their rate (`maximumSchedulingRate`); Kueue admits the head of each queue once a cycle. Here a cycle begins
with the first start after the end of the one before and lasts `cycle_s`; at most `starts_per_cycle_max`
gangs start in it, in however many passes:

    limit 2      a b | c d | e           a, b, c, d and e are submitted at 0 s, f at 5 s
                 0 s   1 s   2 s   5 s: f

1. A gang for which others begin to make room counts, too: no more are evicted than may start. When these
   have left, it counts once more, as the start that it then is.
2. The gangs of a group count one by one, but a group starts whole or waits for the next cycle. One that is
   larger than the limit starts alone in a cycle.
3. The order is kept. With the limit reached nothing else is looked at, so nothing overtakes.
4. Ranks of gangs that run (repair, growth, a relaunch) are no starts.
5. A gang that waits with a claim keeps it; what was promised to it goes to no other.

What the passes of a cycle have admitted is recorded (`StartsCounted`). If gangs are left over, the end of
the cycle is a deadline of the world, and `CycleEnded` then asks for the next pass. A change of the two
settings begins a new cycle.
"""

from controlplane.events import StartsCounted
from controlplane.world import World

STARTS_LIMITED = "starts_limited"


class StartLimit:
    """The limit as one pass sees it."""

    def __init__(self, world: World, now: float) -> None:
        self.max = world.policy.starts_per_cycle_max
        self._cycle = world.cycle
        self.ends_at = now + world.policy.cycle_s
        self._admitted = 0
        # Whether gangs are left over for the next cycle.
        self.leaves_over = False
        if self._cycle is not None and now < self._cycle.ends_at:
            self.ends_at, self._admitted = self._cycle.ends_at, self._cycle.admitted

    @property
    def is_open(self) -> bool:
        """Whether anything may start. Once a gang was left over, nothing behind it may."""
        return self.max is None or (self._admitted < self.max and not self.leaves_over)

    def admits(self, gangs: int) -> bool:
        """Whether these gangs may start together in this cycle."""
        return self.is_open and (
            self.max is None or not self._admitted or self._admitted + gangs <= self.max
        )

    def count(self) -> None:
        self._admitted += 1

    def leave_over(self) -> None:
        self.leaves_over = True

    def counted(self) -> StartsCounted | None:
        """What is to be recorded after the pass; None if there is no news."""
        if self.max is None or not self._admitted:
            return None
        known, limited = self._cycle, self.leaves_over
        if known is not None and known.ends_at == self.ends_at:
            limited = limited or known.limited
            if (known.admitted, known.limited) == (self._admitted, limited):
                return None
        return StartsCounted(self.ends_at, self._admitted, limited)
