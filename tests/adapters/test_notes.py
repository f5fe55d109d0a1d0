"""Notes beside the log: what was noted is there after a restart, in a file or in PostgreSQL."""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import asyncpg
import pytest

from adapters.asyncio_clock import AsyncioClock
from adapters.notes import file as file_notes
from adapters.notes.file import FileNotes
from adapters.notes.postgres import PostgresNotes
from controlplane.errors import LogUnavailable

Notes = FileNotes | PostgresNotes
# Every call is a process of its own on the same log.
Process = Callable[[], AbstractAsyncContextManager[Notes]]


@pytest.fixture(params=["file", "postgres"])
def process(request: pytest.FixtureRequest, tmp_path: Path) -> Process:
    if request.param == "file":

        @asynccontextmanager
        async def with_file() -> AsyncIterator[Notes]:
            yield FileNotes(tmp_path / "m.db")

        return with_file
    url: str = request.getfixturevalue("database_url")

    @asynccontextmanager
    async def with_postgres() -> AsyncIterator[Notes]:
        async with PostgresNotes(url, clock=AsyncioClock(), schema="public") as notes:
            yield notes

    return with_postgres


async def _kept(process: Process, name: str = "one") -> dict[str, object]:
    async with process() as notes:
        book = notes.book(name)
        await notes.load()
        return dict(book)


async def _is_kept(process: Process, wanted: dict[str, object]) -> bool:
    return await _kept(process) == wanted


async def _told(caplog: pytest.LogCaptureFixture) -> bool:
    return "notes are not kept yet" in caplog.text


async def _until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(10):
        while not await condition():  # noqa: ASYNC110 - what is waited for tells nobody
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
        if isinstance(first, PostgresNotes):
            # The next one begins when the last one's notes have arrived.
            await _until(lambda: _is_kept(process, {"a": 1}))
        await second.load()
        assert dict(of_second) == {"a": 1}
        of_second["b"] = 2
    assert await _kept(process) == {"a": 1, "b": 2}


def test_a_line_that_a_crash_cut_short_counts_for_nothing(tmp_path: Path) -> None:
    notes = FileNotes(tmp_path / "m.db")
    book, path = notes.book("one"), notes.path("one")
    asyncio.run(notes.load())
    book["a"], book["b"], book["a"] = 0.25, 0.5, 0.75
    del book["b"]
    assert path.read_text("utf-8").count("\n") == 4
    path.write_text(path.read_text("utf-8") + '{"key": "c", "val', "utf-8")
    asyncio.run(notes.load())
    assert dict(book) == {"a": 0.75}
    assert path.read_text("utf-8").count("\n") == 1


def test_a_file_does_not_grow_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_notes, "SPARE_LINES_MAX", 10)
    notes = FileNotes(tmp_path / "m.db")
    book = notes.book("one")
    asyncio.run(notes.load())
    for n in range(1000):
        book["a"] = n
    assert notes.path("one").read_text("utf-8").count("\n") <= 11
    asyncio.run(notes.load())
    assert dict(book) == {"a": 999}


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    notes = FileNotes(tmp_path / "m.db")
    notes.book("one")
    notes.path("one").mkdir()
    with pytest.raises(LogUnavailable, match=r"m\.db\.one cannot be read or written: Is a dir"):
        asyncio.run(notes.load())


async def test_notes_are_written_when_the_server_is_back(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    clock = AsyncioClock()
    async with PostgresNotes(database_url, clock=clock, schema="public", again_s=0.01) as notes:
        book = notes.book("one")
        await notes.load()
        other = await asyncpg.connect(database_url)
        with caplog.at_level(logging.WARNING, "muster"):
            await other.execute("ALTER TABLE notes RENAME TO away")
            book["a"] = 1
            await _until(lambda: _told(caplog))
        await other.execute("ALTER TABLE away RENAME TO notes")
        await _until(lambda: other.fetchval("SELECT count(*) > 0 FROM notes"))
        await other.close()


async def test_who_may_not_make_the_table_is_told_and_goes_on(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    other = await asyncpg.connect(database_url)
    name = f"poor_{secrets.token_hex(4)}"
    await other.execute(f"CREATE ROLE {name} LOGIN; REVOKE CREATE ON SCHEMA public FROM public")
    url = database_url.replace("postgres@", f"{name}@")
    assert url != database_url
    async with PostgresNotes(url, clock=AsyncioClock(), schema="public") as notes:
        book = notes.book("one")
        with caplog.at_level(logging.WARNING, "muster"):
            await notes.load()
        book["a"] = 1
    assert "let this user create tables in the schema public" in caplog.text
    assert await other.fetchval("SELECT to_regclass('notes') IS NULL")
    await other.close()
