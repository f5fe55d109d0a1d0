"""A usual life taken in at once is what its events make of the job one by one."""

from itertools import chain, permutations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane import codec
from controlplane import events as e
from controlplane.errors import LogCorrupt
from controlplane.folding import fold
from controlplane.job import Job
from controlplane.job_life import EVOLVE, begin
from controlplane.lives import usual_life
from controlplane.model import Cause, Exit, Repair, Scheduling, Slot
from controlplane.replay import state_hash
from controlplane.state import State
from tests.controlplane.specification import spec

PLACEMENT = (Slot("n1", (0, 1)), Slot("n2", (0,)))
PLACED = e.GangPlaced("j", 1, PLACEMENT)
UP = [e.RanksStarted("j", 1, (0, 1)), e.GangStarted("j", 1)]
ENDS = (Exit(0, 0), Exit(1, 0, Cause.COMPLETED, "done", ("bye",)))
DOWN = [e.RanksExited("j", 1, ENDS), e.JobSucceeded("j"), e.AttemptEnded("j", 1)]


def queued(**changes: object) -> Job:
    submitted = e.JobSubmitted("j", "ns", "train", spec(**changes))
    return begin(e.Recorded(1, 100.0, submitted), submitted)


def one_by_one(job: Job, events: list[e.Event]) -> Job:
    for number, event in enumerate(events):
        job = EVOLVE[type(event)](job, event, 200.5 + number, 2 + number)
    return job


def at_once(job: Job, events: list[e.Event]) -> Job | None:
    told = [(event, 200.5 + number, 2 + number) for number, event in enumerate(events)]
    return usual_life(job, [*chain.from_iterable(told)])


@pytest.mark.parametrize(
    "events",
    [
        [PLACED, *UP, *DOWN],
        [e.GangPlaced("j", 3, PLACEMENT, (500, 0), "a100", 7.5, 300.0, 400.0), *UP, *DOWN],
        [PLACED, *(e.RanksStarted("j", 1, (i,)) for i in (1, 0)), UP[1], *DOWN],
        [PLACED, *UP, *(e.RanksExited("j", 1, (end,)) for end in reversed(ENDS)), *DOWN[1:]],
        [PLACED, e.RanksStarted("j", 1, ()), *UP, e.RanksExited("j", 1, ()), *DOWN],
    ],
    ids=["plain", "with all its fields", "starts", "ends", "nothing new"],
)
@pytest.mark.parametrize("repair", list(Repair))
def test_a_usual_life_is_the_same_either_way(events, repair):
    job = queued(scheduling=Scheduling(repair=repair))
    lived = at_once(job, events)
    assert lived is not None
    assert lived == one_by_one(job, events)


def test_a_second_life_keeps_what_the_first_one_left():
    failed = [PLACED, *UP, e.RanksExited("j", 1, ENDS), e.JobSuspended("j"), e.AttemptEnded("j", 1)]
    job = one_by_one(queued(), [*failed, e.JobResumed("j"), e.JobRequeued("j")])
    again = [e.GangPlaced("j", 2, PLACEMENT), *UP, *DOWN]
    assert job.running_at is not None
    assert at_once(job, again) == one_by_one(job, again)


@pytest.mark.parametrize(
    "events",
    [
        [PLACED, *UP],
        [*UP, *DOWN],
        [PLACED, *UP, *DOWN[:-1]],
        [PLACED, e.GangHeld("j", "quota", ""), *UP, *DOWN],
        [PLACED, *UP, e.GangHeld("j", "quota", ""), *DOWN],
        [PLACED, *UP, DOWN[0], e.GangHeld("j", "quota", ""), *DOWN[1:]],
        [PLACED, e.RanksStarted("j", 1, (0,)), UP[1], *DOWN],
        [PLACED, e.RanksStarted("j", 1, (0, 0)), UP[1], *DOWN],
        [PLACED, *UP, e.RanksExited("j", 1, ENDS[:1]), *DOWN[1:]],
        [PLACED, *UP, e.RanksExited("j", 1, (ENDS[0], ENDS[0])), *DOWN[1:]],
        [PLACED, *UP, DOWN[0], e.JobFailed("j", "r", "m"), DOWN[2]],
        [PLACED, *UP, *DOWN, e.JobDeleteRequested("j")],
    ],
)
def test_any_other_life_is_left_alone(events):
    assert at_once(queued(), events) is None


def test_no_other_order_of_events_is_taken_for_a_usual_life():
    usual = [PLACED, *UP, *DOWN]
    for events in permutations(usual):
        assert (at_once(queued(), list(events)) is not None) == (list(events) == usual)


def test_a_job_that_is_not_queued_is_left_alone():
    job = one_by_one(queued(), [PLACED])
    assert at_once(job, [PLACED, *UP, *DOWN]) is None


# -------------------------------------------------------------------- many jobs at once


def some_log(dice: Random) -> list[e.Recorded]:
    """Lives of some jobs, shuffled into each other; some with a cause, some removed at the end."""
    lives: list[list[e.Event]] = []
    for number in range(dice.randint(1, 6)):
        job = f"j{number}"
        first = [e.JobSubmitted(job, "ns", job, spec()), e.GangPlaced(job, 1, PLACEMENT)]
        up = [e.RanksStarted(job, 1, (0, 1)), e.GangStarted(job, 1)]
        down = [e.RanksExited(job, 1, ENDS), e.JobSucceeded(job), e.AttemptEnded(job, 1)]
        life: list[e.Event] = [*first, *up, *down, e.JobRemoved(job, "ttl")]
        lives.append(life[: dice.choice([2, 4, 7, 7, 8, 8])])
    log: list[e.Recorded] = []
    while lives := [life for life in lives if life]:
        event = dice.choice(lives).pop(0)
        cause = dice.choice(["", "", "", f"c{len(log)}"])
        log.append(e.Recorded(len(log) + 1, 1_000.0 + len(log), event, cause))
    return log


@given(st.integers(0, 2**32))
def test_pages_of_any_size_give_the_state_of_event_by_event(seed):
    dice = Random(seed)
    log = some_log(dice)
    plain, by_pages, digest = State(), State(), codec.GENESIS
    for recorded in log:
        plain.apply(recorded)
    rows = codec.to_rows(log, codec.GENESIS)
    while rows:
        size = dice.randint(1, len(rows))
        digest = fold(by_pages, rows[:size], digest)
        rows = rows[size:]
    assert state_hash(by_pages) == state_hash(plain)
    assert by_pages.at == plain.at


@given(st.integers(0, 2**32))
def test_the_first_impossible_event_is_the_one_that_is_named(seed):
    dice = Random(seed)
    log = some_log(dice)
    for _ in range(dice.randint(1, 3)):
        # A second time, the same event mostly cannot happen.
        index = dice.randrange(len(log))
        log.insert(index, log[dice.randrange(len(log))])
    log = [e.Recorded(n, 1_000.0 + n, r.event, r.cause) for n, r in enumerate(log, start=1)]
    expected = first_impossible(log)
    rows = codec.to_rows(log, codec.GENESIS)
    if expected is None:
        fold(State(), rows, codec.GENESIS)
        return
    with pytest.raises(LogCorrupt) as found:
        fold(State(), rows, codec.GENESIS)
    assert found.value.position == expected


def first_impossible(log: list[e.Recorded]) -> int | None:
    state = State()
    for recorded in log:
        try:
            state.apply(recorded)
        except (AssertionError, LookupError):
            return recorded.position
    return None
