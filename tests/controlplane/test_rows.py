"""Rows made of a whole batch: each is what `link` makes of it by itself."""

from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given

from controlplane import codec
from controlplane import events as e
from controlplane.rows import chained
from tests.controlplane.test_codec import recordings

KINDS = {e.JobSucceeded: ("JobSucceeded", 1, True), e.NodeLost: ("NodeLost", 1, False)}


def one_by_one(batch, previous):
    """Field by field, as the codec says that a row is chained."""
    rows = []
    for recorded in batch:
        kind, event = type(recorded.event), recorded.event
        payload = msgspec.json.encode(event)
        fields = (recorded.position, float(recorded.at), event.stream, kind.__name__, kind.version)
        row = (*fields, payload, recorded.cause, recorded.actor)
        previous = codec.link(previous, *row)
        rows.append((*row, previous))
    return rows


@given(recordings)
def test_rows_of_any_batch_are_those_of_its_events(batch):
    for previous in (codec.GENESIS, bytes(range(32))):
        assert codec.to_rows(batch, previous) == one_by_one(batch, previous)
    assert codec.to_rows(tuple(batch), codec.GENESIS) == codec.to_rows(batch, codec.GENESIS)


@pytest.mark.parametrize("character", [chr(n) for n in range(300)] + ["\u2028", "\U0001f600"])
def test_any_character_is_hashed_as_it_is_written(character):
    word = f"{character}n{character}"
    batch = [
        e.Recorded(1, 2.5, e.JobSucceeded(word), character, word),
        e.Recorded(2, 2.5, e.NodeLost(word), word, character),
    ]
    assert codec.to_rows(batch, codec.GENESIS) == one_by_one(batch, codec.GENESIS)


@pytest.mark.parametrize(
    "at", [0.0, -0.0, 7, True, 1e-7, 5e-324, 1e16, 1e22, 1.7976931348623157e308]
)
@pytest.mark.parametrize("position", [0, 1, 10, 2**62, 2**63 - 1, 2**63, 2**70, -1, -(2**63)])
def test_any_number_is_hashed_as_it_is_written(at, position):
    batch = [e.Recorded(position, x, e.JobSucceeded("j")) for x in (at, 1.5, at, at)]
    rows = codec.to_rows(batch, codec.GENESIS)
    assert rows == one_by_one(batch, codec.GENESIS)
    assert [type(row[1]) for row in rows] == [float] * 4


def test_nothing_makes_no_rows():
    assert codec.to_rows([], codec.GENESIS) == []


@pytest.mark.parametrize(
    ("recorded", "error"),
    [
        (e.Recorded(1, 1.5, e.GangStarted("j", 1)), KeyError),
        (e.Recorded(1, "noon", e.JobSucceeded("j")), ValueError),
        (e.Recorded(1, None, e.JobSucceeded("j")), TypeError),
        (e.Recorded(object(), 1.5, e.JobSucceeded("j")), TypeError),
        (e.Recorded(1, 1.5, e.JobSucceeded("j"), object()), TypeError),
        (e.Recorded(1, 1.5, e.JobSucceeded("j"), "", "\ud800"), UnicodeEncodeError),
        (e.Recorded(1, 1.5, e.JobSucceeded("\ud800")), UnicodeEncodeError),
        (e.Recorded(1, 1.5, e.JobSucceeded(object())), TypeError),
        (SimpleNamespace(position=1, at=1.5, event=e.JobSucceeded("j"), cause=""), AttributeError),
        (SimpleNamespace(position=1, at=1.5, cause="", actor=""), AttributeError),
        (None, AttributeError),
    ],
)
def test_what_cannot_be_written_is_said(recorded, error):
    good = e.Recorded(1, 1.5, e.JobSucceeded("j"))
    with pytest.raises(error):
        chained([good, recorded, good], codec.GENESIS, KINDS)


def test_what_is_no_batch_is_said():
    for batch in (None, 3):
        with pytest.raises(TypeError):
            chained(batch, codec.GENESIS, KINDS)
