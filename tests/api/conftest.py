"""A server for each test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.api.stand_in import Server, serving


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with serving() as server:
        yield server


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves out, with the slow tests, a file that is slow to collect."""
    slow_left_out = "not slow" in (config.option.markexpr or "")
    return True if slow_left_out and collection_path.name == "test_openapi_thorough.py" else None
