"""An election among control planes on one PostgreSQL: whoever holds an advisory lock.

The lock belongs to a session, so it is free as soon as the server sees that the holder's
connection has ended: at once when the process dies, and by the keep-alives set here when its
machine or the network does.
"""

import asyncio

import asyncpg  # type: ignore[import-untyped]

from controlplane.ports import Clock

LOOK_EVERY_S = 0.5
# Without an answer for so long, the session counts as lost. The server gives a silent one up a
# little later, so two holders would need a server that answers neither of them.
ANSWER_S_MAX = 5.0
KEEPALIVE = {
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
}

TAKE = "SELECT pg_try_advisory_lock(hashtextextended($1, 0))"
# Asks whether the lock is really this session's: a pooler between may have changed the session.
HELD = """
    SELECT EXISTS (
        SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted
        AND pid = pg_backend_pid()
        AND ((classid::bigint << 32) | objid::bigint) = hashtextextended($1, 0)
    )
"""
# The third is what a connection says that was cut off in the middle of an answer.
_FAILURES = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
)


class PostgresElection:
    """`clock` is this one's own: it is waited on."""

    def __init__(
        self,
        url: str,
        *,
        clock: Clock,
        name: str = "muster_leader",
        look_every_s: float = LOOK_EVERY_S,
    ) -> None:
        self._url = url
        self._clock = clock
        self._name = name
        self._look_every_s = look_every_s
        self._session: asyncpg.Connection | None = None

    async def won(self) -> None:
        """Tries until it holds the lock; a server that is away is tried again."""
        while True:
            try:
                if await self._answer(TAKE):
                    return
            except _FAILURES:
                await self.resign()
            await self._rest()

    async def lost(self) -> None:
        while True:
            await self._rest()
            try:
                held = await self._answer(HELD)
            except _FAILURES:
                held = False
            if not held:
                return

    async def resign(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            # Ending the session frees the lock, and asks nothing of a server that may be away.
            session.terminate()

    async def _answer(self, question: str) -> bool:
        async with asyncio.timeout(ANSWER_S_MAX):
            if self._session is None or self._session.is_closed():
                self._session = await asyncpg.connect(
                    self._url, server_settings={"application_name": "muster election", **KEEPALIVE}
                )
            return bool(await self._session.fetchval(question, self._name))

    async def _rest(self) -> None:
        await self._clock.wait(self._clock.now() + self._look_every_s)
