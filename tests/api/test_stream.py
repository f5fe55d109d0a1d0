"""The feed's laws, under any order of events, watchers, full buffers and new engines."""

import asyncio
import gc
import re
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web
from aiohttp.http import HttpVersion10
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adapters.logs.memory_log import MemoryLog
from api.history.sse_connection import BUFFER_BYTES_FULL, Watcher
from api.history.sse_feed import Feed, FeedLimits
from api.history.sse_frames import BLOCK_BYTES_MAX, Block, blocks_of, frame_of
from controlplane.model.events import JobCancelled, NodeCordoned, Recorded
from controlplane.model.rows import Row


class SlowLog(MemoryLog):
    """Lets others have their turn while it reads, as a file would."""

    async def read(self, after: int, limit: int) -> Sequence[Row]:
        rows = await super().read(after, limit)
        for _ in range(after % 4):
            await asyncio.sleep(0)
        return rows


class Transport:
    """A connection whose other end reads when it likes."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.is_full = False
        self.most = 0

    def set_write_buffer_limits(self, high: int) -> None: ...

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return BUFFER_BYTES_FULL + 1 if self.is_full else 0

    def write(self, data: bytes) -> None:
        assert not self.is_full, "written to a full buffer"
        self.most = max(self.most, len(data))
        self.written.append(data)

    async def drain(self) -> None:
        while self.is_full:  # noqa: ASYNC110 - the test decides how many turns that takes
            await asyncio.sleep(0)

    @property
    def seen(self) -> list[int]:
        return [int(number) for number in re.findall(rb"(?m)^id: (\d+)$", b"".join(self.written))]


def watcher_on(transport: Transport, *, position: int = 0, stream: str | None = None) -> Watcher:
    request: Any = SimpleNamespace(
        transport=transport, writer=SimpleNamespace(drain=transport.drain), version=HttpVersion10
    )
    return Watcher(request, position=position, stream=stream)


class Bench:
    """A feed, its log, and watchers that follow it."""

    def __init__(self, **limits: Any) -> None:
        self.log = SlowLog()
        self.feed = Feed(self.log, FeedLimits(**limits))
        self.epoch = 0
        self.tasks = [asyncio.create_task(self.feed.run())]
        self.watchers: list[tuple[int, str | None, Transport]] = []
        self.events: list[Recorded] = []

    async def append(self, count: int, *, publish: bool = True) -> None:
        first = len(self.events) + 1
        batch = [
            Recorded(position, 0.0, JobCancelled("job") if position % 3 else NodeCordoned("node"))
            for position in range(first, first + count)
        ]
        self.epoch = self.epoch or (await self.log.lead()).epoch
        await self.log.append(batch, epoch=self.epoch)
        self.events += batch
        if publish:
            self.feed.publish(batch)

    def watch(self, position: int, stream: str | None) -> None:
        transport = Transport()
        self.watchers.append((position, stream, transport))
        self.feed.watchers += 1
        follow = self.feed._follow(watcher_on(transport, position=position, stream=stream))
        self.tasks.append(asyncio.create_task(follow))

    async def finish(self) -> None:
        for _, _, transport in self.watchers:
            transport.is_full = False
        await self.append(1)
        for _ in range(100 + 10 * len(self.events)):
            await asyncio.sleep(0)
        for task in self.tasks:
            task.cancel()
        results = await asyncio.gather(*self.tasks, return_exceptions=True)
        assert all(isinstance(each, asyncio.CancelledError) for each in results), results


Step = tuple[Any, ...]
steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 5)),
        # What a stopped engine appended without notifying its observers.
        st.tuples(st.just("unheard"), st.integers(1, 3)),
        st.tuples(st.just("watch"), st.integers(0, 20), st.sampled_from([None, "job", "node/node"])),
        st.tuples(st.just("fill"), st.integers(0, 5), st.booleans()),
        st.tuples(st.just("turns"), st.integers(0, 4)),
    ),
    max_size=40,
)  # fmt: skip


@pytest.fixture(autouse=True)
def no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time is counted in turns here."""
    monkeypatch.setattr("api.history.sse_feed.REST_SHARE", 0.0)


@pytest.fixture
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every other task gets a turn after each single write."""
    monkeypatch.setattr("api.history.sse_feed.WRITES_PER_TURN", 1)
    monkeypatch.setattr("api.history.sse_feed.PAGE_ROWS", 3)
    monkeypatch.setattr("api.history.sse_frames.BLOCK_BYTES_MAX", 200)


@pytest.mark.usefixtures("short_turns")
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps, st.sampled_from([1, 400, 1 << 20]))
def test_every_watcher_sees_every_event_once_and_in_order(
    steps: Sequence[Step], ring_bytes_max: int
) -> None:
    asyncio.run(_play(steps, ring_bytes_max))


async def _play(steps: Sequence[Step], ring_bytes_max: int) -> None:
    bench = Bench(ring_bytes_max=ring_bytes_max)
    for step in steps:
        match step:
            case ("append", count):
                await bench.append(count)
            case ("unheard", count):
                await bench.append(count, publish=False)
            case ("watch", position, stream):
                bench.watch(min(position, len(bench.events)), stream)
            case ("fill", index, is_full) if bench.watchers:
                bench.watchers[index % len(bench.watchers)][2].is_full = is_full
            case ("turns", count):
                for _ in range(count):
                    await asyncio.sleep(0)
    await bench.finish()
    for after, stream, transport in bench.watchers:
        due = [e.position for e in bench.events if e.position > after]
        if stream is not None:
            due = [p for p in due if bench.events[p - 1].event.stream == stream]
        assert transport.seen == due


def test_blocks_are_bounded_and_lose_nothing() -> None:
    frames = [frame_of(Recorded(i, 0.0, JobCancelled("j" * 500))) for i in range(1, 400)]
    blocks = list(blocks_of(frames))
    assert len(blocks) > 3
    assert all(len(block.data) <= BLOCK_BYTES_MAX for block in blocks)
    assert b"".join(block.data for block in blocks) == b"".join(f.data for f in frames)
    assert [block.after for block in blocks[1:]] == [block.upto for block in blocks[:-1]]


def test_one_event_that_is_larger_than_a_block_is_a_block_of_its_own() -> None:
    frames = [frame_of(Recorded(i, 0.0, JobCancelled("j" * 40_000))) for i in (1, 2)]
    assert [(block.after, block.upto) for block in blocks_of(frames)] == [(0, 1), (1, 2)]


async def test_nothing_is_encoded_without_watchers() -> None:
    bench = Bench()
    await bench.append(5)
    assert bench.feed._fresh == []
    await bench.finish()


async def test_what_is_written_at_once_is_bounded_even_after_a_long_pause() -> None:
    bench = Bench()
    await bench.append(5_000)
    bench.watch(0, None)
    for _ in range(200):
        await asyncio.sleep(0)
    (_, _, transport) = bench.watchers[0]
    await bench.finish()
    assert transport.seen == list(range(1, 5_002))
    assert transport.most <= BLOCK_BYTES_MAX


@pytest.mark.usefixtures("short_turns")
@pytest.mark.parametrize("turns", range(12))
async def test_a_new_engine_in_the_middle_of_an_offer_doubles_nothing(turns: int) -> None:
    bench = Bench()
    await bench.append(3)
    for _ in range(4):
        bench.watch(0, None)
    for _ in range(60):
        await asyncio.sleep(0)
    await bench.append(5)
    for _ in range(turns):
        await asyncio.sleep(0)
    await bench.append(2, publish=False)
    await bench.append(1)
    await bench.finish()
    assert [transport.seen for _, _, transport in bench.watchers] == [list(range(1, 13))] * 4


def test_a_client_that_hangs_up_leaves_nothing_behind(caplog: pytest.LogCaptureFixture) -> None:
    """On the event loop of the server, whose closed transports raise when they are written to."""
    uvloop = pytest.importorskip("uvloop")
    gc.collect()
    before = _blocks_in_memory()
    gc.disable()
    try:
        uvloop.run(_hang_up_often(20))
        assert _blocks_in_memory() == before
    finally:
        gc.enable()
    assert caplog.records == []


def _blocks_in_memory() -> int:
    return sum(isinstance(each, Block) for each in gc.get_objects())


async def _hang_up_often(times: int) -> None:
    log = MemoryLog()
    epoch = (await log.lead()).epoch
    await log.append(
        [Recorded(n, 0.0, JobCancelled("j" * 500)) for n in range(1, 4_001)], epoch=epoch
    )
    feed = Feed(log)
    feed.begin_at(4_000)

    async def serve(request: web.Request) -> web.StreamResponse:
        return await feed.serve(request, after=0)

    app = web.Application()
    app.router.add_get("/", serve)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    for n in range(times):
        reader, writer = await asyncio.open_connection(*runner.addresses[0][:2])
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await reader.read(n % 2)
        writer.transport.abort()
    async with asyncio.timeout(20):
        while feed.watchers:  # noqa: ASYNC110 - the feed gives no signal when a watcher has gone
            await asyncio.sleep(0.01)
    await runner.cleanup()
