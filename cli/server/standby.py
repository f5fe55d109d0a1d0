"""A standby control plane: it follows the log, and answers reads from the world it follows."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from adapters.clocks.asyncio_clock import AsyncioClock
from adapters.logs.follower import follow
from api.engine.engine_client import EngineClient
from controlplane.log.fold import fold
from controlplane.log.replay import Rebuilt, rebuild
from controlplane.model.events import Recorded

_log = logging.getLogger("muster")


class Standby:
    """Follows the log. `known` is the world so far; it survives a failure of the log.

    Following takes real time, even if the control plane's own clock runs fast.
    """

    def __init__(self, engine_client: EngineClient, clock: AsyncioClock) -> None:
        self.known: Rebuilt | None = None
        self._engine_client = engine_client
        self._clock = clock.twin()
        self._listens = False

    async def until(self, elected: Coroutine[Any, Any, None], caught_up: asyncio.Event) -> Rebuilt:
        """Follow the log until `elected` is done; the returned world then belongs to the caller.

        Only a standby that can read the log takes part in an election, so `elected` is started
        after the first read and cancelled if the log fails. Raises the log's errors.
        """
        try:
            known = await rebuild(self._engine_client.log, begin=self.known)
        except BaseException:
            elected.close()
            self.known = None
            raise
        self._keep(known)
        self._announce(known)
        caught_up.set()
        election = asyncio.create_task(elected)
        following = asyncio.create_task(self._follow(known))
        try:
            await asyncio.wait((election, following), return_when=asyncio.FIRST_COMPLETED)
            if election.done():
                election.result()
            else:
                following.result()
        finally:
            election.cancel()
            following.cancel()
            await asyncio.gather(election, following, return_exceptions=True)
            self._engine_client.followed = None
        taken, self.known = self.known, None
        assert taken is not None
        return taken

    def _keep(self, known: Rebuilt) -> None:
        self.known = known
        self._engine_client.followed = known.world

    def _announce(self, known: Rebuilt) -> None:
        self._engine_client.skip_to(known.world.position)
        where = known.world.leader or "an unknown address"
        position = known.world.position
        _log.info("standing by at position %d; the last leader was at %s", position, where)

    async def _follow(self, known: Rebuilt) -> None:
        world, digest, _ = known
        log = self._engine_client.log
        if not self._listens and (listen := getattr(log, "listen", None)) is not None:
            # A log that notifies of appends saves waiting for the next poll.
            await listen(self._clock.wake)
            self._listens = True
        async for rows in follow(log, world.position, clock=self._clock):
            batch: list[Recorded] = []
            digest = fold(world, rows, digest, observe=batch.append)
            self._keep(Rebuilt(world, digest))
            self._engine_client.publish(batch, world)
