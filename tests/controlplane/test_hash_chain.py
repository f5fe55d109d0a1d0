"""Every field of every row is in the chain, and a change is detected at its position."""

from hashlib import sha256

import msgspec
import pytest
from hypothesis import given

from controlplane.log.codec import to_rows
from controlplane.log.hash_chain import check_chain, link
from controlplane.model import events as e
from controlplane.model.errors import LogCorrupt
from controlplane.model.reasons import JobRemovalReason
from controlplane.model.rows import GENESIS, Row
from tests.controlplane.specification import spec
from tests.controlplane.test_codec import recordings

SAMPLE = [
    e.Recorded(1, 1.0, e.EngineStarted(1, "0.1.0")),
    e.Recorded(2, 2.0, e.JobSubmitted("j1", "default", "train", spec()), "c1", "ann"),
    e.Recorded(3, 2.5, e.JobCancelled("j1"), "c2", "ann", "CancelJob", 2, 1),
    e.Recorded(4, 2.5, e.JobRemoved("j1", JobRemovalReason.TTL)),
]


def documented(batch, previous):
    """Rows as the module describes them, written independently of it."""
    rows = []
    for recorded in batch:
        event, kind = recorded.event, type(recorded.event)
        payload = msgspec.json.encode(event)
        place = (recorded.position, recorded.step, recorded.ordinal, float(recorded.at))
        before = (*place, event.stream, kind.__name__, kind.version)
        after = (recorded.command, recorded.cause, recorded.actor)
        previous = sha256(previous + msgspec.json.encode([*before, *after]) + payload).digest()
        rows.append((*before, payload, *after, previous))
    return rows


@given(recordings)
def test_rows_of_any_batch_are_chained_as_documented(batch):
    for previous in (GENESIS, bytes(range(32))):
        rows = to_rows(batch, previous)
        assert rows == documented(batch, previous)
        assert list(check_chain(rows, after=0, previous=previous)) == rows


@pytest.mark.parametrize("character", [chr(n) for n in range(300)] + ["\u2028", "\U0001f600"])
def test_any_character_is_hashed_as_it_is_written(character):
    word = f"{character}n{character}"
    batch = [
        e.Recorded(1, 2.5, e.JobSucceeded(word), character, word),
        e.Recorded(2, 2.5, e.NodeLost(word), word, character),
    ]
    rows = to_rows(batch, GENESIS)
    assert rows == documented(batch, GENESIS)
    assert list(check_chain(rows, after=0, previous=GENESIS)) == rows


@pytest.mark.parametrize(
    "at", [0.0, -0.0, 7, True, 1e-7, 5e-324, 1e16, 1e22, 1.7976931348623157e308]
)
@pytest.mark.parametrize("position", [0, 1, 10, 10**15, 2**62, 2**63 - 1])
def test_any_number_is_hashed_as_it_is_written(at, position):
    times = (at, 1.5, at, at)
    batch = [e.Recorded(position + n, x, e.JobSucceeded("j")) for n, x in enumerate(times)]
    rows = to_rows(batch, GENESIS)
    assert rows == documented(batch, GENESIS)
    assert [type(row.at) for row in rows] == [float] * 4
    assert list(check_chain(rows, after=position - 1, previous=GENESIS)) == rows


def check(rows, previous=GENESIS, after=0):
    return list(check_chain(rows, after=after, previous=previous))


def test_an_untouched_chain_is_accepted():
    rows = to_rows(SAMPLE, GENESIS)
    assert check(rows) == rows
    assert check([]) == []


def test_a_part_of_a_log_follows_the_hash_before_it_and_no_other():
    rows = to_rows(SAMPLE, GENESIS)
    assert check(rows[1:], rows[0].hash, after=1) == rows[1:]
    for previous in (GENESIS, rows[1].hash, b"", bytes(33)):
        with pytest.raises(LogCorrupt, match="position 2"):
            check(rows[1:], previous, after=1)


@pytest.mark.parametrize("index", range(4))
@pytest.mark.parametrize(
    ("field", "forged"),
    [
        ("step", 9),
        ("ordinal", 9),
        ("at", 9.0),
        ("stream", "x"),
        ("type", "JobSucceeded"),
        ("version", 2),
        ("payload", b"{}"),
        ("command", "x"),
        ("cause", "x"),
        ("actor", "x"),
        ("hash", b"x"),
    ],
)
def test_a_changed_field_is_detected_at_its_position(index, field, forged):
    rows = to_rows(SAMPLE, GENESIS)
    rows[index] = rows[index]._replace(**{field: forged})

    with pytest.raises(LogCorrupt) as refused:
        check(rows)
    assert refused.value.position == index + 1


@pytest.mark.parametrize("field", Row._fields[1:])
@pytest.mark.parametrize("nonsense", [None, 3, 1.5, "", b"", [None], "\ud800", object()])
def test_a_value_of_another_type_is_detected_at_its_position(field, nonsense):
    rows = to_rows(SAMPLE, GENESIS)
    rows[2] = rows[2]._replace(**{field: nonsense})

    with pytest.raises(LogCorrupt) as refused:
        check(rows)
    assert refused.value.position == 3


@pytest.mark.parametrize("index", range(1, 4))
def test_a_missing_row_is_detected(index):
    rows = to_rows(SAMPLE, GENESIS)
    del rows[index - 1]

    with pytest.raises(LogCorrupt) as refused:
        check(rows)
    assert refused.value.position == index


def test_swapped_and_repeated_rows_are_detected():
    a, b, c, d = to_rows(SAMPLE, GENESIS)
    for rows in ([a, c, b, d], [a, b, b, c, d], [a, b, c._replace(position=2), d]):
        with pytest.raises(LogCorrupt):
            check(rows)


def test_fields_cannot_be_shifted_into_one_another():
    row = to_rows(SAMPLE, GENESIS)[1]
    one = link(GENESIS, row._replace(stream="ab", type="c"))
    other = link(GENESIS, row._replace(stream="a", type="bc"))
    assert one != other
