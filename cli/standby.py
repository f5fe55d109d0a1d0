"""A control plane that waits for its turn: it follows the log, and reads are answered from that."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from adapters.asyncio_clock import AsyncioClock
from adapters.follower import follow
from api.control import Control
from controlplane.events import Recorded
from controlplane.folding import fold
from controlplane.replay import Rebuilt, rebuild

_log = logging.getLogger("muster")


class Standby:
    """`known` is the world as far as the log was followed; it outlives a log that fails.

    Following takes real time, however fast the control plane's own time runs.
    """

    def __init__(self, control: Control, clock: AsyncioClock) -> None:
        self.known: Rebuilt | None = None
        self._control = control
        self._clock = clock.twin()
        self._listens = False

    async def until(self, elected: Coroutine[Any, Any, None], caught_up: asyncio.Event) -> Rebuilt:
        """Follows until `elected` is done; the world then belongs to whoever called.

        Only who can read the log stands for election, so `elected` is not begun before that, and
        is given up if the log fails. Raises what the log said.
        """
        try:
            known = await rebuild(self._control.log, begin=self.known)
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
            self._control.followed = None
        taken, self.known = self.known, None
        assert taken is not None
        return taken

    def _keep(self, known: Rebuilt) -> None:
        self.known = known
        self._control.followed = known.world

    def _announce(self, known: Rebuilt) -> None:
        self._control.skip_to(known.world.position)
        where = known.world.leader or "an address that it does not tell"
        position = known.world.position
        _log.info("standing by at position %d; the last leader was at %s", position, where)

    async def _follow(self, known: Rebuilt) -> None:
        world, digest, _ = known
        log = self._control.log
        if not self._listens and (listen := getattr(log, "listen", None)) is not None:
            # A log that tells of appends saves waiting for the next look.
            await listen(self._clock.wake)
            self._listens = True
        async for rows in follow(log, world.position, clock=self._clock):
            batch: list[Recorded] = []
            digest = fold(world, rows, digest, watch=batch.append)
            self._keep(Rebuilt(world, digest))
            self._control.tell(batch, world)
