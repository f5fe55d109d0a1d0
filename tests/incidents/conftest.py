"""Days that several tests look back at; they are only read."""

import pytest

from controlplane.log.codec import to_rows
from controlplane.model.rows import GENESIS, Row
from tests.incidents.day import Day


@pytest.fixture(scope="session")
def day() -> Day:
    """A small cluster that is too busy: about ten thousand events, every kind of trouble."""
    return Day(1, jobs=1_200, racks=2, nodes=4).run()


@pytest.fixture(scope="session")
def rows(day: Day) -> list[Row]:
    return to_rows(day.log.events, GENESIS)
