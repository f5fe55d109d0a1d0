"""SimPy beside asyncio: a model whose time follows a clock, so a real server can run on it.

The model lags behind between its events. So whoever acts on it calls `sync` first; that also makes
the pacer look again, for there may be something new to wait for.
"""

import math
from typing import NoReturn

from controlplane.ports import Clock
from simulator.virtual_time import VirtualTime

# After so many events the others get their turn, however far behind the model is.
EVENTS_MAX = 1000


class Pacer:
    """`clock` is the pacer's own to wait on; `origin` is what it shows at the model's time 0.

    Without a model nothing happens until it takes one.
    """

    def __init__(self, env: VirtualTime | None, clock: Clock, *, origin: float = 0.0) -> None:
        self._env = env
        self._clock = clock
        self._origin = origin

    def take(self, env: VirtualTime | None, origin: float = 0.0) -> None:
        """Another model from here on, or none."""
        self._env, self._origin = env, origin
        self._clock.wake()

    def sync(self) -> None:
        """Lets all happen that is due, and brings the model's time up to the clock's."""
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
        """Lets everything happen at its time, for ever. A failure of the model ends it."""
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
        # Compared as the clock shows it: the other way round, rounding could wait for ever.
        return self._origin + env.peek() <= now
