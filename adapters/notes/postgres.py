"""Notes in a table beside a PostgreSQL log.

Whoever notes something does not wait for the database: changes are gathered and written together as
soon as it answers. A process that is killed loses those of its last moments, as it would lose a
checkpoint that was not yet on disk.
"""

import asyncio
import json
import logging
from typing import Any, Self

import asyncpg  # type: ignore[import-untyped]

from adapters.notes.book import Book
from controlplane.errors import LogUnavailable
from controlplane.ports import Clock

AGAIN_S = 2.0
ANSWER_S_MAX = 30.0

# The order of writing is kept, so that the oldest can be told.
TABLE = """
    CREATE TABLE notes (
        book text NOT NULL,
        key text NOT NULL,
        value json NOT NULL,
        written bigint GENERATED ALWAYS AS IDENTITY,
        PRIMARY KEY (book, key)
    )
"""
READ = "SELECT key, value FROM notes WHERE book = $1 ORDER BY written"
FORGET = """
    DELETE FROM notes USING unnest($1::text[], $2::text[]) AS gone (book, key)
    WHERE notes.book = gone.book AND notes.key = gone.key
"""
WRITE = """
    INSERT INTO notes (book, key, value)
    SELECT * FROM unnest($1::text[], $2::text[], $3::json[])
"""
# The third is what a connection says that was cut off in the middle of an answer.
_FAILURES = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
)

_log = logging.getLogger("muster")


class PostgresNotes:
    """In a block, whose end writes what is not yet written. `clock` is this one's own."""

    def __init__(
        self, url: str, *, clock: Clock, schema: str = "muster", again_s: float = AGAIN_S
    ) -> None:
        self._url = url
        self._clock = clock
        self._schema = schema
        self._again_s = again_s
        self._books: dict[str, Book] = {}
        self._keeping = False
        self._pending: dict[tuple[str, str], Any] = {}
        self._wake = asyncio.Event()
        self._session: asyncpg.Connection | None = None
        self._turn = asyncio.Lock()
        self._writing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._writing = asyncio.create_task(self._write_for_ever())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._writing is not None
        self._writing.cancel()
        await asyncio.gather(self._writing, return_exceptions=True)
        try:
            await self._write()
        except _FAILURES as error:
            _log.warning("%d notes were not kept: %s", len(self._pending), error)
        if self._session is not None:
            self._session.terminate()

    def book(self, name: str) -> Book:
        """Empty, and not kept, until `load`."""
        if name not in self._books:
            self._books[name] = Book(lambda key, value: self._note(name, key, value))
        return self._books[name]

    async def load(self) -> None:
        """Begins to keep the books, from what was kept before.

        Who may not make the table works without: nothing that is decided depends on it.
        """
        try:
            await self._write()
            async with self._turn:
                session = await self._connected()
                for name, book in self._books.items():
                    rows = await session.fetch(READ, name)
                    book.replace({row["key"]: json.loads(row["value"]) for row in rows})
        except asyncpg.InsufficientPrivilegeError as error:
            _log.warning(
                "checkpoints of simulated jobs and errors of forecasts are not kept: %s; "
                "let this user create tables in the schema %s", error, self._schema,
            )  # fmt: skip
            return
        except _FAILURES as error:
            raise LogUnavailable(f"the notes beside the log cannot be read: {error}") from error
        self._keeping = True

    def release(self) -> None:
        """Somebody else keeps them from now on."""
        self._keeping = False

    def _note(self, name: str, key: str, value: Any) -> None:
        if self._keeping:
            self._pending.pop((name, key), None)
            self._pending[name, key] = value
            self._wake.set()

    async def _write_for_ever(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._write()
            except _FAILURES as error:
                _log.warning("notes are not kept yet: %s; trying again", error)
                self._wake.set()
                await self._clock.wait(self._clock.now() + self._again_s)

    async def _write(self) -> None:
        """All that is pending, in one transaction."""
        async with self._turn:
            if not self._pending:
                return
            session = await self._connected()
            taken = dict(self._pending)
            kept = [(*key, json.dumps(value)) for key, value in taken.items() if value is not None]
            async with session.transaction():
                await session.execute(FORGET, *_columns(list(taken), 2))
                await session.execute(WRITE, *_columns(kept, 3))
            for key, value in taken.items():
                # Unless it was written over meanwhile.
                if self._pending[key] is value:
                    del self._pending[key]

    async def _connected(self) -> asyncpg.Connection:
        if self._session is None or self._session.is_closed():
            path = '"' + self._schema.replace('"', '""') + '"'
            self._session = await asyncpg.connect(
                self._url,
                timeout=ANSWER_S_MAX,
                command_timeout=ANSWER_S_MAX,
                server_settings={"application_name": "muster notes", "search_path": path},
            )
            async with self._session.transaction():
                # Replicas that start together must not create it twice.
                await self._session.execute(
                    "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", f"{self._schema}_notes"
                )
                if await self._session.fetchval("SELECT to_regclass('notes') IS NULL"):
                    await self._session.execute(TABLE)
        return self._session


def _columns(rows: list[Any], width: int) -> list[list[Any]]:
    return [[row[i] for row in rows] for i in range(width)]
