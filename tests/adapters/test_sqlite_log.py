"""What only the SQLite log promises: refused files, damage that is noticed, and sudden death."""

import asyncio
import os
import random
import resource
import sqlite3
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from adapters.database.event_log import DatabaseLog
from adapters.database.opening import open_database
from controlplane.log.codec import from_row, to_rows
from controlplane.log.hash_chain import check_chain
from controlplane.model.errors import LogCorrupt, LogUnavailable
from controlplane.model.events import Recorded
from controlplane.model.rows import GENESIS
from controlplane.ports import Head, StateSnapshot
from tests.adapters.doomed_writer import event_at

# -------------------------------------------------------------------- files


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "muster.db"


def some(first: int, count: int) -> list[Recorded]:
    return [event_at(position, 1) for position in range(first, first + count)]


async def written(path: Path, count: int) -> Head:
    """A closed log of so many events."""
    log = await DatabaseLog.open(path)
    epoch = (await log.lead()).epoch
    await log.append(some(1, count), epoch=epoch)
    head = await log.head()
    await log.close()
    return head


async def refused(path: Path, *, read_only: bool = False) -> str:
    with pytest.raises(LogUnavailable) as refusal:
        await DatabaseLog.open(path, read_only=read_only)
    assert str(path) in str(refusal.value)
    return str(refusal.value)


async def test_a_file_that_is_no_database_is_refused_and_left_alone(path):
    path.write_text("a letter to the editor, long enough to be a header " * 40)
    before = path.read_bytes()

    assert "no SQLite database" in await refused(path)
    assert "no SQLite database" in await refused(path, read_only=True)
    assert path.read_bytes() == before


async def test_the_database_of_another_program_is_refused_and_left_alone(path):
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE events (name TEXT)")
    before = path.read_bytes()

    assert "another program's database" in await refused(path)
    assert "another program's database" in await refused(path, read_only=True)
    assert path.read_bytes() == before


async def test_a_folder_is_refused(tmp_path):
    assert "is a file in a folder that exists" in await refused(tmp_path)


async def test_a_file_in_a_folder_that_does_not_exist_is_refused(tmp_path):
    assert "is a file in a folder that exists" in await refused(tmp_path / "no" / "muster.db")


async def test_a_missing_file_cannot_be_opened_to_read_and_is_not_created(path):
    assert "is a file in a folder that exists" in await refused(path, read_only=True)
    assert not path.exists()


async def test_an_empty_file_becomes_a_log_but_cannot_be_read_as_one(path):
    path.touch()
    assert "no log was ever written" in await refused(path, read_only=True)

    log = await DatabaseLog.open(path)

    assert await log.head() == Head(0, GENESIS, 0)
    await log.close()


@pytest.mark.parametrize("name", ["with space.db", "100%.db", "what?#.db", "ünï✓.db"])
async def test_a_file_may_have_any_name(tmp_path, name):
    head = await written(tmp_path / name, 2)

    log = await DatabaseLog.open(tmp_path / name, read_only=True)

    assert await log.head() == head
    await log.close()


async def test_concurrent_opens_of_a_new_file_open_the_same_log(path):
    logs = await asyncio.gather(*(DatabaseLog.open(path) for _ in range(8)))

    heads = await asyncio.gather(*(log.lead() for log in logs))

    assert sorted(head.epoch for head in heads) == list(range(1, 9))
    for log in logs:
        await log.close()


@contextmanager
def unprivileged() -> Iterator[None]:
    """Root may write everything, so tests about permissions run as another user."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everyone can enter, unlike pytest's."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield Path(name)
        os.chmod(name, 0o755)


async def test_a_file_that_may_not_be_written_is_refused(open_folder):
    path = open_folder / "muster.db"
    head = await written(path, 2)
    path.chmod(0o444)
    os.chmod(open_folder, 0o555)

    with unprivileged():
        assert "let this user write" in await refused(path)
        # At rest and out of reach for SQLite's locks, it can be read all the same.
        log = await DatabaseLog.open(path, read_only=True)
        assert await log.head() == head
        assert len(await log.read(0, 10)) == 2
        await log.close()

    assert sorted(os.listdir(open_folder)) == ["muster.db"]


async def test_a_file_that_may_not_be_read_is_refused(open_folder):
    path = open_folder / "muster.db"
    await written(path, 2)
    path.chmod(0)

    with unprivileged():
        assert "this user may read and write both" in await refused(path)
        assert "this user may read and write both" in await refused(path, read_only=True)


async def test_a_log_is_private_to_users_who_may_read_its_file(path):
    path.touch(mode=0o600)
    log = await DatabaseLog.open(path)

    for file in path.parent.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file

    await log.close()


# -------------------------------------------------------------------- readers and rivals


async def test_a_reader_follows_a_live_log_without_disturbing_it(path):
    writer = await DatabaseLog.open(path)
    epoch = (await writer.lead()).epoch
    reader = await DatabaseLog.open(path, read_only=True)

    for n in range(20):
        await writer.append(some(1 + 5 * n, 5), epoch=epoch)
        assert await reader.read(5 * n, 100) == to_rows(some(1, 5 + 5 * n), GENESIS)[5 * n :]
    await reader.close()
    await writer.append(some(101, 1), epoch=epoch)
    await writer.close()

    assert sorted(os.listdir(path.parent)) == ["muster.db"]


async def test_what_only_reads_cannot_write(path):
    await written(path, 2)
    log = await DatabaseLog.open(path, read_only=True)

    for attempt in (
        log.lead(),
        log.append(some(3, 1), epoch=1),
        log.save_snapshot(StateSnapshot(1, b"")),
    ):
        with pytest.raises(LogUnavailable, match="only read the log"):
            await attempt

    await log.close()


async def test_a_closed_log_refuses_every_call(path):
    log = await DatabaseLog.open(path)
    await log.close()

    with pytest.raises(LogUnavailable, match="was closed"):
        await log.head()


async def test_what_was_asked_before_the_log_closed_is_done_and_nothing_after(path):
    log = await DatabaseLog.open(path)
    epoch = (await log.lead()).epoch

    done = await asyncio.gather(
        log.append(some(1, 3), epoch=epoch),
        log.close(),
        log.head(),
        log.append(some(4, 1), epoch=epoch),
        return_exceptions=True,
    )

    assert [type(outcome) for outcome in done[:3]] == [type(None), type(None), LogUnavailable]
    log = await DatabaseLog.open(path)
    assert (await log.head()).position == (3 if isinstance(done[3], LogUnavailable) else 4)
    await log.close()


async def test_reads_do_not_wait_for_a_writer_that_waits(path):
    log = await DatabaseLog.open(path)
    epoch = (await log.lead()).epoch
    await log.append(some(1, 3), epoch=epoch)
    rival = sqlite3.connect(path, isolation_level=None)
    rival.execute("BEGIN IMMEDIATE")

    appending = asyncio.create_task(log.append(some(4, 1), epoch=epoch))
    await asyncio.sleep(0)
    rows = await log.read(0, 10)

    assert len(rows) == 3
    assert not appending.done()
    rival.execute("ROLLBACK")
    rival.close()
    await appending
    assert len(await log.read(0, 10)) == 4
    await log.close()


async def test_a_log_that_another_program_keeps_locked_is_unavailable_for_now(path):
    log = await DatabaseLog.open(path, lock_s_max=0.01)
    epoch = (await log.lead()).epoch
    with closing(sqlite3.connect(path, isolation_level=None)) as rival:
        rival.execute("BEGIN IMMEDIATE")
        with pytest.raises(LogUnavailable, match="another program keeps it locked"):
            await log.append(some(1, 1), epoch=epoch)

    await log.append(some(1, 1), epoch=epoch)
    await log.close()


async def test_a_cancelled_caller_leaves_the_log_intact(path):
    log = await DatabaseLog.open(path)
    epoch = (await log.lead()).epoch

    appending = asyncio.create_task(log.append(some(1, 50), epoch=epoch))
    await asyncio.sleep(0)
    appending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await appending

    # The append was under way and cannot be called back; the next one stands behind it.
    assert (await log.lead()).position == 50
    await log.close()


def test_a_log_that_was_not_closed_does_not_keep_the_process_alive(path):
    forgetful = (
        "import asyncio; from pathlib import Path; from adapters.database.event_log import DatabaseLog\n"
        f"async def main(): await (await DatabaseLog.open(Path({str(path)!r}))).lead()\n"
        "asyncio.run(main())"
    )

    assert subprocess.run([sys.executable, "-c", forgetful], timeout=30).returncode == 0


# -------------------------------------------------------------------- a disk that fails


async def test_an_append_is_synced_before_it_is_acknowledged(path):
    # No test without a power switch can see this, so the settings that SQLite asks for must do.
    database = await open_database(path)

    async def setting(name: str) -> object:
        asked = await database.write(lambda writer: writer.exec_driver_sql(f"PRAGMA {name}"))
        return asked.scalar_one()

    assert await setting("journal_mode") == "wal"
    assert await setting("synchronous") == 2
    await database.close()


@contextmanager
def files_no_larger_than(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_disk_that_takes_no_more_loses_nothing_and_is_used_again_later(path):
    log = await DatabaseLog.open(path)
    epoch = (await log.lead()).epoch
    await log.append(some(1, 10), epoch=epoch)
    before = await log.head(), await log.read(0, 1000)

    with files_no_larger_than(100_000):
        with pytest.raises(LogUnavailable, match="disk"):
            await log.append(some(11, 3000), epoch=epoch)
        assert (await log.head(), await log.read(0, 1000)) == before

    await log.append(some(11, 3000), epoch=epoch)
    assert await log.read(0, 9999) == to_rows(some(1, 3010), GENESIS)
    await log.close()


async def test_a_batch_that_fails_halfway_leaves_nothing_behind(path):
    log = await DatabaseLog.open(path)
    epoch = (await log.lead()).epoch
    await log.append(some(1, 10), epoch=epoch)
    before = await log.head(), await log.read(0, 1000)

    with closing(sqlite3.connect(path)) as saboteur, saboteur:
        # The first hundred go in, and the one behind them cannot.
        saboteur.execute(
            "CREATE TRIGGER broken BEFORE INSERT ON events WHEN new.position = 111 "
            "BEGIN SELECT raise(ABORT, 'no such place'); END"
        )
    with pytest.raises(LogCorrupt, match="no such place"):
        await log.append(some(11, 101), epoch=epoch)
    with closing(sqlite3.connect(path)) as saboteur, saboteur:
        saboteur.execute("DROP TRIGGER broken")

    assert (await log.head(), await log.read(0, 1000)) == before
    await log.append(some(11, 101), epoch=epoch)
    assert await log.read(0, 1000) == to_rows(some(1, 111), GENESIS)
    await log.close()


# -------------------------------------------------------------------- damage


async def verified(path: Path, pinned: Head) -> list:
    """All rows, checked as far as possible with a head that was noted elsewhere."""
    log = await DatabaseLog.open(path, read_only=True)
    rows: list = []
    try:
        while page := await log.read(len(rows), 64):
            previous = rows[-1].hash if rows else GENESIS
            for row in check_chain(page, after=len(rows), previous=previous):
                rows.append(row)  # noqa: PERF402 - those before the damage are wanted
        if (len(rows), rows[-1].hash if rows else GENESIS) != pinned[:2]:
            raise LogCorrupt(len(rows) + 1, "missing")
        return rows
    except LogCorrupt as damage:
        damage.rows = rows
        raise
    finally:
        await log.close()


async def damaged_by(path: Path, statement: str, pinned: Head) -> LogCorrupt:
    with closing(sqlite3.connect(path)) as vandal, vandal:
        vandal.execute(statement)
    with pytest.raises(LogCorrupt) as damage:
        await verified(path, pinned)
    return damage.value


@pytest.mark.parametrize(
    ("statement", "position"),
    [
        ("""UPDATE events SET payload = '{"node":"n5","message":"x"}' WHERE position = 5""", 5),
        ("UPDATE events SET payload = payload || ' ' WHERE position = 5", 5),
        ("UPDATE events SET at = at + 1 WHERE position = 5", 5),
        ("UPDATE events SET actor = 'eve' WHERE position = 5", 5),
        ("UPDATE events SET version = 2 WHERE position = 5", 5),
        ("UPDATE events SET hash = zeroblob(32) WHERE position = 5", 5),
        ("UPDATE events SET hash = 'text' WHERE position = 5", 5),
        ("UPDATE events SET stream = x'ff' WHERE position = 5", 5),
        ("UPDATE events SET stream = CAST(x'ff' AS TEXT) WHERE position = 5", 5),
        ("UPDATE events SET position = 25 WHERE position = 5", 5),
        ("DELETE FROM events WHERE position = 5", 5),
        ("DELETE FROM events WHERE position > 15", 16),
        ("DELETE FROM events", 1),
        ("DROP TABLE events", 1),
        ("INSERT INTO events SELECT 21, step, ordinal, at, stream, type, version, payload, command, "
         "cause, actor, hash FROM events WHERE position = 20", 21),
    ],
)  # fmt: skip
async def test_the_first_position_that_was_tampered_with_is_named(path, statement, position):
    pinned = await written(path, 20)

    damage = await damaged_by(path, statement, pinned)

    assert damage.position == position
    assert damage.rows == to_rows(some(1, position - 1), GENESIS)


async def test_rows_that_changed_places_are_noticed(path):
    pinned = await written(path, 20)
    swap = "UPDATE events SET position = CASE position WHEN {0} THEN {1} ELSE {2} END WHERE {3}"

    with closing(sqlite3.connect(path)) as vandal, vandal:
        vandal.execute(swap.format(5, -5, 5, "position = 5"))
        vandal.execute(swap.format(9, 5, 9, "position = 9"))
        vandal.execute(swap.format(-5, 9, 9, "position = -5"))

    with pytest.raises(LogCorrupt, match="position 5"):
        await verified(path, pinned)


@pytest.mark.parametrize(
    ("statement", "position"),
    [
        ("DELETE FROM events WHERE position > 15", 16),
        ("DELETE FROM events", 1),
        ("UPDATE head SET position = 19", 20),
        ("UPDATE head SET position = 'many'", 0),
        ("UPDATE head SET hash = zeroblob(32)", 20),
        ("DELETE FROM head", 0),
        ("DROP TABLE head", 0),
    ],
)
async def test_a_log_whose_end_does_not_fit_its_head_cannot_be_led(path, statement, position):
    await written(path, 20)
    with closing(sqlite3.connect(path)) as vandal, vandal:
        vandal.execute(statement)
    log = await DatabaseLog.open(path)

    with pytest.raises(LogCorrupt) as damage:
        await log.lead()

    assert damage.value.position == position
    await log.close()


async def test_a_damaged_snapshot_is_passed_over(path):
    log = await DatabaseLog.open(path)
    for position in (5, 7, 9):
        await log.save_snapshot(StateSnapshot(position, b"world %d" % position))
    await log.close()
    with closing(sqlite3.connect(path)) as vandal, vandal:
        vandal.execute("UPDATE snapshots SET body = 'text' WHERE position = 9")
        vandal.execute("UPDATE snapshots SET body = x'00' WHERE position = 7")

    log = await DatabaseLog.open(path)

    assert await log.latest_snapshot() == StateSnapshot(5, b"world 5")
    await log.close()


async def test_damage_that_the_error_message_quotes_is_noticed(path):
    await written(path, 3)
    with closing(sqlite3.connect(path)) as vandal, vandal:
        vandal.execute("PRAGMA writable_schema = ON")
        vandal.execute(
            "UPDATE sqlite_master SET name = CAST(x'd5ff41' AS TEXT), sql = 'CREATE TABLE (' "
            "WHERE name = 'notes'"
        )

    for read_only in (False, True):
        with pytest.raises(LogCorrupt, match="is damaged"):
            await DatabaseLog.open(path, read_only=read_only)


async def test_a_file_that_was_cut_short_is_noticed(path):
    pinned = await written(path, 300)
    whole = path.read_bytes()

    for length in range(1, len(whole), 2048):
        path.write_bytes(whole[:length])
        with pytest.raises((LogCorrupt, LogUnavailable)):
            await verified(path, pinned)


async def flip_bits(path: Path, *, flips: int, seed: int) -> None:
    # So many that most of the file's pages hold events.
    pinned = await written(path, 600)
    original, dice, noticed = to_rows(some(1, 600), GENESIS), random.Random(seed), 0
    for _ in range(flips):
        offset, bit = dice.randrange(size(path)), dice.randrange(8)
        flip(path, offset, bit)
        first_bad, rows = await first_bad_position(path, pinned)
        flip(path, offset, bit)
        noticed += first_bad is not None
        # Before the bad position, if one is known, everything must be as it was.
        good = 600 if first_bad is None else max(first_bad - 1, 0)
        assert rows == original[:good], (seed, offset, bit, first_bad)
    assert noticed > flips / 2
    assert await verified(path, pinned) == original


async def first_bad_position(path: Path, pinned: Head) -> tuple[int | None, list]:
    """That position and the rows before it; 0 if already opening fails, None if all is well."""
    try:
        return None, await verified(path, pinned)
    except LogUnavailable:
        return 0, []
    except LogCorrupt as damage:
        return damage.position, getattr(damage, "rows", [])


def size(path: Path) -> int:
    return path.stat().st_size


def flip(path: Path, offset: int, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        (byte,) = file.read(1)
        file.seek(offset)
        file.write(bytes([byte ^ 1 << bit]))


async def test_no_flipped_bit_goes_unnoticed(path):
    await flip_bits(path, flips=500, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(2, 6))
async def test_no_flipped_bit_of_thousands_goes_unnoticed(path, seed):
    await flip_bits(path, flips=2000, seed=seed)


# -------------------------------------------------------------------- sudden death


async def kill_writers(path: Path, *, kills: int, seed: int) -> None:
    """Kills one writer after the other on the same file, and looks at it each time."""
    dice, expected, cut_short = random.Random(seed), [], 0
    for epoch in range(1, kills + 1):
        acknowledged, tried = killed_writer(path, dice)
        log = await DatabaseLog.open(path)
        head = await log.head()
        assert head.epoch == epoch, seed
        # What was not acknowledged may be there all the same, but then all of it.
        assert head.position in (acknowledged, tried), (seed, epoch)
        cut_short += tried > acknowledged
        expected += [event_at(n, epoch) for n in range(len(expected) + 1, head.position + 1)]
        rows = await log.read(0, 1_000_000)
        assert [from_row(row) for row in rows] == expected, (seed, epoch)
        assert list(check_chain(rows, after=0, previous=GENESIS))[-1][-1] == head.hash
        await log.close()
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert cut_short, f"no writer was killed during an append; seed {seed}"


def killed_writer(path: Path, dice: random.Random) -> tuple[int, int]:
    """The last acknowledged and the last tried position of a writer that was killed."""
    command = [sys.executable, "-m", "tests.adapters.doomed_writer", path, str(dice.random())]
    positions, lines_max = {"trying": 0, "acknowledged": 0}, dice.randint(2, 24)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        for number, line in enumerate(writer.stdout, 1):
            if number == lines_max:
                # An append takes about a millisecond; death may come anywhere in it.
                time.sleep(dice.uniform(0, 0.002))
                writer.kill()
            if line.endswith("\n"):
                what, position = line.split()
                positions[what] = int(position)
    return positions["acknowledged"], positions["trying"]


@pytest.mark.timeout(300)
async def test_a_killed_writer_loses_nothing_that_was_acknowledged(path):
    await kill_writers(path, kills=24, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(2, 6))
async def test_hundreds_of_killed_writers_lose_nothing_that_was_acknowledged(path, seed):
    await kill_writers(path, kills=100, seed=seed)
