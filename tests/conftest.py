"""What every test may ask for."""

import signal
from collections.abc import Iterator

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
