"""Virtual time is SimPy's: the same programs take the same course, at exact times."""

from collections.abc import Callable, Generator
from typing import Any

import pytest
import simpy
from hypothesis import assume, given
from hypothesis import strategies as st
from simpy.core import EmptySchedule
from simpy.events import NORMAL, URGENT, Event, EventPriority

from simulator.kernel.virtual_time import AFTER_LAST, LAST, VirtualTime

BOTH = pytest.mark.parametrize("environment", [simpy.Environment, VirtualTime])

# What a process does: waits so long, sets an event off so late and so urgently, starts another
# process, waits for any of two timeouts, or interrupts the process that was started last.
DELAYS = st.sampled_from([0, 0.0, 1, 0.5, 1e-12, 3.0, 3, 1e9, 0.1, 0.2])
DEEDS = st.one_of(
    st.tuples(st.just("wait"), DELAYS),
    st.tuples(st.just("schedule"), DELAYS, st.integers(URGENT, AFTER_LAST)),
    st.tuples(st.just("start"), st.integers(0, 3)),
    st.tuples(st.just("any"), DELAYS, DELAYS),
    st.tuples(st.just("interrupt")),
)
PROGRAMS = st.lists(st.lists(DEEDS, max_size=6), min_size=1, max_size=4)


class Course:
    """Programs under an environment, and what happened when."""

    def __init__(self, env: simpy.Environment, programs: list[list[Any]]) -> None:
        self.env = env
        self.programs = programs
        self.happened: list[tuple[float, str]] = []
        self.running: list[simpy.Process] = []
        for number in range(len(programs)):
            self.start(number)

    def note(self, what: str) -> None:
        self.happened.append((float(self.env.now), what))

    def start(self, number: int) -> None:
        if len(self.running) < 20:
            name = f"{number}.{len(self.running)}"
            program = self.programs[number % len(self.programs)]
            self.running.append(self.env.process(self.go(name, program)))

    def go(self, name: str, program: list[Any]) -> Generator[Event, Any, None]:
        for step, (deed, *how) in enumerate(program):
            try:
                match deed:
                    case "wait":
                        yield self.env.timeout(how[0])
                    case "schedule":
                        self.set_off(f"{name}/{step}", *how)
                    case "start":
                        self.start(how[0])
                    case "any":
                        yield self.env.timeout(how[0]) | self.env.timeout(how[1])
                    case "interrupt":
                        self.interrupt()
                self.note(f"{name}/{step} {deed}")
            except simpy.Interrupt:
                self.note(f"{name}/{step} was interrupted")

    def set_off(self, name: str, delay: float, priority: int) -> None:
        event = self.env.event()
        event._ok, event._value = True, None
        event.callbacks.append(lambda _: self.note(f"{name} happens"))
        self.env.schedule(event, EventPriority(priority), delay)

    def interrupt(self) -> None:
        last = self.running[-1]
        if last.is_alive and last is not self.env.active_process:
            last.interrupt()


@given(PROGRAMS)
def test_processes_behave_as_under_simpy(programs: list[list[Any]]) -> None:
    theirs, ours = (Course(env, programs) for env in (simpy.Environment(), VirtualTime()))
    theirs.env.run()
    ours.env.run()
    assert ours.happened == theirs.happened
    assert ours.env.now == theirs.env.now


@given(PROGRAMS, st.lists(st.floats(0.1, 5.0), min_size=1, max_size=5))
def test_a_run_that_is_stopped_again_and_again_goes_on_as_under_simpy(
    programs: list[list[Any]], stops: list[float]
) -> None:
    theirs, ours = (Course(env, programs) for env in (simpy.Environment(), VirtualTime()))
    until = 0.0
    for stop in stops:
        until += stop
        for course in (theirs, ours):
            course.env.run(until=until)
        assert ours.happened == theirs.happened
        assert ours.env.peek() == theirs.env.peek()
    theirs.env.run()
    ours.env.run()
    assert ours.happened == theirs.happened


@BOTH
def test_a_run_ends_with_the_value_of_what_it_waits_for(
    environment: Callable[[], simpy.Environment],
) -> None:
    env = environment()
    assert env.run(until=env.timeout(3.0, "done")) == "done"
    assert env.now == 3.0


@BOTH
def test_a_failure_that_no_process_handles_is_raised(
    environment: Callable[[], simpy.Environment],
) -> None:
    env = environment()
    env.event().fail(ValueError("it broke"))
    with pytest.raises(ValueError, match="it broke"):
        env.run()


@BOTH
def test_a_failure_that_a_process_handles_is_not_raised(
    environment: Callable[[], simpy.Environment],
) -> None:
    env, failing = environment(), []

    def careful() -> Generator[Event, Any, None]:
        try:
            yield env.event().fail(ValueError("it broke"))
        except ValueError as error:
            failing.append(str(error))

    env.process(careful())
    env.run()
    assert failing == ["it broke"]


@BOTH
def test_nothing_left_to_do_is_reported(environment: Callable[[], simpy.Environment]) -> None:
    with pytest.raises(EmptySchedule):
        environment().step()


@BOTH
def test_a_callback_after_the_one_that_stops_a_run_is_called_when_the_run_continues(
    environment: Callable[[], simpy.Environment],
) -> None:
    env, calls = environment(), []
    first, second = env.timeout(1.0), env.timeout(1.0)
    first.callbacks.append(lambda _: calls.append("before"))
    second.callbacks.append(lambda _: calls.append("behind"))
    env.run(until=first)
    assert calls == ["before"]
    env.run()
    assert calls == ["before", "behind"]


def test_calls_and_events_of_an_instant_take_their_turns_in_the_order_in_which_they_came() -> None:
    env, calls = VirtualTime(), list[str]()
    env.call_after(2.0, lambda: calls.append("first call"))
    env.timeout(2.0).callbacks.append(lambda _: calls.append("event"))
    env.call_after(2.0, lambda: calls.append("second call"))
    env.run()
    assert calls == ["first call", "event", "second call"]
    assert env.now == 2.0


def test_a_call_may_have_more_done_at_its_instant() -> None:
    env, times = VirtualTime(5.0), list[float]()

    def again() -> None:
        times.append(env.now)
        if len(times) < 3:
            env.call_after(0.0, again)

    env.call_after(0.0, again)
    assert env.peek() == 5.0
    while env.peek() != float("inf"):
        env.step()
    assert times == [5.0, 5.0, 5.0]


def test_nothing_is_done_in_the_past() -> None:
    with pytest.raises(AssertionError, match="past"):
        VirtualTime().call_after(-1.0, lambda: None)


def test_priorities_follow_those_of_simpy() -> None:
    assert URGENT < NORMAL < LAST < AFTER_LAST


def test_a_call_at_a_time_that_has_passed_is_made_now() -> None:
    env, times = VirtualTime(5.0), list[float]()
    env.call_at(3.0, lambda: times.append(env.now))
    env.call_at(7.0, lambda: times.append(env.now))
    env.run()
    assert times == [5.0, 7.0]


TIMES = st.floats(0.0, 2e9)


@given(start=TIMES, end=TIMES)
def test_a_run_reaches_exactly_the_time_that_it_was_given(start: float, end: float) -> None:
    """SimPy adds `end - start` to `start`, and the sum may differ from `end` in its last bit."""
    assume(end > start)
    env = VirtualTime(initial_time=start)
    env.run(until=end)
    assert env.now == end


@given(start=TIMES, at=TIMES)
def test_an_event_at_a_time_happens_at_exactly_that_time(start: float, at: float) -> None:
    env = VirtualTime(initial_time=start)
    env.run(until=env.at(at))
    assert env.now == max(start, at)


@BOTH
def test_a_run_to_a_time_that_is_not_later_is_refused(environment: Any) -> None:
    env = environment(initial_time=3.0)
    for until in (3.0, 2.0):
        with pytest.raises(ValueError, match="until"):
            env.run(until=until)


@BOTH
def test_a_run_to_a_time_leaves_what_is_due_then(environment: Any) -> None:
    env = environment()
    env.timeout(2.0)
    env.run(until=2.0)
    assert (env.now, env.peek()) == (2.0, 2.0)
