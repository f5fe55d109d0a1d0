"""What every test may ask for."""

import asyncio
import secrets
import signal
from collections.abc import Iterator

import asyncpg
import pytest
from hypothesis import settings

from tests.postgres import PostgresMissing, throwaway_postgres

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
def database_url(postgres_url: str) -> str:
    """A PostgreSQL database that no other test has used."""
    name = f"test_{secrets.token_hex(4)}"

    async def create() -> None:
        connection = await asyncpg.connect(postgres_url)
        await connection.execute(f"CREATE DATABASE {name} ENCODING 'UTF8' TEMPLATE template0")
        await connection.close()

    asyncio.run(create())
    return f"{postgres_url.rpartition('/')[0]}/{name}"
