"""From rows to a state: the same in batches of any size, and refused at the first bad position."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.log import codec
from controlplane.log.fold import fold
from controlplane.log.hash_chain import link
from controlplane.log.snapshots import state_hash
from controlplane.model import events as e
from controlplane.model.cluster import NodeInfo, Slot
from controlplane.model.errors import LogCorrupt
from controlplane.model.failures import Cause, Exit
from controlplane.model.reasons import JobRemovalReason
from controlplane.model.rows import GENESIS
from controlplane.state.state import State
from tests.controlplane.specification import spec

PLACEMENT = (Slot("n1", (0, 1)), Slot("n2", (0,)))
EXITS = (Exit(0, 0), Exit(1, 0, Cause.COMPLETED, "done", ("bye",)))


def some_log(dice: Random) -> list[e.Recorded]:
    """Lives of some jobs, shuffled into each other; some with a cause, some removed at the end."""
    lives: list[list[e.Event]] = []
    for number in range(dice.randint(1, 6)):
        job = f"j{number}"
        first = [e.JobSubmitted(job, "ns", job, spec()), e.GangPlaced(job, 1, PLACEMENT)]
        up = [e.RanksStarted(job, 1, (0, 1)), e.GangStarted(job, 1)]
        down = [e.RanksExited(job, 1, EXITS), e.JobSucceeded(job), e.AttemptEnded(job, 1)]
        life: list[e.Event] = [*first, *up, *down, e.JobRemoved(job, JobRemovalReason.TTL)]
        lives.append(life[: dice.choice([2, 4, 7, 7, 8, 8])])
    log: list[e.Recorded] = []
    while lives := [life for life in lives if life]:
        event = dice.choice(lives).pop(0)
        cause = dice.choice(["", "", "", f"c{len(log)}"])
        log.append(e.Recorded(len(log) + 1, 1_000.0 + len(log), event, cause))
    return log


@given(st.integers(0, 2**32))
def test_batches_of_any_size_give_the_state_of_event_by_event(seed):
    dice = Random(seed)
    log = some_log(dice)
    plain, folded, digest, seen = State(), State(), GENESIS, list[e.Recorded]()
    for recorded in log:
        plain.apply(recorded)
    rows = codec.to_rows(log, GENESIS)
    last = rows[-1].hash
    while rows:
        size = dice.randint(1, len(rows))
        digest = fold(folded, rows[:size], digest, observe=seen.append)
        rows = rows[size:]
    assert state_hash(folded) == state_hash(plain)
    assert folded.at == plain.at
    assert digest == last
    assert seen == log


def test_no_rows_leave_state_and_hash_alone():
    state = State()
    assert fold(state, [], b"x" * 32) == b"x" * 32
    assert state_hash(state) == state_hash(State())


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
    rows = codec.to_rows(log, GENESIS)
    if expected is None:
        fold(State(), rows, GENESIS)
        return
    with pytest.raises(LogCorrupt, match="this cannot have happened") as refused:
        fold(State(), rows, GENESIS)
    assert refused.value.position == expected


def first_impossible(log: list[e.Recorded]) -> int | None:
    state = State()
    for recorded in log:
        try:
            state.apply(recorded)
        except (AssertionError, LookupError):
            return recorded.position
    return None


def test_a_changed_row_behind_an_impossible_one_is_not_named_first():
    nodes = [e.NodeReported(f"n{n}", NodeInfo(f"n{n}", 8)) for n in range(4)]
    batch = [*nodes[:2], e.JobSucceeded("j"), *nodes[2:]]
    rows = codec.to_rows([e.Recorded(n, 1.0, x) for n, x in enumerate(batch, 1)], GENESIS)
    rows[4] = rows[4]._replace(actor="bob")
    with pytest.raises(LogCorrupt) as refused:
        fold(State(), rows, GENESIS)
    assert refused.value.position == 3


def test_a_payload_that_cannot_be_read_is_named_by_its_position_and_type():
    (row,) = codec.to_rows([e.Recorded(1, 1.5, e.NodeLost("n"))], GENESIS)
    bad = row._replace(payload=b'{"node":7}')
    rows = [bad._replace(hash=link(GENESIS, bad))]
    with pytest.raises(LogCorrupt, match=r"NodeLost version 1 cannot be read: .*node") as refused:
        fold(State(), rows, GENESIS)
    assert refused.value.position == 1


def stepped(*numbers: tuple[int, int]) -> list[e.Recorded]:
    """Events with these steps and ordinals."""
    return [
        e.Recorded(
            position,
            1_000.0,
            e.TimePassed(),
            command="ReportTime" if ordinal else "",
            step=step,
            ordinal=ordinal,
        )
        for position, (step, ordinal) in enumerate(numbers, 1)
    ]


@pytest.mark.parametrize(
    "numbers",
    [
        [(1, 0), (1, 0), (2, 0)],
        [(1, 1), (1, 1), (1, 2), (1, 0), (2, 0), (2, 1)],
        [(1, 0), (1, 1), (1, 0), (1, 2), (2, 1)],
    ],
)
def test_steps_without_gaps_are_folded(numbers):
    log = stepped(*numbers)
    state = State()
    fold(state, codec.to_rows(log, GENESIS), GENESIS)
    assert (state.position, state.step) == (len(log), numbers[-1][0])


@pytest.mark.parametrize(
    ("numbers", "why"),
    [
        ([(1, 0), (3, 0)], "step 1 is followed by step 3"),
        ([(1, 0), (2, 0), (1, 0)], "step 2 is followed by step 1"),
        ([(2, 0)], "step 0 is followed by step 2"),
        ([(1, 2)], "command 0 of step 1 is followed by 2"),
        ([(1, 1), (1, 3)], "command 1 of step 1 is followed by 3"),
        ([(1, 1), (1, 2), (1, 1)], "command 2 of step 1 is followed by 1"),
        ([(1, 1), (2, 2)], "command 0 of step 2 is followed by 2"),
    ],
)
def test_a_log_whose_steps_have_gaps_is_refused_at_the_first_bad_position(numbers, why):
    log = stepped(*numbers)
    with pytest.raises(LogCorrupt, match=why) as refusal:
        fold(State(), codec.to_rows(log, GENESIS), GENESIS)
    assert refusal.value.position == len(log)


def test_a_snapshot_within_a_step_is_followed_by_the_next_command():
    log = stepped((1, 1), (1, 2), (1, 3))
    whole = State()
    for recorded in log[:2]:
        whole.apply(recorded)
    restored = State(whole.image())
    restored.apply(log[2])
    assert (restored.step, restored.step_commands) == (1, 3)
