"""Events to rows and back, and a chain that shows every change."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane import codec
from controlplane import events as e
from controlplane.errors import LogCorrupt
from controlplane.model import JobSpec, NodeInfo, Role, Scheduling
from controlplane.supplies import Supplies
from tests.controlplane.specification import spec

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
        "roles": st.lists(st.from_type(Role), max_size=2).map(tuple),
    },
    NodeInfo: {"labels": labels},
}.items():
    required = {
        f.encode_name: st.from_type(f.type)
        for f in msgspec.structs.fields(kind)
        if f.encode_name not in given_by_hand
    }
    st.register_type_strategy(kind, st.builds(kind, **required, **given_by_hand))
events = st.sampled_from(sorted(codec.EVENT_TYPES)).flatmap(
    lambda name: st.from_type(codec.EVENT_TYPES[name])
)
recordings = st.lists(
    st.tuples(st.floats(0, 4e9), events, texts, texts), min_size=1, max_size=4
).map(
    lambda drafts: [
        e.Recorded(n, at, event, cause, actor)
        for n, (at, event, cause, actor) in enumerate(drafts, start=1)
    ]
)


def rows_of(batch):
    return codec.to_rows(batch, codec.GENESIS)


@given(recordings)
def test_every_event_comes_back_as_it_was(batch):
    assert [codec.from_row(row) for row in rows_of(batch)] == batch


@given(recordings)
def test_a_row_comes_back_from_an_exported_line(batch):
    rows = rows_of(batch)
    assert [codec.from_line(codec.to_line(row)) for row in rows] == rows


SAMPLE = [
    e.Recorded(1, 1.0, e.EngineStarted(1, "0.1.0")),
    e.Recorded(2, 2.0, e.JobSubmitted("j1", "default", "train", spec()), "c1", "ann"),
    e.Recorded(3, 2.5, e.JobCancelled("j1"), "c2", "ann"),
    e.Recorded(4, 2.5, e.JobRemoved("j1", "ttl")),
]


def check(rows):
    list(codec.check_chain(rows, after=0, previous=codec.GENESIS))


def test_an_untouched_chain_is_found_right():
    check(rows_of(SAMPLE))


@pytest.mark.parametrize("index", range(4))
@pytest.mark.parametrize(
    ("field", "forged"),
    [(1, 9.0), (2, "x"), (3, "JobSucceeded"), (4, 2), (5, b"{}"), (6, "x"), (7, "x"), (8, b"x")],
)
def test_a_changed_field_is_found_at_its_position(index, field, forged):
    rows = rows_of(SAMPLE)
    rows[index] = (*rows[index][:field], forged, *rows[index][field + 1 :])

    with pytest.raises(LogCorrupt) as found:
        check(rows)
    assert found.value.position == index + 1


@pytest.mark.parametrize("index", range(1, 4))
def test_a_missing_row_is_found(index):
    rows = rows_of(SAMPLE)
    del rows[index - 1]

    with pytest.raises(LogCorrupt) as found:
        check(rows)
    assert found.value.position == index


def test_swapped_and_repeated_rows_are_found():
    a, b, c, d = rows_of(SAMPLE)
    for rows in ([a, c, b, d], [a, b, b, c, d], [a, b, (2, *c[1:]), d]):
        with pytest.raises(LogCorrupt):
            check(rows)


def test_fields_cannot_be_shifted_into_one_another():
    one = codec.link(b"", 1, 1.0, "ab", "c", 1, b"", "", "")
    other = codec.link(b"", 1, 1.0, "a", "bc", 1, b"", "", "")
    assert one != other


def test_an_event_of_a_newer_release_is_refused_with_advice():
    row = (1, 1.0, "j1", "JobTeleported", 1, b"{}", "", "", b"")
    with pytest.raises(LogCorrupt, match="JobTeleported version 1 is unknown to this release"):
        codec.from_row(row)
    row = (1, 1.0, "j1", "JobRemoved", 7, b'{"job":"j1","reason":"ttl"}', "", "", b"")
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
    row = (1, 1.0, "j1", "JobDropped", 1, b'{"job":"j1"}', "", "", b"")

    assert codec.from_row(row).event == e.JobRemoved("j1", "ttl")


def test_a_payload_that_does_not_fit_its_type_is_named():
    row = (5, 1.0, "j1", "JobRemoved", 1, b'{"job":7}', "", "", b"")
    with pytest.raises(LogCorrupt, match="position 5"):
        codec.from_row(row)


def test_every_event_type_is_known_to_the_codec():
    def leaves(kind):
        below = kind.__subclasses__()
        return [x for each in below for x in leaves(each)] if below else [kind]

    assert {kind.__name__ for kind in leaves(e.Event)} == set(codec.EVENT_TYPES)


@pytest.mark.parametrize("line", [b"", b"{", b"[]", b'{"position":1}', b"\xff", b"null"])
def test_a_broken_line_is_a_value_error(line):
    with pytest.raises(ValueError, match=r"\S"):
        codec.from_line(line)
