"""A work queue of keys, like the one of client-go (`util/workqueue`).

A key that is added twice before its turn is processed once, no key is processed by two workers at
the same time, and a key that fails is retried with exponential back-off.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable

from adapters.kubernetes.api.errors import ApiError
from controlplane.model.errors import Rejected

# The shortest time between two runs of the same key.
PAUSE_S = 0.2
AGAIN_S_FIRST = 0.5
AGAIN_S_MAX = 15.0
# Refusal codes of the control plane that are transient and not about the command.
PASSING = ("unavailable", "busy")

_log = logging.getLogger("muster.kubernetes")


class WorkQueue:
    """Calls `do` with each key that is added, with `workers` tasks."""

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
        # The keys that wait, in the order of arrival.
        self._waiting: dict[str, None] = {}
        # The keys that are being processed or pause, and whether they were added again meanwhile.
        self._busy: dict[str, bool] = {}
        self._failures: Counter[str] = Counter()
        self._bell = asyncio.Event()
        self._timers: set[asyncio.TimerHandle] = set()

    def add(self, key: str) -> None:
        """Queue a key; if it is being processed, process it again afterwards."""
        if key in self._busy:
            self._busy[key] = True
        else:
            self._waiting[key] = None
            self._bell.set()

    def add_later(self, key: str, after_s: float) -> None:
        """Queue a key after `after_s` seconds."""
        loop = asyncio.get_running_loop()

        def due() -> None:
            self._timers.discard(timer)
            self.add(key)

        timer = loop.call_later(after_s, due)
        self._timers.add(timer)

    async def run(self) -> None:
        """Process keys until cancelled."""
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
        """Process one key, and return the seconds that it pauses afterwards."""
        try:
            await self._do(key)
        except (ApiError, Rejected) as error:
            reason: object = error
        except Exception as error:  # noqa: BLE001
            # A key that cannot be processed must not block the others.
            _log.exception("%s: this should not happen", key)
            reason = error
        else:
            del self._failures[key]
            return self._pause_s
        self._failures[key] += 1
        again_s = self._again_s_first * 2.0 ** min(self._failures[key] - 1, 10)
        again_s = min(again_s, AGAIN_S_MAX)
        level = logging.DEBUG if _is_pause(reason) else logging.WARNING
        _log.log(level, "%s: %s; again in %.1f s", key, reason, again_s)
        self._busy[key] = True
        return again_s

    def _rested(self, key: str) -> None:
        if self._busy.pop(key):
            self.add(key)


def _is_pause(error: object) -> bool:
    """Return whether the error is a transient refusal, such as that no engine leads."""
    return isinstance(error, Rejected) and error.code in PASSING
