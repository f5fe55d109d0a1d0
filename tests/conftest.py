"""What every test may ask for."""

import asyncio
import secrets
import signal
from collections.abc import AsyncIterator, Iterator
from typing import Any

import asyncpg
import pytest
from hypothesis import settings

from adapters.simulated_cluster.workload import SCHEMA
from controlplane.kinds.registry import register_hint
from tests.postgres import PostgresMissing, throwaway_postgres

# Tests read manifests as a server does, which has the simulated cluster's hint.
register_hint(SCHEMA)
# A slow machine is no fault of the code, so examples have no deadline; pytest-timeout still guards.
settings.register_profile("house", deadline=None, print_blob=True)
settings.load_profile("house")
# A run in the background of a shell ignores interrupts, and so would the programs that tests start
# and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """A PostgreSQL server of the test run's own, shared by its tests."""
    try:
        with throwaway_postgres() as url:
            yield url
    except PostgresMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture
async def rank_logs() -> AsyncIterator[Any]:
    """An archive of rank logs in memory."""
    # Here, since few tests need SQLAlchemy.
    from adapters.database.opening import open_database
    from adapters.database.rank_logs import DatabaseRankLogs

    database = await open_database("sqlite:///:memory:")
    yield DatabaseRankLogs(database, 2**20)
    await database.close()


@pytest.fixture
def database_url(postgres_url: str) -> str:
    """A PostgreSQL database that no other test has used."""
    name = f"test_{secrets.token_hex(4)}"

    async def create() -> None:
        connection = await asyncpg.connect(postgres_url)
        await connection.execute(f"CREATE DATABASE {name} ENCODING 'UTF8' TEMPLATE template0")
        await connection.close()

    asyncio.run(create())
    return f"{postgres_url.rpartition('/')[0]}/{name}"
