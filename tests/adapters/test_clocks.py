"""Clocks: what both promise, and what each does in its own kind of time."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from adapters.clocks.asyncio_clock import AsyncioClock
from adapters.clocks.simpy_clock import SimpyClock, as_process
from controlplane.ports import Clock
from simulator.kernel.virtual_time import VirtualTime

Scenario = Callable[[Clock], Awaitable[None]]
T0 = 1_700_000_000.0


async def in_virtual_time(scenario: Scenario) -> None:
    env = VirtualTime()
    clock = SimpyClock(env, origin=T0)
    env.run(until=as_process(env, _as_coroutine(scenario, clock)))


async def in_real_time(scenario: Scenario) -> None:
    await scenario(AsyncioClock(start=T0, speed=10_000.0))


async def _as_coroutine(scenario: Scenario, clock: Clock) -> None:
    await scenario(clock)


both = pytest.mark.parametrize("run", [in_virtual_time, in_real_time])


# -------------------------------------------------------------------- what both promise


@both
async def test_waiting_ends_when_the_time_is_reached(run: Callable[..., Awaitable[None]]) -> None:
    async def scenario(clock: Clock) -> None:
        for until in (T0 + 10.0, T0 + 10.1, T0 + 25.0):
            await clock.wait(until)
            assert clock.now() >= until

    await run(scenario)


@both
async def test_waiting_for_the_past_ends_at_once(run: Callable[..., Awaitable[None]]) -> None:
    async def scenario(clock: Clock) -> None:
        await clock.wait(T0 - 5.0)
        await clock.wait(clock.now())
        assert clock.now() < T0 + 1000.0

    await run(scenario)


@both
async def test_a_wake_before_the_wait_is_not_lost(run: Callable[..., Awaitable[None]]) -> None:
    async def scenario(clock: Clock) -> None:
        clock.wake()
        await clock.wait(None)
        clock.wake()
        await clock.wait(T0 + 1e9)
        assert clock.now() < T0 + 1000.0

    await run(scenario)


@both
async def test_many_wakes_are_one(run: Callable[..., Awaitable[None]]) -> None:
    async def scenario(clock: Clock) -> None:
        for _ in range(3):
            clock.wake()
        await clock.wait(None)
        until = clock.now() + 50.0
        await clock.wait(until)
        assert clock.now() >= until

    await run(scenario)


# -------------------------------------------------------------------- virtual time


class Diary:
    """A coroutine that waits again and again, and notes when it was woken."""

    def __init__(self, *untils: float | None) -> None:
        self.env = VirtualTime()
        self.clock = SimpyClock(self.env)
        self.notes: list[object] = []
        as_process(self.env, self._run(untils))

    async def _run(self, untils: tuple[float | None, ...]) -> None:
        for until in untils:
            await self.clock.wait(until)
            self.notes.append(self.clock.now())

    def at(self, delay_s: float, action: Callable[[], None]) -> None:
        self.env.timeout(delay_s).callbacks.append(lambda _: action())


def test_a_wake_ends_the_wait_at_that_instant() -> None:
    diary = Diary(None, 100.0)
    diary.at(7.0, diary.clock.wake)
    diary.env.run()
    assert diary.notes == [7.0, 100.0]


def test_all_that_happens_at_an_instant_happens_before_the_waiter_resumes() -> None:
    diary = Diary(None, 10.0)
    diary.at(5.0, diary.clock.wake)
    diary.at(5.0, lambda: diary.notes.append("same instant"))
    diary.at(5.0, lambda: diary.at(0.0, lambda: diary.notes.append("caused at that instant")))
    diary.at(10.0, lambda: diary.notes.append("at the deadline"))
    diary.env.run()
    assert diary.notes == [
        "same instant",
        "caused at that instant",
        5.0,
        "at the deadline",
        10.0,
    ]


def test_a_wake_before_the_wait_lets_the_instant_finish_too() -> None:
    diary = Diary(10.0, None)
    diary.at(10.0, diary.clock.wake)
    diary.at(10.0, lambda: diary.notes.append("same instant"))
    diary.env.run()
    assert diary.notes == ["same instant", 10.0]


def test_the_deadline_of_an_earlier_wait_ends_no_later_one() -> None:
    diary = Diary(10.0, None, 30.0)
    diary.at(5.0, diary.clock.wake)
    diary.at(20.0, diary.clock.wake)
    diary.env.run()
    assert diary.notes == [5.0, 20.0, 30.0]


def test_an_earlier_deadline_comes_before_a_far_one() -> None:
    diary = Diary(100.0, 10.0, 100.0, 50.0, 100.0)
    diary.at(5.0, diary.clock.wake)
    diary.at(20.0, diary.clock.wake)
    diary.env.run()
    assert diary.notes == [5.0, 10.0, 20.0, 50.0, 100.0]


def test_a_far_deadline_costs_one_timeout_however_often_the_waiter_wakes() -> None:
    diary = Diary(*[1e6] * 1000)
    for i in range(900):
        diary.at(i + 1.0, diary.clock.wake)
    diary.env.run(until=901.5)
    assert len(diary.notes) == 900
    assert [at for at, *_ in diary.env._queue if at > 901.5] == [1e6]


@given(
    origin=st.floats(0.0, 2e9),
    begin_s=st.floats(0.0, 1e7),
    steps=st.lists(st.floats(1e-6, 1e7), min_size=1, max_size=10),
)
def test_no_rounding_hides_that_a_deadline_was_reached(
    origin: float, begin_s: float, steps: list[float]
) -> None:
    env = VirtualTime(begin_s)
    clock = SimpyClock(env, origin=origin)

    async def scenario() -> None:
        for step in steps:
            before = clock.now()
            await clock.wait(before + step)
            assert clock.now() >= before + step

    env.run(until=as_process(env, scenario()))


def test_a_process_returns_what_its_coroutine_returns() -> None:
    env = VirtualTime()

    async def answer() -> int:
        await SimpyClock(env).wait(3.0)
        return 42

    assert env.run(until=as_process(env, answer())) == 42


def test_a_coroutine_that_raises_makes_the_environment_raise() -> None:
    env = VirtualTime()

    async def fail() -> None:
        raise LookupError("lost")

    as_process(env, fail())
    with pytest.raises(LookupError, match="lost"):
        env.run()


def test_a_clock_has_one_waiter() -> None:
    diary = Diary(None)
    as_process(diary.env, diary.clock.wait(None))
    with pytest.raises(AssertionError, match="one waiter"):
        diary.env.run()


# -------------------------------------------------------------------- real time


async def test_speed_stretches_time() -> None:
    loop = asyncio.get_running_loop()
    clock, began = AsyncioClock(start=T0, speed=100_000.0), loop.time()
    await clock.wait(T0 + 1000.0)
    assert 0.009 <= loop.time() - began < 1.0


async def test_without_a_start_the_wall_clock_is_shown() -> None:
    assert AsyncioClock().now() > T0


async def test_the_clock_never_begins_before_the_end_of_the_log() -> None:
    assert AsyncioClock(at_least=9e9).now() >= 9e9
    assert AsyncioClock(start=T0, at_least=9.0).now() < T0 + 1.0


async def test_a_twin_shows_the_same_time_and_has_its_own_bell() -> None:
    clock = AsyncioClock(start=T0)
    twin = clock.twin()
    waiting = asyncio.create_task(twin.wait(None))
    await asyncio.sleep(0)
    clock.wake()
    await clock.wait(None)
    assert not waiting.done()
    twin.wake()
    await waiting
    assert abs(twin.now() - clock.now()) < 1.0


async def test_time_never_runs_backwards_even_if_a_timer_comes_early() -> None:
    clock = AsyncioClock(start=T0, speed=10_000.0)
    shown = [clock.now()]
    for _ in range(20):
        await clock.wait(shown[-1] + 3.0)
        shown += [clock.now(), clock.twin().now()]
    assert shown == sorted(shown)


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_timers_that_come_early_do_not_add_up(
    run: Callable[[Coroutine[Any, Any, None]], None],
) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        clock, began = AsyncioClock(start=0.0), loop.time()
        for tick in range(100):
            await clock.wait(tick * 0.0002)
        assert loop.time() - began > 0.018

    run(scenario())


async def test_a_busy_waiter_still_lets_others_run() -> None:
    clock, turns = AsyncioClock(), list[object]()
    other = asyncio.create_task(asyncio.sleep(0))
    other.add_done_callback(turns.append)
    for _ in range(3):
        clock.wake()
        await clock.wait(None)
    assert turns == [other]


async def test_a_cancelled_wait_leaves_the_clock_usable() -> None:
    clock = AsyncioClock()
    waiting = asyncio.create_task(clock.wait(clock.now() + 1e9))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    clock.wake()
    await clock.wait(None)
