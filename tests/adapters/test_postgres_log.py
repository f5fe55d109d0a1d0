"""What only the PostgreSQL log promises: replicas that start together, and lost connections."""

import asyncio
from itertools import count
from urllib.parse import urlsplit

import asyncpg
import pytest
from sqlalchemy import text

from adapters.database.event_log import DatabaseLog
from adapters.database.opening import open_database
from controlplane.log.codec import to_rows
from controlplane.model.errors import LogCorrupt, LogUnavailable
from controlplane.model.events import NodeLost, Recorded
from controlplane.model.rows import GENESIS
from controlplane.ports import Head, StateSnapshot

SCHEMAS = count(1)


@pytest.fixture
def schema() -> str:
    return f'own "log" {next(SCHEMAS)}'


@pytest.fixture
async def log(postgres_url, schema):
    log = await DatabaseLog.open(postgres_url, schema_name=schema)
    yield log
    await log.close()


@pytest.fixture
async def admin(postgres_url, schema):
    """Another client of the same tables."""
    quoted = schema.replace('"', '""')
    connection = await asyncpg.connect(
        postgres_url, server_settings={"search_path": f'"{quoted}"', "application_name": "admin"}
    )
    yield connection
    await connection.close()


def some(first: int, count: int) -> list[Recorded]:
    return [Recorded(p, p / 8, NodeLost("n1", detail=f"{p}")) for p in range(first, first + count)]


async def test_concurrent_opens_of_a_new_schema_open_the_same_log(postgres_url, schema):
    logs = await asyncio.gather(
        *(DatabaseLog.open(postgres_url, schema_name=schema) for _ in range(8))
    )

    heads = await asyncio.gather(*(log.lead() for log in logs))

    assert sorted(head.epoch for head in heads) == list(range(1, 9))
    for log in logs:
        await log.close()


async def test_logs_in_two_schemas_know_nothing_of_each_other(postgres_url, log):
    other = await DatabaseLog.open(postgres_url, schema_name="another")
    await log.append(some(1, 3), epoch=(await log.lead()).epoch)

    assert await other.head() == Head(0, GENESIS, 0)
    await other.close()


async def test_a_reader_creates_nothing(postgres_url, schema, admin):
    with pytest.raises(LogUnavailable, match="no log was ever written"):
        await DatabaseLog.open(postgres_url, schema_name=schema, read_only=True)

    assert await admin.fetchval("SELECT count(*) FROM pg_namespace WHERE nspname = $1", schema) == 0


async def test_a_schema_of_another_program_is_refused_and_left_alone(postgres_url, schema, admin):
    quoted = schema.replace('"', '""')
    await admin.execute(f'CREATE SCHEMA "{quoted}"; CREATE TABLE events (name text)')

    with pytest.raises(LogUnavailable, match="holds something else"):
        await DatabaseLog.open(postgres_url, schema_name=schema)

    assert await admin.fetchval("SELECT to_regclass('head') IS NULL")


@pytest.mark.parametrize(
    ("change", "advice"),
    [
        ({"netloc": "postgres:secret@127.0.0.1:1"}, "cannot be reached"),
        ({"netloc": "unknown:secret@{address}"}, "does not know this user"),
        ({"path": "/nowhere"}, "does not exist"),
    ],
    ids=["server", "user", "database"],
)
async def test_a_wrong_address_is_distinguished_from_a_wrong_name(postgres_url, change, advice):
    url = urlsplit(postgres_url)
    address = url.netloc.rpartition("@")[2]
    wrong = url._replace(**{part: text.format(address=address) for part, text in change.items()})

    with pytest.raises(LogUnavailable, match=advice) as refusal:
        await DatabaseLog.open(wrong.geturl())

    assert "secret" not in str(refusal.value)


async def test_a_database_that_cannot_hold_all_text_is_refused(postgres_url):
    async with asyncpg.create_pool(postgres_url, min_size=1, max_size=1) as pool:
        await pool.execute("CREATE DATABASE old TEMPLATE template0 ENCODING LATIN1 LOCALE 'C'")

    with pytest.raises(LogUnavailable, match="create a database in UTF8"):
        await DatabaseLog.open(postgres_url[: -len("postgres")] + "old")


async def cut_off(admin) -> None:
    """Ends every connection of every log, as a restart of the server would."""
    await admin.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'muster'"
    )


async def test_a_connection_lost_between_appends_is_made_again(log, admin):
    epoch = (await log.lead()).epoch
    await log.append(some(1, 3), epoch=epoch)
    await cut_off(admin)

    outcomes = []
    for _ in range(2):
        # The first caller that notices may fail; the next one gets a new connection.
        try:
            outcomes.append(await log.lead())
        except LogUnavailable:
            continue
    await log.append(some(4, 1), epoch=outcomes[-1].epoch)

    assert await log.read(0, 10) == to_rows(some(1, 4), GENESIS)


async def test_a_connection_lost_during_an_append_makes_the_log_unavailable(log, admin):
    epoch = (await log.lead()).epoch
    await log.append(some(1, 3), epoch=epoch)
    async with admin.transaction():
        # The append waits for this lock, so it is under way for certain.
        await admin.execute("SELECT * FROM head FOR UPDATE")
        appending = asyncio.create_task(log.append(some(4, 2), epoch=epoch))
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        while not await admin.fetchval(waiting):
            pass
        await cut_off(admin)
        with pytest.raises(LogUnavailable):
            await appending

    head = await log.lead()
    assert head.position == 3
    await log.append(some(4, 2), epoch=head.epoch)
    assert await log.read(0, 10) == to_rows(some(1, 5), GENESIS)


async def test_an_append_that_takes_too_long_makes_the_log_unavailable(postgres_url, schema, admin):
    log = await DatabaseLog.open(postgres_url, schema_name=schema, timeout_s=0.3)
    epoch = (await log.lead()).epoch
    async with admin.transaction():
        await admin.execute("SELECT * FROM head FOR UPDATE")
        with pytest.raises(LogUnavailable, match="TimeoutError"):
            await log.append(some(1, 1), epoch=epoch)

    # Whether it was called back in time is not known before an engine leads again.
    head = await log.lead()
    assert head.position in (0, 1)
    await log.append(some(head.position + 1, 1), epoch=head.epoch)
    assert await log.read(0, 10) == to_rows(some(1, head.position + 1), GENESIS)
    await log.close()


async def test_an_append_is_durable_whatever_the_server_s_default(postgres_url, log, admin):
    await admin.execute("ALTER ROLE postgres SET synchronous_commit = off")
    try:
        database = await open_database(postgres_url, schema_name="durable")
        asked = text("SHOW synchronous_commit")
        assert await database.write(lambda writer: writer.scalar(asked)) == "on"
        await database.close()
    finally:
        await admin.execute("ALTER ROLE postgres RESET synchronous_commit")


async def test_a_listener_is_woken_by_an_append_of_another(postgres_url, schema, log):
    other = await DatabaseLog.open(postgres_url, schema_name=schema)
    woken = asyncio.Event()
    await other.listen(woken.set)

    await log.append(some(1, 1), epoch=(await log.lead()).epoch)

    await asyncio.wait_for(woken.wait(), 10)
    await other.close()


@pytest.mark.parametrize(
    ("statement", "position"),
    [
        ("DELETE FROM events WHERE position > 3", 4),
        ("UPDATE head SET position = 4", 5),
        ("UPDATE head SET hash = '\\x00'", 5),
    ],
)
async def test_a_log_whose_end_does_not_fit_its_head_cannot_be_led(log, admin, statement, position):
    await log.append(some(1, 5), epoch=(await log.lead()).epoch)
    await admin.execute(statement)

    with pytest.raises(LogCorrupt) as damage:
        await log.lead()

    assert damage.value.position == position
    assert (await log.head()).epoch == 1


async def test_a_log_without_a_head_cannot_be_led(log, admin):
    await admin.execute("DELETE FROM head")

    for question in (log.head, log.lead):
        with pytest.raises(LogCorrupt, match="head is missing"):
            await question()


async def test_a_damaged_snapshot_is_passed_over(log, admin):
    await log.save_snapshot(StateSnapshot(5, b"world 5"))
    await log.save_snapshot(StateSnapshot(7, b"world 7"))
    await admin.execute("UPDATE snapshots SET body = '\\x00' WHERE position = 7")

    assert await log.latest_snapshot() == StateSnapshot(5, b"world 5")
