"""Reading a log as columns: the same values as in its rows, or none that are believed."""

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from adapters.sqlite_log import SqliteLog, columns
from adapters.sqlite_log.strung import COLUMNS, taken_apart
from controlplane.chain import follows, page_of
from controlplane.codec import GENESIS, link, to_rows
from controlplane.errors import LogCorrupt
from controlplane.events import EngineStarted, Event, JobSucceeded, NodeReported, Recorded
from controlplane.model import NodeInfo
from controlplane.replay import rebuild, state_hash

NOW = 1_700_001_605.2713017


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "muster.db"


def nodes(first: int, count: int, at: float = NOW) -> list[Recorded]:
    dice = random.Random(first)
    return [
        Recorded(n, at + n + dice.random(), _reported(f"n{n % 7}"), "" if n % 3 else f"c{n}", "ann")
        for n in range(first, first + count)
    ]


def _reported(name: str) -> Event:
    return NodeReported(name, NodeInfo(name, 8))


async def log_of(path: Path, events: list[Recorded]) -> SqliteLog:
    log = await SqliteLog.open(path)
    await log.append(events, epoch=(await log.lead()).epoch)
    return log


async def believed(log: SqliteLog) -> int:
    """How far pages can be believed, each of which must hold what the rows hold."""
    previous, position = GENESIS, 0
    for page in await log.read_pages(0, 10_000):
        if not follows(page, previous):
            break
        rows = await log.read(page.after, page.last - page.after)
        assert page == page_of(rows)
        previous, position = page.hash, page.last
    return position


async def test_pages_hold_what_the_rows_hold(path):
    log = await log_of(path, nodes(1, 2 * columns.PAGE_ROWS + 7))
    assert await believed(log) == 2 * columns.PAGE_ROWS + 7
    await log.close()


async def test_no_more_is_read_than_was_asked_for(path):
    log = await log_of(path, nodes(1, 30))
    (page,) = await log.read_pages(4, 20)
    assert (page.after, page.last) == (4, 24)
    assert await log.read_pages(30, 20) == []
    await log.close()


@pytest.mark.parametrize(
    "strange",
    [
        Recorded(11, NOW + 50, _reported("two\nlines")),
        Recorded(11, NOW + 50, _reported("n"), "cause\n", "two\nlines"),
    ],
)
async def test_line_breaks_in_values_are_not_taken_for_the_end_of_one(path, strange):
    log = await log_of(path, [*nodes(1, 10), strange, *nodes(12, 10, NOW + 99)])
    assert await believed(log) == 0
    rebuilt = await rebuild(log)
    assert rebuilt.world.position == 21
    assert rebuilt.hash == (await log.head()).hash
    await log.close()


async def test_times_that_cannot_be_carried_over_are_read_from_the_rows(path):
    log = await log_of(path, nodes(1, 10, at=0.1))
    # A function in C gets them as they are.
    assert await believed(log) == (0 if "group_concat" in COLUMNS else 10)
    assert (await rebuild(log)).world.at == nodes(1, 10, at=0.1)[-1].at
    await log.close()


@pytest.mark.parametrize("at", [-NOW, 2.0**22, 2.0**22 + 1 / 3, 2.0**31 - 1 / 7, 2.0**33 - 100.7])
async def test_other_times_are_carried_over_to_the_last_bit(path, at):
    log = await log_of(path, nodes(1, 10, at=at))
    assert await believed(log) == 10
    await log.close()


@pytest.mark.parametrize(
    "found", [None, 3, b"", (), ("x",), (b"",), (b"x" * 80,), (b"\xff" * 80,), (b"\x00" * 71,)]
)
def test_what_is_no_answer_is_not_taken_apart(found):
    with pytest.raises((TypeError, ValueError)):
        taken_apart(found)


async def test_versions_may_differ(path):
    events = nodes(1, 10)
    previous, rows = GENESIS, []
    for recorded in events:
        ((*row, _),) = to_rows([recorded], previous)
        row[4] = 1 + recorded.position % 2
        previous = link(previous, *row)
        rows.append((*row[:5], row[5].decode(), *row[6:], previous))
    await (await SqliteLog.open(path)).close()
    with closing(sqlite3.connect(path)) as old, old:
        old.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
    log = await SqliteLog.open(path)
    assert await believed(log) == 10
    (page,) = await log.read_pages(0, 10)
    assert page.versions == [2, 1] * 5
    await log.close()


@pytest.mark.parametrize(
    "change",
    [
        "at = 'noon'",
        "at = x'00'",
        "at = 1e300",
        "version = 'one'",
        "version = 1.5",
        "version = -1",
        "stream = x'6e31'",
        "stream = x'ff'",
        "type = CAST(x'ff' AS TEXT)",
        "payload = CAST(payload AS BLOB)",
        "payload = 7",
        "payload = ''",
        "cause = x''",
        "actor = CAST(x'616e6e00' AS TEXT)",
        "hash = CAST(hash AS TEXT)",
        "hash = x''",
        "hash = hash || x'00'",
    ],
)
async def test_values_of_other_types_mean_what_they_mean_in_a_row(path, change, monkeypatch):
    await (await log_of(path, nodes(1, 30))).close()
    with closing(sqlite3.connect(path)) as vandal, vandal:
        vandal.execute(f"UPDATE events SET {change} WHERE position = 17")

    async def outcome() -> str:
        log = await SqliteLog.open(path)
        try:
            return state_hash((await rebuild(log)).world)
        except LogCorrupt as error:
            return str(error)
        finally:
            await log.close()

    found = await outcome()
    monkeypatch.setattr(columns, "COLUMNS", "SELECT nothing")
    assert await outcome() == found


async def test_a_gap_ends_what_is_read(path):
    await (await log_of(path, nodes(1, 30))).close()
    with closing(sqlite3.connect(path)) as vandal, vandal:
        vandal.execute("DELETE FROM events WHERE position = 12")
    log = await SqliteLog.open(path)
    assert await believed(log) == 0
    with pytest.raises(LogCorrupt, match="position 12"):
        await rebuild(log)
    await log.close()


async def test_rows_without_hashes_are_nothing_to_go_by(path):
    await (await log_of(path, nodes(1, 30))).close()
    with closing(sqlite3.connect(path)) as vandal, vandal:
        vandal.execute("UPDATE events SET hash = x''")
        assert columns.read_pages(vandal, 0, 30) == []


async def test_no_flipped_bit_is_believed(path):
    events = [Recorded(1, NOW, EngineStarted(1, "0.1.0")), *nodes(2, 199)]
    await (await log_of(path, events)).close()
    dice, good, unbelieved = random.Random(3), path.read_bytes(), 0
    whole = page_of(to_rows(events, GENESIS))
    for _ in range(300):
        bad = bytearray(good)
        bad[dice.randrange(len(good))] ^= 1 << dice.randrange(8)
        path.write_bytes(bad)
        with closing(sqlite3.connect(path)) as connection:
            pages = columns.read_pages(connection, 0, 200)
        if len(pages) == 1 and follows(pages[0], GENESIS):
            assert pages[0] == whole or pages[0].last < 200
        else:
            unbelieved += 1
    assert unbelieved > 100


async def test_what_cannot_have_happened_is_named_by_its_position(path):
    events = [*nodes(1, 10), Recorded(11, NOW + 50, JobSucceeded("j")), *nodes(12, 5, NOW + 99)]
    log = await log_of(path, events)
    with pytest.raises(LogCorrupt, match="this cannot have happened") as found:
        await rebuild(log)
    assert found.value.position == 11
    await log.close()


async def test_a_bad_row_behind_an_impossible_one_is_not_named_first(path):
    events = [*nodes(1, 10), Recorded(11, NOW + 50, JobSucceeded("j")), *nodes(12, 5, NOW + 99)]
    await (await log_of(path, events)).close()
    with closing(sqlite3.connect(path)) as vandal, vandal:
        vandal.execute("UPDATE events SET actor = 'bob' WHERE position = 14")
    log = await SqliteLog.open(path)
    with pytest.raises(LogCorrupt) as found:
        await rebuild(log)
    assert found.value.position == 11
    await log.close()


async def test_pages_and_rows_give_the_same_state(path, monkeypatch):
    log = await log_of(path, nodes(1, 1_200))
    by_pages = state_hash((await rebuild(log)).world)
    monkeypatch.setattr(columns, "COLUMNS", "SELECT nothing")
    assert state_hash((await rebuild(log)).world) == by_pages
    await log.close()
