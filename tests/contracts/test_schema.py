"""Versions of the schema, on either database: new, upgraded, too old and too new."""

import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, MetaData
from sqlalchemy.schema import CreateTable

from adapters.database import opening, schema
from adapters.database.event_log import DatabaseLog
from adapters.database.opening import open_database, upgrade_database
from adapters.database.tables import metadata
from controlplane.log.codec import to_rows
from controlplane.model.errors import LogUnavailable
from controlplane.model.rows import GENESIS
from tests.adapters.doomed_writer import event_at

Where = str | Path


@pytest.fixture(params=["sqlite", "postgres"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Where:
    if request.param == "sqlite":
        return tmp_path / "m.db"
    url: str = request.getfixturevalue("database_url")
    return url


async def made_of_version(where: Where, version: str) -> None:
    """A database as an earlier release made it."""
    database = await opening._connect(where, False, "muster", 5.0, 30.0)

    async def migrate(connection: Any) -> None:
        await connection.run_sync(schema.migrate, version)
        await database.backend.mark_as_ours(connection)

    await database.write(migrate)
    await database.close()


async def marked_as(where: Where, version: str) -> None:
    """The same database as if a release of another version had made it."""
    if isinstance(where, Path):
        with closing(sqlite3.connect(where)) as file, file:
            file.execute("UPDATE alembic_version SET version_num = ?", (version,))
    else:
        admin = await asyncpg.connect(where)
        await admin.execute("UPDATE muster.alembic_version SET version_num = $1", version)
        await admin.close()


async def inspected(where: Where, look: Callable[[Connection], Any]) -> Any:
    database = await open_database(where)
    try:
        return await database.read(lambda connection: connection.run_sync(look))
    finally:
        await database.close()


def test_every_version_has_a_migration() -> None:
    config = Config()
    config.set_main_option("script_location", str(schema.MIGRATIONS))
    scripts = ScriptDirectory.from_config(config)
    assert [s.revision for s in reversed(list(scripts.walk_revisions()))] == list(schema.VERSIONS)


async def test_migrations_lead_to_the_declared_tables(where: Where) -> None:
    await made_of_version(where, schema.NEWEST)

    def differences(connection: Connection) -> Any:
        options = {"compare_type": True, "target_metadata": metadata}
        return compare_metadata(MigrationContext.configure(connection, opts=options), metadata)

    assert await inspected(where, differences) == []


async def test_a_new_database_has_the_tables_that_migrations_would_make(
    where: Where, tmp_path: Path
) -> None:
    def tables(connection: Connection) -> list[str]:
        reflected = MetaData()
        reflected.reflect(connection)
        ddl = [str(CreateTable(t).compile(connection)) for t in reflected.sorted_tables]
        return sorted(ddl)

    new = await inspected(where, tables)
    other: Where = tmp_path / "other.db"
    if not isinstance(where, Path):
        other = f"{where}_migrated"
        admin = await asyncpg.connect(where)
        await admin.execute(f"CREATE DATABASE {other.rpartition('/')[2]}")
        await admin.close()
    await made_of_version(other, schema.NEWEST)

    assert await inspected(other, tables) == new


async def test_an_older_schema_is_refused_until_it_is_upgraded(where: Where) -> None:
    await made_of_version(where, "0001")
    for read_only in (False, True):
        with pytest.raises(LogUnavailable, match=r"version 0001, .* run `muster log upgrade`"):
            await open_database(where, read_only=read_only)

    assert await upgrade_database(where) == ("0001", schema.NEWEST)

    log = await DatabaseLog.open(where)
    await log.append([event_at(1, 1)], epoch=(await log.lead()).epoch)
    assert await log.read(0, 9) == to_rows([event_at(1, 1)], GENESIS)
    await log.close()
    assert await upgrade_database(where) == (schema.NEWEST, schema.NEWEST)


async def test_an_upgrade_keeps_what_the_log_holds(where: Where) -> None:
    log = await DatabaseLog.open(where)
    events = [event_at(n, 1) for n in range(1, 200)]
    await log.append(events, epoch=(await log.lead()).epoch)
    await log.close()
    if isinstance(where, Path):
        with closing(sqlite3.connect(where)) as file, file:
            file.executescript("DROP TABLE notes; DROP TABLE rank_logs")
    else:
        admin = await asyncpg.connect(where)
        await admin.execute("DROP TABLE muster.notes, muster.rank_logs")
        await admin.close()
    await marked_as(where, "0001")

    await upgrade_database(where)

    log = await DatabaseLog.open(where, read_only=True)
    assert await log.read(0, 999) == to_rows(events, GENESIS)
    await log.close()


@pytest.mark.parametrize("version", ["0003", "9999", "unheard of"])
async def test_a_newer_schema_is_refused_and_left_alone(where: Where, version: str) -> None:
    await (await open_database(where)).close()
    await marked_as(where, version)
    before = where.read_bytes() if isinstance(where, Path) else b""
    refused: list[Callable[[], Awaitable[Any]]] = [
        lambda: open_database(where),
        lambda: open_database(where, read_only=True),
        lambda: upgrade_database(where),
    ]

    for attempt in refused:
        with pytest.raises(LogUnavailable, match=f"schema version {version}.* or a newer one"):
            await attempt()

    assert before == (where.read_bytes() if isinstance(where, Path) else b"")


async def test_an_empty_database_has_nothing_to_upgrade(where: Where) -> None:
    with pytest.raises(LogUnavailable, match="no log was ever written"):
        await upgrade_database(where)
