"""SimPy under asyncio: a model whose time follows a clock, so that a real server can use it.

Between its events the model lags behind the clock. A caller that acts on the model calls `sync`
first, which also wakes the pacer, because the action may schedule an earlier event.
"""

import math
from typing import NoReturn

from controlplane.ports import Clock
from simulator.kernel.virtual_time import VirtualTime

# After this many events the pacer yields to the loop, however far behind the model is.
EVENTS_MAX = 1000


class Pacer:
    """Runs the events of a model at their times on `clock`.

    No other component may wait on `clock`. `origin` is the clock's time at the model's time 0.
    Without a model (`env` is None) nothing happens until `take`.
    """

    def __init__(self, env: VirtualTime | None, clock: Clock, *, origin: float = 0.0) -> None:
        self._env = env
        self._clock = clock
        self._origin = origin

    def take(self, env: VirtualTime | None, origin: float = 0.0) -> None:
        """Pace another model from now on, or none."""
        self._env, self._origin = env, origin
        self._clock.wake()

    def sync(self) -> None:
        """Run every due event, and bring the model's time up to the clock's."""
        env = self._env
        if env is None:
            return
        now = self._clock.now()
        while self._due(env, now):
            env.step()
        if now - self._origin > env.now:
            env.run(until=now - self._origin)
        self._clock.wake()

    async def run(self) -> NoReturn:
        """Run every event at its time until cancelled; an exception of the model is raised."""
        while True:
            now, env = self._clock.now(), self._env
            next_s = math.inf
            if env is not None:
                for _ in range(EVENTS_MAX):
                    if not self._due(env, now):
                        break
                    env.step()
                next_s = env.peek()
            await self._clock.wait(None if math.isinf(next_s) else self._origin + next_s)

    def _due(self, env: VirtualTime, now: float) -> bool:
        # Compare clock times: in the model's time, rounding could make the pacer wait for ever.
        return self._origin + env.peek() <= now
