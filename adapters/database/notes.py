"""Notes: what must outlive the process and decides nothing, in a table of its own.

The log holds what was asked, reported and decided. How wrong forecasts were is neither; losing it changes
no decision. See docs/adr/0016.

A caller that changes a note does not wait for the database: changes are gathered and written together as
soon as it answers. A process that is killed loses the changes of its last moments.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any, Self

from sqlalchemy import delete, insert, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.database.database import Database
from adapters.database.tables import notes
from controlplane.model.errors import LogCorrupt, LogUnavailable
from controlplane.ports import Clock

AGAIN_S = 2.0
# SQLite takes 32,766 parameters in a statement, of which each key is two.
KEYS_MAX = 5_000

_log = logging.getLogger("muster")

# A key of a book, and its value; None once it is deleted.
Changed = Callable[[str, Any], None]


class Book(MutableMapping[Any, Any]):
    """A mapping in memory that reports every change. Keys are kept as text, values as JSON.

    The entry that was written last is the last one.
    """

    def __init__(self, changed: Changed) -> None:
        self._entries: dict[str, Any] = {}
        self._changed = changed

    def replace(self, entries: Mapping[str, Any]) -> None:
        """Take the stored entries in place of the present ones; that is no change."""
        self._entries = dict(entries)

    def __getitem__(self, key: object) -> Any:
        return self._entries[str(key)]

    def __setitem__(self, key: object, value: Any) -> None:
        before = self._entries.pop(str(key), None)
        self._entries[str(key)] = value
        if before != value:
            self._changed(str(key), value)

    def __delitem__(self, key: object) -> None:
        del self._entries[str(key)]
        self._changed(str(key), None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


class DatabaseNotes:
    """Used as a block, whose end writes what is not yet written. No other code may wait on `clock`."""

    def __init__(self, database: Database, *, clock: Clock, again_s: float = AGAIN_S) -> None:
        self._database = database
        self._clock = clock
        self._again_s = again_s
        self._books: dict[str, Book] = {}
        self._keeping = False
        self._pending: dict[tuple[str, str], Any] = {}
        self._wake = asyncio.Event()
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
        except (LogUnavailable, LogCorrupt) as error:
            _log.warning("%d notes were not kept: %s", len(self._pending), error)

    def book(self, name: str) -> Book:
        """The book of this name: empty, and not kept, until `load`."""
        if name not in self._books:
            self._books[name] = Book(lambda key, value: self._note(name, key, value))
        return self._books[name]

    async def load(self) -> None:
        """Begin to keep the books, from what is stored; raises LogUnavailable."""
        try:
            await self._write()
            for name, book in self._books.items():
                book.replace(await self._read(name))
        except (LogUnavailable, LogCorrupt) as error:
            raise LogUnavailable(f"the notes in the database cannot be read: {error}") from error
        self._keeping = True

    def release(self) -> None:
        """Keep the books no longer: another process does."""
        self._keeping = False

    def _note(self, name: str, key: str, value: Any) -> None:
        if self._keeping:
            self._pending.pop((name, key), None)
            self._pending[name, key] = value
            self._wake.set()

    async def _read(self, name: str) -> dict[str, Any]:
        stored = select(notes.c.key, notes.c.value).where(notes.c.book == name)
        in_order = stored.order_by(notes.c.written)
        rows = await self._database.read(lambda c: c.execute(in_order))
        return {key: json.loads(value) for key, value in rows}

    async def _write_for_ever(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._write()
            except (LogUnavailable, LogCorrupt) as error:
                _log.warning("notes are not kept yet: %s; trying again", error)
                self._wake.set()
                await self._clock.wait(self._clock.now() + self._again_s)

    async def _write(self) -> None:
        """Write all that is pending, in one transaction."""
        async with self._turn:
            if not self._pending:
                return
            taken = dict(self._pending)
            await self._database.write(lambda c: _replace(c, taken))
            for key, value in taken.items():
                # Unless it was changed meanwhile.
                if self._pending[key] is value:
                    del self._pending[key]


async def _replace(connection: AsyncConnection, taken: Mapping[tuple[str, str], Any]) -> None:
    keys = list(taken)
    for first in range(0, len(keys), KEYS_MAX):
        old = tuple_(notes.c.book, notes.c.key).in_(keys[first : first + KEYS_MAX])
        await connection.execute(delete(notes).where(old))
    new = [
        {"book": book, "key": key, "value": json.dumps(value)}
        for (book, key), value in taken.items()
        if value is not None
    ]
    if new:
        await connection.execute(insert(notes), new)
