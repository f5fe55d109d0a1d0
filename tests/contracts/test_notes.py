"""Notes: what was noted is there after a restart, on either database."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import asyncpg
import pytest

from adapters.clocks.asyncio_clock import AsyncioClock
from adapters.database.notes import DatabaseNotes
from adapters.database.opening import open_database
from controlplane.model.errors import LogUnavailable

# Every call is a process of its own on the same log.
Process = Callable[[], AbstractAsyncContextManager[DatabaseNotes]]


@asynccontextmanager
async def noting(where: str | Path, again_s: float = 0.01) -> AsyncIterator[DatabaseNotes]:
    database = await open_database(where)
    try:
        async with DatabaseNotes(database, clock=AsyncioClock(), again_s=again_s) as notes:
            yield notes
    finally:
        await database.close()


@pytest.fixture(params=["sqlite", "postgres"])
def process(request: pytest.FixtureRequest, tmp_path: Path) -> Process:
    if request.param == "sqlite":
        return lambda: noting(tmp_path / "m.db")
    url: str = request.getfixturevalue("database_url")
    return lambda: noting(url)


async def _kept(process: Process, name: str = "one") -> dict[str, object]:
    async with process() as notes:
        book = notes.book(name)
        await notes.load()
        return dict(book)


async def _is_kept(process: Process, wanted: dict[str, object]) -> bool:
    return await _kept(process) == wanted


async def _is_logged(caplog: pytest.LogCaptureFixture) -> bool:
    return "notes are not kept yet" in caplog.text


async def _until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(10):
        while not await condition():  # noqa: ASYNC110 - the condition gives no signal
            await asyncio.sleep(0.01)


async def test_what_was_noted_is_there_after_a_restart(process: Process) -> None:
    async with process() as notes:
        one, other = notes.book("one"), notes.book("other")
        await notes.load()
        one["a"], one["b"], one["a"] = 0.25, {"x": [1, None]}, 0.75
        other["a"] = "of another book"
        del other["a"]
        one[7] = True
    assert await _kept(process) == {"b": {"x": [1, None]}, "a": 0.75, "7": True}
    assert await _kept(process, "other") == {}


async def test_what_was_noted_last_is_last(process: Process) -> None:
    async with process() as notes:
        book = notes.book("one")
        await notes.load()
        book["a"], book["b"] = 1, 2
        book["a"] = 3
        assert list(book) == ["b", "a"]
    assert list(await _kept(process)) == ["b", "a"]


async def test_a_standby_notes_nothing_and_begins_with_what_the_leader_kept(
    process: Process,
) -> None:
    async with process() as first, process() as second:
        of_first, of_second = first.book("one"), second.book("one")
        await first.load()
        of_second["mine"] = "not kept"
        of_first["a"] = 1
        first.release()
        of_first["late"] = "not kept"
        # The next process begins when the notes of the last one have arrived.
        await _until(lambda: _is_kept(process, {"a": 1}))
        await second.load()
        assert dict(of_second) == {"a": 1}
        of_second["b"] = 2
    assert await _kept(process) == {"a": 1, "b": 2}


async def test_thousands_of_notes_are_written_together(process: Process) -> None:
    many = {str(n): n for n in range(20_000)}
    async with process() as notes:
        book = notes.book("one")
        await notes.load()
        book.update(many)
    assert await _kept(process) == many


async def test_notes_that_cannot_be_read_are_reported(process: Process) -> None:
    async with process() as notes:
        notes.book("one")
        await notes._database.close()
        with pytest.raises(LogUnavailable, match="notes in the database cannot be read"):
            await notes.load()


async def test_notes_are_written_when_the_server_is_back(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with noting(database_url) as notes:
        book = notes.book("one")
        await notes.load()
        other = await asyncpg.connect(database_url)
        with caplog.at_level(logging.WARNING, "muster"):
            await other.execute("ALTER TABLE muster.notes RENAME TO away")
            book["a"] = 1
            await _until(lambda: _is_logged(caplog))
        await other.execute("ALTER TABLE muster.away RENAME TO notes")
        await _until(lambda: other.fetchval("SELECT count(*) > 0 FROM muster.notes"))
        await other.close()
