"""Things to look at: once each, one at a time, again after a failure; and what was missed."""

import asyncio
from collections import Counter

import pytest

from adapters.kubernetes.api.errors import Unreachable
from adapters.kubernetes.operator.missed import missed, position_at
from adapters.kubernetes.operator.work_queue import WorkQueue
from adapters.logs.memory_log import MemoryLog
from controlplane.model import events as e
from tests.adapters.kubernetes.operator.bench import is_idle


class Done:
    def __init__(self) -> None:
        self.times: Counter[str] = Counter()
        self.now: set[str] = set()
        self.fails = 0

    async def __call__(self, key: str) -> None:
        assert key not in self.now, "two at the same thing"
        self.now.add(key)
        await asyncio.sleep(0.01)
        self.now.discard(key)
        self.times[key] += 1
        if self.fails:
            self.fails -= 1
            raise Unreachable("away")


async def worked(work: WorkQueue) -> None:
    running = asyncio.create_task(work.run())
    async with asyncio.timeout(5.0):
        while not is_idle(work):  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_what_is_asked_for_often_is_done_once_and_once_more() -> None:
    done = Done()
    work = WorkQueue(done, workers=3, pause_s=0.01)
    for _ in range(50):
        for key in "abc":
            work.add(key)
    running = asyncio.create_task(worked(work))
    await asyncio.sleep(0.005)
    work.add("a")
    work.add("a")
    await running
    assert done.times == {"a": 2, "b": 1, "c": 1}


async def test_what_failed_is_done_again_and_does_not_hold_up_the_others() -> None:
    done = Done()
    done.fails = 3
    work = WorkQueue(done, workers=1, pause_s=0.0, again_s_first=0.01)
    work.add("a")
    work.add("b")
    await worked(work)
    assert done.times.total() == 5
    assert set(done.times) == {"a", "b"}


async def test_an_unexpected_error_stops_no_other_key(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen = []

    async def do(key: str) -> None:
        seen.append(key)
        if key == "bad" and seen.count("bad") < 3:
            raise KeyError(key)

    work = WorkQueue(do, workers=2, pause_s=0.0, again_s_first=0.01)
    work.add("bad")
    work.add("good")
    await worked(work)
    assert seen.count("bad") == 3
    assert "good" in seen
    assert "this should not happen" in caplog.text


async def log_of(times: list[float]) -> MemoryLog:
    log = MemoryLog()
    head = await log.lead()
    events = [e.Recorded(n + 1, at, e.JobSuspended(f"job-{n % 2}")) for n, at in enumerate(times)]
    await log.append(events, epoch=head.epoch)
    return log


@pytest.mark.parametrize("at", [0.0, 10.0, 15.0, 20.0, 45.0, 1000.0])
async def test_the_position_of_a_point_in_time(at: float) -> None:
    times = [10.0, 20.0, 20.0, 20.0, 30.0, 40.0, 50.0]
    log = await log_of(times)
    assert await position_at(log, at, before=8) == sum(each < at for each in times)


async def test_only_unwritten_events_are_missed() -> None:
    log = await log_of([10.0, 20.0, 30.0, 40.0, 50.0, 60.0])
    positions = [
        each.position async for each in missed(log, {"job-0": 1, "job-1": 5}, since=15.0, before=6)
    ]
    assert positions == [3, 5]
