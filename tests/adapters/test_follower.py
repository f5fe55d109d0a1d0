"""Following a log: every row once, whatever happens meanwhile."""

from contextlib import suppress

import pytest

from adapters.logs.follower import follow
from adapters.logs.memory_log import MemoryLog
from controlplane.log.codec import to_rows
from controlplane.model.errors import LogCorrupt, LogUnavailable
from controlplane.model.events import NodeLost, Recorded
from controlplane.model.rows import GENESIS


def some(first: int, count: int) -> list[Recorded]:
    return [Recorded(p, p / 8, NodeLost("n1", detail=f"{p}")) for p in range(first, first + count)]


class Script:
    """A clock on which something happens at every wait."""

    def __init__(self, *happenings) -> None:
        self.waits: list[float] = []
        self._happenings = iter(happenings)

    def now(self) -> float:
        return 100.0

    async def wait(self, until: float) -> None:
        self.waits.append(until)
        await next(self._happenings)()

    def wake(self) -> None: ...


class TheEnd(Exception):
    """The story is over."""


async def the_end() -> None:
    raise TheEnd


async def followed(log, after, clock, **options) -> list:
    pages: list = []
    with suppress(TheEnd):
        async for rows in follow(log, after, clock=clock, **options):
            pages.append(rows)  # noqa: PERF401 - those before the end are wanted
    return pages


async def test_what_is_there_comes_page_by_page():
    log, clock = MemoryLog(some(1, 7)), Script(the_end)

    pages = await followed(log, 2, clock, rows_max=2)

    rows = to_rows(some(1, 7), GENESIS)
    assert pages == [rows[2:4], rows[4:6], rows[6:7]]


async def test_what_comes_later_is_seen_when_the_follower_looks_again():
    log = MemoryLog(some(1, 2))

    async def nothing() -> None: ...

    async def two_more() -> None:
        await log.append(some(3, 2), epoch=0)

    async def another_leads() -> None:
        await log.append(some(5, 1), epoch=(await log.lead()).epoch)

    clock = Script(nothing, two_more, nothing, another_leads, the_end)
    pages = await followed(log, 0, clock, look_every_s=0.5)

    rows = to_rows(some(1, 5), GENESIS)
    assert pages == [rows[:2], rows[2:4], rows[4:]]
    assert clock.waits == [100.5] * 5


async def test_a_gap_is_an_error_and_not_passed_over():
    class Gap(MemoryLog):
        async def read(self, after, limit):
            return [row for row in await super().read(after, limit) if row.position != 3]

    with pytest.raises(LogCorrupt, match="position 3"):
        await followed(Gap(some(1, 5)), 0, Script(the_end))


async def test_a_log_that_cannot_be_read_ends_the_iteration():
    class Away(MemoryLog):
        async def read(self, after, limit):
            raise LogUnavailable("away")

    with pytest.raises(LogUnavailable):
        await followed(Away(), 0, Script(the_end))
