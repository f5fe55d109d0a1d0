"""A server for each test."""

from collections.abc import AsyncIterator

import pytest

from tests.api.stand_in import Server, serving


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with serving() as server:
        yield server
