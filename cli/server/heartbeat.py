"""Records time that passes without an event, so that a restart does not turn the clock back.

A server that runs or ran fast is ahead of the wall clock, and only its log has its time. So the
time is recorded when nothing else was recorded for a while, and once more at the end.
"""

import asyncio
import time
from typing import NoReturn

from adapters.clocks.asyncio_clock import AsyncioClock
from api.engine.engine_client import EngineClient
from controlplane.decisions.step import Answer
from controlplane.model.commands import ReportTime

# Real seconds between records: the most that a crash can turn back.
EVERY_S = 5.0
# A clock that is at most this many seconds ahead follows the wall clock.
AHEAD_S = 1.0
STOP_S_MAX = 2.0


class Heartbeat:
    def __init__(self, engine_client: EngineClient, clock: AsyncioClock, speed: float) -> None:
        self._engine_client = engine_client
        self._clock = clock
        self._speed = speed

    async def run(self) -> NoReturn:
        while True:
            await asyncio.sleep(EVERY_S)
            engine = self._engine_client.engine
            if engine is not None and engine.leads and self._is_quiet(engine.world.at):
                engine.submit(ReportTime())

    async def stop(self) -> None:
        """Record the time at which the server stops."""
        engine = self._engine_client.engine
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
        """Return whether a restart would lose time: the clock is ahead, and `last` long ago.

        `last` is the time of the latest event.
        """
        now = self._clock.now()
        return now > time.time() + AHEAD_S and now - last >= EVERY_S * self._speed / 2
