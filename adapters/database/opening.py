"""Opening a database by its URL."""

from pathlib import Path

from adapters.database import postgres, schema, sqlite
from adapters.database.database import Database
from controlplane.model.errors import LogUnavailable

POSTGRES_SCHEMES = ("postgresql", "postgres")
# The schema of PostgreSQL that holds the tables.
SCHEMA = "muster"
LOCK_S_MAX = 5.0
ANSWER_S_MAX = 30.0


async def open_database(
    where: str | Path,
    *,
    read_only: bool = False,
    schema_name: str = SCHEMA,
    lock_s_max: float = LOCK_S_MAX,
    timeout_s: float = ANSWER_S_MAX,
) -> Database:
    """The database at a URL (sqlite:///FILE, sqlite:///:memory:, postgresql://...) or in a SQLite file.

    It is created unless it exists, with its tables; `read_only` creates nothing. Raises LogUnavailable if it
    cannot be used, with the reason. `lock_s_max` is how long a write waits for another process that writes the
    same file; `timeout_s` is how long PostgreSQL may take for one answer; `schema_name` is for PostgreSQL.
    """
    database = await _connect(where, read_only, schema_name, lock_s_max, timeout_s)
    try:
        await schema.prepare(database, read_only=read_only)
    except BaseException:
        await database.close()
        raise
    return database


async def upgrade_database(where: str | Path, *, schema_name: str = SCHEMA) -> tuple[str, str]:
    """Bring the tables to the newest version; returns the version before and the one now."""
    database = await _connect(where, False, schema_name, LOCK_S_MAX, ANSWER_S_MAX)
    try:
        return await schema.upgrade(database)
    finally:
        await database.close()


async def _connect(
    where: str | Path, read_only: bool, schema_name: str, lock_s_max: float, timeout_s: float
) -> Database:
    if isinstance(where, Path):
        return await sqlite.connect(where, read_only=read_only, lock_s_max=lock_s_max)
    scheme, _, rest = where.partition("://")  # noqa: ASYNC240 - the text of a URL
    if scheme in POSTGRES_SCHEMES:
        return await postgres.connect(
            where, schema=schema_name, read_only=read_only, timeout_s=timeout_s
        )
    if scheme == "sqlite":
        # Nothing is escaped: all that follows the third slash is the file's name.
        path = rest.removeprefix("/")
        return await sqlite.connect(path, read_only=read_only, lock_s_max=lock_s_max)
    raise LogUnavailable(f"{scheme}: is no database that is known here")
