"""Virtual time is SimPy's, whatever keeps its agenda: the same programs take the same course."""

from collections.abc import Callable, Generator
from typing import Any

import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st
from simpy.core import EmptySchedule
from simpy.events import Event, EventPriority

from simulator.agenda import AFTER_LAST, FIRST, LAST, NORMAL, URGENT, Agenda
from simulator.virtual_time import VirtualTime

BOTH = pytest.mark.parametrize("environment", [simpy.Environment, VirtualTime])

# What a process does: waits so long, sets an event off so late and so urgently, starts another
# process, waits for any of two timeouts, or interrupts whoever was started last.
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
        self.told: list[tuple[float, str]] = []
        self.running: list[simpy.Process] = []
        for number in range(len(programs)):
            self.start(number)

    def tell(self, what: str) -> None:
        self.told.append((float(self.env.now), what))

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
                self.tell(f"{name}/{step} {deed}")
            except simpy.Interrupt:
                self.tell(f"{name}/{step} was interrupted")

    def set_off(self, name: str, delay: float, priority: int) -> None:
        event = self.env.event()
        event._ok, event._value = True, None
        event.callbacks.append(lambda _: self.tell(f"{name} happens"))
        self.env.schedule(event, EventPriority(priority), delay)

    def interrupt(self) -> None:
        last = self.running[-1]
        if last.is_alive and last is not self.env.active_process:
            last.interrupt()


@given(PROGRAMS)
def test_whatever_processes_do_happens_as_under_simpy(programs: list[list[Any]]) -> None:
    theirs, ours = (Course(env, programs) for env in (simpy.Environment(), VirtualTime()))
    theirs.env.run()
    ours.env.run()
    assert ours.told == theirs.told
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
        assert ours.told == theirs.told
        assert ours.env.peek() == theirs.env.peek()
    theirs.env.run()
    ours.env.run()
    assert ours.told == theirs.told


@BOTH
def test_a_run_ends_with_the_value_of_what_it_waits_for(
    environment: Callable[[], simpy.Environment],
) -> None:
    env = environment()
    assert env.run(until=env.timeout(3.0, "done")) == "done"
    assert env.now == 3.0


@BOTH
def test_a_failure_that_nobody_takes_care_of_is_raised(
    environment: Callable[[], simpy.Environment],
) -> None:
    env = environment()
    env.event().fail(ValueError("it broke"))
    with pytest.raises(ValueError, match="it broke"):
        env.run()


@BOTH
def test_one_that_somebody_takes_care_of_is_not(
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
def test_nothing_left_to_do_is_said(environment: Callable[[], simpy.Environment]) -> None:
    with pytest.raises(EmptySchedule):
        environment().step()


@BOTH
def test_whoever_waits_behind_the_one_who_stops_a_run_is_called_when_it_goes_on(
    environment: Callable[[], simpy.Environment],
) -> None:
    env, told = environment(), []
    first, second = env.timeout(1.0), env.timeout(1.0)
    first.callbacks.append(lambda _: told.append("before"))
    second.callbacks.append(lambda _: told.append("behind"))
    env.run(until=first)
    assert told == ["before"]
    env.run()
    assert told == ["before", "behind"]


def test_calls_and_events_of_an_instant_take_their_turns_in_the_order_in_which_they_came() -> None:
    env, told = VirtualTime(), list[str]()
    agenda = env.agenda
    agenda.call_after(2.0, lambda: told.append("first call"))
    env.timeout(2.0).callbacks.append(lambda _: told.append("event"))
    agenda.call_after(2.0, lambda: told.append("second call"))
    env.run()
    assert told == ["first call", "event", "second call"]
    assert env.now == agenda.now == 2.0


def test_a_call_may_have_more_done_at_its_instant() -> None:
    agenda, told = Agenda(5.0), list[float]()

    def again() -> None:
        told.append(agenda.now)
        if len(told) < 3:
            agenda.call_after(0.0, again)

    agenda.call_after(0.0, again)
    assert agenda.peek() == 5.0
    while agenda.peek() != float("inf"):
        agenda.step()
    assert told == [5.0, 5.0, 5.0]


def test_nothing_is_done_in_the_past() -> None:
    with pytest.raises(AssertionError, match="ago"):
        Agenda(0.0).call_after(-1.0, lambda: None)


def test_priorities_are_simpys_and_two_more() -> None:
    assert (URGENT, NORMAL) == (simpy.events.URGENT, simpy.events.NORMAL)
    assert FIRST < URGENT < NORMAL < LAST < AFTER_LAST
