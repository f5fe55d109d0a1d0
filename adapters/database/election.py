"""Leader election by an advisory lock of PostgreSQL: the control plane that holds the lock leads.

The lock belongs to a session, so it is free as soon as the server notices that the holder's connection has
ended: at once when the process dies, and by the keep-alives set here when its machine or the network does.
"""

import asyncio

from sqlalchemy import NullPool, text
from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.database.opening import SCHEMA
from adapters.database.postgres import Postgres
from controlplane.ports import Clock

LOOK_EVERY_S = 0.5
# Without an answer for this long, the session counts as lost. The server gives up a silent session a little
# later, so two holders would need a server that answers neither of them.
ANSWER_S_MAX = 5.0
KEEPALIVE = {
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
}

TAKE = text("SELECT pg_try_advisory_lock(hashtextextended(:name, 0))")
# Asks whether this session really holds the lock: a pooler in between may have changed the session.
HELD = text("""
    SELECT EXISTS (
        SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted
        AND pid = pg_backend_pid()
        AND ((classid::bigint << 32) | objid::bigint) = hashtextextended(:name, 0)
    )
""")


class AdvisoryLockElection:
    """No other code may wait on `clock`."""

    def __init__(
        self,
        url: str,
        *,
        clock: Clock,
        name: str = "muster_leader",
        look_every_s: float = LOOK_EVERY_S,
    ) -> None:
        self._server = Postgres(url, SCHEMA, ANSWER_S_MAX)
        self._engine = self._server.engine(
            "muster election", KEEPALIVE, poolclass=NullPool, isolation_level="AUTOCOMMIT"
        )
        self._clock = clock
        self._name = name
        self._look_every_s = look_every_s
        self._session: AsyncConnection | None = None

    async def won(self) -> None:
        """Return once this process holds the lock; a server that is away is tried again."""
        while not await self._answer(TAKE):
            await self._rest()

    async def lost(self) -> None:
        """Return when this process holds the lock no longer, or cannot know."""
        await self._rest()
        while await self._answer(HELD):
            await self._rest()

    async def resign(self) -> None:
        """End the session, which frees the lock; harmless if there is none."""
        session, self._session = self._session, None
        if session is not None:
            await session.invalidate()
            await session.close()

    async def _answer(self, question: object) -> bool:
        """Whether the answer is yes; a server that does not answer counts as no."""
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                if self._session is None:
                    self._session = await self._engine.connect()
                return bool(await self._session.scalar(question, {"name": self._name}))  # type: ignore[call-overload]
        except Exception as error:
            if self._server.translated(error) is None:
                raise
            await self.resign()
            return False

    async def _rest(self) -> None:
        await self._clock.wait(self._clock.now() + self._look_every_s)
