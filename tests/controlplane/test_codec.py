"""Events to rows and back."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.log import codec
from controlplane.model import events as e
from controlplane.model.cluster import NodeInfo
from controlplane.model.errors import LogCorrupt
from controlplane.model.owners import OwnedBy
from controlplane.model.reasons import JobRemovalReason
from controlplane.model.rows import GENESIS, Row
from controlplane.model.spec import JobSpec, Role, Scheduling
from controlplane.model.supplies import Supplies

# What JSON can hold: no halves of surrogates, no NaN, no infinity, integers of 63 bits.
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
st.register_type_strategy(str, texts)
st.register_type_strategy(int, st.integers(-(2**62), 2**62))
st.register_type_strategy(float, st.floats(allow_nan=False, allow_infinity=False))
anything = st.recursive(st.none() | st.booleans() | texts, lambda x: st.dictionaries(texts, x))
labels = st.dictionaries(texts, texts, max_size=2)
documents = st.dictionaries(texts, anything, max_size=2)
# Dictionaries are given by hand: their defaults are factories, which hypothesis takes for values.
for kind, given_by_hand in {
    Role: {"env": labels, "template": documents},
    Scheduling: {"selector": labels},
    Supplies: {"resources": labels},
    JobSpec: {
        "labels": labels,
        "annotations": labels,
        "options": documents,
        "hints": documents,
        "roles": st.lists(st.from_type(Role), max_size=2).map(tuple),
    },
    NodeInfo: {"labels": labels},
    OwnedBy: {"env": labels},
}.items():
    required = {
        f.encode_name: st.from_type(f.type)
        for f in msgspec.structs.fields(kind)
        if f.encode_name not in given_by_hand
    }
    st.register_type_strategy(kind, st.builds(kind, **required, **given_by_hand))
events = st.sampled_from(sorted(e.EVENT_TYPES)).flatmap(
    lambda name: st.from_type(e.EVENT_TYPES[name])
)
steps = st.integers(0, 2**62)
recordings = st.lists(
    st.tuples(st.floats(0, 4e9), events, texts, texts, texts, steps, steps), min_size=1, max_size=4
).map(lambda drafts: [e.Recorded(n, *draft) for n, draft in enumerate(drafts, start=1)])


def rows_of(batch):
    return codec.to_rows(batch, GENESIS)


@given(recordings)
def test_every_event_comes_back_as_it_was(batch):
    assert [codec.from_row(row) for row in rows_of(batch)] == batch


@given(recordings)
def test_a_row_comes_back_from_an_exported_line(batch):
    rows = rows_of(batch)
    assert [codec.from_line(codec.to_line(row)) for row in rows] == rows


def test_an_event_of_a_newer_release_is_refused_with_advice():
    row = Row(1, 1, 0, 1.0, "j1", "JobTeleported", 1, b"{}", "", "", "", b"")
    with pytest.raises(LogCorrupt, match="JobTeleported version 1 is unknown to this release"):
        codec.from_row(row)
    row = Row(1, 1, 0, 1.0, "j1", "JobRemoved", 7, b'{"job":"j1","reason":"ttl"}', "", "", "", b"")
    with pytest.raises(LogCorrupt, match="use a newer one"):
        codec.from_row(row)


def test_an_old_version_is_upcast_step_by_step(monkeypatch):
    """As if JobRemoved had been called JobDropped, and before that had no reason."""
    monkeypatch.setitem(
        codec.UPCASTS, ("JobDropped", 1), lambda f: ("JobDropped", 2, {**f, "why": "ttl"})
    )
    monkeypatch.setitem(
        codec.UPCASTS,
        ("JobDropped", 2),
        lambda f: ("JobRemoved", 1, {"job": f["job"], "reason": f["why"]}),
    )
    row = Row(1, 1, 0, 1.0, "j1", "JobDropped", 1, b'{"job":"j1"}', "", "", "", b"")

    assert codec.from_row(row).event == e.JobRemoved("j1", JobRemovalReason.TTL)


def test_nothing_makes_no_rows():
    assert codec.to_rows([], GENESIS) == []


@pytest.mark.parametrize(
    ("recorded", "error"),
    [
        (e.Recorded(1, "noon", e.JobSucceeded("j")), ValueError),
        (e.Recorded(1, None, e.JobSucceeded("j")), TypeError),
        (e.Recorded(object(), 1.5, e.JobSucceeded("j")), TypeError),
        (e.Recorded(1, 1.5, e.JobSucceeded("j"), object()), TypeError),
        (e.Recorded(1, 1.5, e.JobSucceeded("j"), "", "\ud800"), UnicodeEncodeError),
        (e.Recorded(1, 1.5, e.JobSucceeded("\ud800")), UnicodeEncodeError),
        (e.Recorded(1, 1.5, e.JobSucceeded(object())), TypeError),
    ],
)
def test_a_value_that_cannot_be_encoded_is_an_error(recorded, error):
    good = e.Recorded(1, 1.5, e.JobSucceeded("j"))
    with pytest.raises(error):
        codec.to_rows([good, recorded, good], GENESIS)


def test_a_payload_that_does_not_fit_its_type_is_named():
    row = Row(5, 1, 0, 1.0, "j1", "JobRemoved", 1, b'{"job":7}', "", "", "", b"")
    with pytest.raises(LogCorrupt, match="position 5"):
        codec.from_row(row)


def test_every_event_type_is_known_to_the_codec():
    def leaves(kind):
        below = kind.__subclasses__()
        return [x for each in below for x in leaves(each)] if below else [kind]

    assert {kind.__name__ for kind in leaves(e.Event)} == set(e.EVENT_TYPES)


@pytest.mark.parametrize("line", [b"", b"{", b"[]", b'{"position":1}', b"\xff", b"null"])
def test_a_broken_line_is_a_value_error(line):
    with pytest.raises(ValueError, match=r"\S"):
        codec.from_line(line)
