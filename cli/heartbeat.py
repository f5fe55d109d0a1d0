"""Time that passes without an event, recorded now and then so that a restart does not turn it back.

A fast or a formerly fast server is ahead of the wall clock, and what it shows is nowhere but in its
log. So the time is recorded when nothing else was for a while, and once more at the end.
"""

import asyncio
import time
from typing import NoReturn

from adapters.asyncio_clock import AsyncioClock
from api.control import Control
from controlplane.commands import ReportTime
from controlplane.engine import Answer

# Of real time: what a crash can turn back.
EVERY_S = 5.0
# A clock that is no further ahead than this follows the wall clock.
AHEAD_S = 1.0
STOP_S_MAX = 2.0


class Heartbeat:
    def __init__(self, control: Control, clock: AsyncioClock, speed: float) -> None:
        self._control = control
        self._clock = clock
        self._speed = speed

    async def run(self) -> NoReturn:
        while True:
            await asyncio.sleep(EVERY_S)
            engine = self._control.engine
            if engine is not None and engine.leads and self._is_quiet(engine.world.at):
                engine.submit(ReportTime())

    async def stop(self) -> None:
        """Records the time at which a server is stopped."""
        engine = self._control.engine
        now = self._clock.now()
        if engine is None or not engine.leads or now <= time.time() + AHEAD_S:
            return
        recorded = asyncio.get_running_loop().create_future()

        def reply(answer: Answer) -> None:
            if not recorded.done():
                recorded.set_result(answer)

        engine.submit(ReportTime(), reply)
        await asyncio.wait([recorded], timeout=STOP_S_MAX)

    def _is_quiet(self, last: float) -> bool:
        """Whether nothing was recorded since the last look, and a restart would lose the time."""
        now = self._clock.now()
        return now > time.time() + AHEAD_S and now - last >= EVERY_S * self._speed / 2
