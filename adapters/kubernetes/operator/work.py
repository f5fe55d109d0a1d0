"""Things to look at, each by one at a time, soon, and again after a failure.

What is asked for twice before its turn is done once. Nothing is known of the things but their keys.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable

from adapters.kubernetes.errors import ApiError
from controlplane.errors import Rejected

# The same thing is not looked at more often than this, however much happens to it.
PAUSE_S = 0.2
AGAIN_S_FIRST = 0.5
AGAIN_S_MAX = 15.0
# Answers of the control plane that say nothing about what was asked.
PASSING = ("unavailable", "busy")

_log = logging.getLogger("muster.kubernetes")


class Work:
    def __init__(
        self,
        do: Callable[[str], Awaitable[None]],
        *,
        workers: int = 8,
        pause_s: float = PAUSE_S,
        again_s_first: float = AGAIN_S_FIRST,
    ) -> None:
        self._do = do
        self._workers = workers
        self._pause_s = pause_s
        self._again_s_first = again_s_first
        # In the order in which they came.
        self._waiting: dict[str, None] = {}
        # Those that somebody is at, or that rest; and whether they are wanted once more.
        self._busy: dict[str, bool] = {}
        self._failures: Counter[str] = Counter()
        self._bell = asyncio.Event()
        self._timers: set[asyncio.TimerHandle] = set()

    def add(self, key: str) -> None:
        if key in self._busy:
            self._busy[key] = True
        else:
            self._waiting[key] = None
            self._bell.set()

    def add_later(self, key: str, after_s: float) -> None:
        loop = asyncio.get_running_loop()

        def due() -> None:
            self._timers.discard(timer)
            self.add(key)

        timer = loop.call_later(after_s, due)
        self._timers.add(timer)

    @property
    def is_idle(self) -> bool:
        return not self._waiting and not self._busy

    async def run(self) -> None:
        """Works for ever; only being cancelled ends it."""
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._workers):
                    group.create_task(self._work())
        finally:
            for timer in self._timers:
                timer.cancel()

    async def _work(self) -> None:
        while True:
            while not self._waiting:
                self._bell.clear()
                await self._bell.wait()
            key = next(iter(self._waiting))
            del self._waiting[key]
            self._busy[key] = False
            rest_s = await self._attempt(key)
            asyncio.get_running_loop().call_later(rest_s, self._rested, key)

    async def _attempt(self, key: str) -> float:
        """Looks at one thing; how long it rests then."""
        try:
            await self._do(key)
        except (ApiError, Rejected) as error:
            told: object = error
        except Exception as error:  # noqa: BLE001
            # One that we cannot handle must not keep us from all others.
            _log.exception("%s: this should not happen", key)
            told = error
        else:
            del self._failures[key]
            return self._pause_s
        self._failures[key] += 1
        again_s = self._again_s_first * 2.0 ** min(self._failures[key] - 1, 10)
        again_s = min(again_s, AGAIN_S_MAX)
        level = logging.DEBUG if _is_pause(told) else logging.WARNING
        _log.log(level, "%s: %s; again in %.1f s", key, told, again_s)
        self._busy[key] = True
        return again_s

    def _rested(self, key: str) -> None:
        if self._busy.pop(key):
            self.add(key)


def _is_pause(told: object) -> bool:
    """Whether it only says that nobody leads at the moment."""
    return isinstance(told, Rejected) and told.code in PASSING
