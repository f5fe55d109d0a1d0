"""Versions of the schema: a database is opened at the newest version or not at all.

A new database gets the tables of `tables` and the newest version at once. An older one is brought up by
the migrations, when a person asks for it (`muster log upgrade`); a newer one is refused. Alembic is imported
only to upgrade: reading the version is one SELECT.
"""

from pathlib import Path

from sqlalchemy import Connection, insert, inspect, select
from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.database.database import Backend, Database
from adapters.database.tables import head, metadata, schema_version
from controlplane.model.errors import LogUnavailable
from controlplane.model.rows import GENESIS

MIGRATIONS = Path(__file__).with_name("migrations")
# Every version that this release can upgrade from, then the one that it reads and writes.
VERSIONS = ("0001", "0002")
NEWEST = VERSIONS[-1]


async def prepare(database: Database, *, read_only: bool) -> None:
    """Create the tables in an empty database; raises LogUnavailable for any other version."""
    backend = database.backend
    if not read_only:
        await database.write(lambda connection: _create_if_empty(backend, connection))
    _require_newest(backend, await database.read(version_of))


async def upgrade(database: Database) -> tuple[str, str]:
    """Bring the schema to the newest version; returns the version before and the one now.

    All migrations are one transaction. Raises LogUnavailable if the database is empty or too new.
    """
    before = await database.read(version_of)
    _require_known(database.backend, before)
    await database.write(lambda connection: _migrate(database.backend, connection))
    return before, NEWEST


async def version_of(connection: AsyncConnection) -> str:
    """The schema's version: "" if there are no tables, "none" if they are not ours."""
    tables = await connection.run_sync(lambda sync: inspect(sync).get_table_names())
    if not tables:
        return ""
    if schema_version.name not in tables:
        return "none"
    return str(await connection.scalar(select(schema_version.c.version_num)))


async def _create_if_empty(backend: Backend, connection: AsyncConnection) -> None:
    await backend.lock_schema(connection)
    if await version_of(connection) == "":
        await connection.run_sync(metadata.create_all, checkfirst=False)
        await connection.execute(
            insert(head).values(one=1, position=0, hash=GENESIS, epoch=0),
        )
        await connection.execute(insert(schema_version).values(version_num=NEWEST))
        await backend.mark_as_ours(connection)


async def _migrate(backend: Backend, connection: AsyncConnection) -> None:
    await backend.lock_schema(connection)
    await connection.run_sync(migrate, NEWEST)


def migrate(connection: Connection, version: str) -> None:
    """Run the migrations up to `version` inside the transaction of `connection`."""
    from alembic import command
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    command.upgrade(config, version)


def _require_newest(backend: Backend, version: str) -> None:
    _require_known(backend, version)
    if version != NEWEST:
        raise LogUnavailable(
            f"{backend} has schema version {version}, and this release of Muster needs {NEWEST}; "
            "stop its control planes and run `muster log upgrade`"
        )


def _require_known(backend: Backend, version: str) -> None:
    if version == "":
        raise LogUnavailable(f"{backend} is empty: no log was ever written to it")
    if version == "none":
        raise LogUnavailable(f"{backend} holds something else, and no log; name another one")
    if version not in VERSIONS:
        raise LogUnavailable(
            f"{backend} has schema version {version}, and this release of Muster knows "
            f"{VERSIONS[0]} to {NEWEST}; use the release that wrote it, or a newer one"
        )
