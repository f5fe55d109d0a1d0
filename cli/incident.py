"""Incidents from Python: open a log, a database or a bundle by its path, and look back.

with_log("incident.bundle", look)        # any coroutine that takes a log
check_bundle("incident.bundle")          # what a regression test asks
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from cli.exported import ExportedLog
from cli.sources import parse_source, reading
from cli.verification import verify
from controlplane.ports import EventLog

T = TypeVar("T")


def with_log(place: str | Path, look: Callable[[EventLog], Awaitable[T]]) -> T:
    """What `look` finds in the log at a path or URL, which is only read."""

    async def looked() -> T:
        async with reading(parse_source(str(place))) as log:
            return await look(log)

    return asyncio.run(looked())


def check_bundle(path: str | Path) -> None:
    """Asserts that a bundle replays to the state it names, and that today's code decides it so."""

    async def check(log: EventLog) -> None:
        assert isinstance(log, ExportedLog), f"{path} is no bundle"
        assert log.header is not None, f"{path} is no bundle"
        found = await verify(log, decisions=True)
        assert found.state_hash == log.header.state_hash, "it leads to another state"
        assert found.difference is None, f"decided otherwise today: {found.difference}"

    with_log(path, check)
