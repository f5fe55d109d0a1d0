"""Incidents from Python: open a log, a database or a bundle by its path, and read it.

with_log("incident.bundle", look)        # any coroutine that takes a log
check_bundle("incident.bundle")          # the check of a regression test
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from cli.log.exported_log import ExportedLog
from cli.log.sources import parse_source, reading
from cli.log.verification import verify
from controlplane.ports import EventLog

T = TypeVar("T")


def with_log(place: str | Path, look: Callable[[EventLog], Awaitable[T]]) -> T:
    """Return what `look` reads from the log at a path or URL; the log is not written."""

    async def looked() -> T:
        async with reading(parse_source(str(place))) as log:
            return await look(log)

    return asyncio.run(looked())


def check_bundle(path: str | Path) -> None:
    """Assert that a bundle replays to its recorded state, and that today's code decides it so."""

    async def check(log: EventLog) -> None:
        assert isinstance(log, ExportedLog), f"{path} is not a bundle"
        assert log.header is not None, f"{path} is not a bundle"
        findings = await verify(log, decisions=True)
        assert findings.state_hash == log.header.state_hash, "it leads to another state"
        assert findings.difference is None, f"decided otherwise today: {findings.difference}"

    with_log(path, check)
