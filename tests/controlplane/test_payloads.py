"""Payloads read in one call: the same events as one by one, and nothing that a reader refuses."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane import codec
from controlplane import events as e
from controlplane.errors import LogCorrupt
from controlplane.folding import fold
from controlplane.payloads import forget, read_alike, read_all
from controlplane.state import State
from tests.controlplane.test_codec import events, texts

READERS = {
    "JobSucceeded": (1, msgspec.json.Decoder(e.JobSucceeded).decode, True),
    "RanksStarted": (2, msgspec.json.Decoder(e.RanksStarted).decode, False),
    "Ünruhe": (1, msgspec.json.decode, True),
}
STARTED = b'{"job":"j","attempt":1,"ranks":[0]}'


def test_events_come_in_the_order_of_their_rows():
    types = "JobSucceeded\nRanksStarted\nÜnruhe\nJobSucceeded"
    payloads = b'{"job":"a"}\n' + STARTED + b'\n[1]\n{"job":"b"}'
    found = read_all(types, [1, 2, 1, 1], payloads, READERS)
    started = e.RanksStarted("j", 1, (0,))
    assert found == [e.JobSucceeded("a"), started, [1], e.JobSucceeded("b")]


@pytest.mark.parametrize(
    ("name", "version", "payload"),
    [
        ("JobFailed", 1, b'{"job":"a"}'),
        ("", 1, b'{"job":"a"}'),
        ("JobSucceede", 1, b'{"job":"a"}'),
        ("JobSucceeded", 2, b'{"job":"a"}'),
        ("JobSucceeded", None, b'{"job":"a"}'),
        ("JobSucceeded", "1", b'{"job":"a"}'),
        ("RanksStarted", 1, STARTED),
        ("JobSucceeded", 1, b'{"job":1}'),
        ("JobSucceeded", 1, b""),
        ("JobSucceeded", 1, b'{"job":"\xff"}'),
    ],
)
def test_what_no_reader_takes_is_left_out(name, version, payload):
    types, payloads = f"{name}\nJobSucceeded", payload + b'\n{"job":"b"}'
    assert read_all(types, [version, 1], payloads, READERS) == [None, e.JobSucceeded("b")]


def test_there_may_be_any_number_of_types():
    names = [f"Type{number}" for number in range(100)]
    readers = {name: (1, lambda _, name=name: name, False) for name in names[::2]}
    types = "\n".join([*names, *names])
    found = read_all(types, [1] * 200, b"\n" * 199, readers)
    assert found == [name if name in readers else None for name in [*names, *names]]


@pytest.mark.parametrize(
    ("types", "versions", "payloads"),
    [
        ("JobSucceeded", [1, 1], b"{}"),
        ("JobSucceeded", [], b"{}"),
        ("JobSucceeded\nJobSucceeded", [1], b"{}\n{}"),
        ("JobSucceeded", [1], b"{}\n{}"),
        ("JobSucceeded\n", [1, 1], b"{}"),
        ("JobSucceeded\n", [1], b"{}"),
        (b"JobSucceeded", [1], b"{}"),
        ("JobSucceeded", [1], "{}"),
        ("JobSucceeded", 1, b"{}"),
        (None, None, None),
    ],
)
def test_what_are_no_columns_is_said(types, versions, payloads):
    for read in (read_all, read_alike):
        with pytest.raises((TypeError, ValueError)):
            read(types, versions, payloads, READERS)


def test_what_a_reader_raises_beside_refusals_is_heard_of():
    def fail(payload: bytes) -> None:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        read_all("A", [1], b"{}", {"A": (1, fail, False)})
    for payload in (b"{}", b'{"job":"j"}'):
        with pytest.raises(RuntimeError, match="broken"):
            read_alike("A", [1], payload, {"A": (1, fail, True)})


def test_a_payload_that_cannot_be_read_is_named_by_its_position_and_type():
    bad = (1, 1.5, "node/n", "NodeLost", 1, b'{"node":7}', "", "")
    rows = [(*bad, codec.link(codec.GENESIS, *bad))]
    with pytest.raises(LogCorrupt, match=r"NodeLost version 1 cannot be read: .*node") as found:
        fold(State(), rows, codec.GENESIS)
    assert found.value.position == 1


# -------------------------------------------------------------------- what is said of many jobs

# Every event of a job may be said of another one.
ALIKE = {
    name: (kind.version, codec.decoder_of(name), issubclass(kind, e.JobEvent))
    for name, kind in codec.EVENT_TYPES.items()
}


def same_either_way(types: list[str], versions: list[int], payloads: list[bytes]) -> None:
    """What is read of jobs beside their events is what is read of the events themselves."""
    columns = "\n".join(types), versions, b"\n".join(payloads), ALIKE
    expected = read_all(*columns)
    # What comes again is kept, and what was kept is found.
    for _ in range(3):
        jobs, found = read_alike(*columns)
        whole = [
            event if job is None else msgspec.structs.replace(event, job=job)
            for job, event in zip(jobs, found, strict=True)
        ]
        assert whole == expected
        assert [codec.encode(event) for event in whole] == [codec.encode(x) for x in expected]


@given(st.lists(st.tuples(events, st.lists(texts, min_size=1, max_size=3)), min_size=1, max_size=5))
def test_what_is_said_of_several_jobs_is_said_of_each(drafts):
    said = [
        msgspec.structs.replace(event, job=job) if isinstance(event, e.JobEvent) else event
        for event, jobs in drafts
        for job in jobs
    ]
    names = [type(event).__name__ for event in said]
    same_either_way(names, [1] * len(said), [codec.encode(event) for event in said])


@pytest.mark.parametrize(
    "payload",
    [
        b'{"job":"a","attempt":1}',
        # What is written in another way.
        b'{"job": "a","attempt":1}',
        b'{"attempt":1,"job":"a"}',
        b' {"job":"a","attempt":1}',
        b'{"job":"a","attempt":1} ',
        # Who is named twice.
        b'{"job":"a","job":"b","attempt":1}',
        b'{"job":"a","attempt":1,"job":""}',
        b'{"job":"a","attempt":1,"\\u006aob":""}',
        # Ids that are not what they look like.
        b'{"job":"\\u0061","attempt":1}',
        b'{"job":"a\\"","attempt":1}',
        b'{"job":"\xc3\xa4","attempt":1}',
        b'{"job":"\xff","attempt":1}',
        b'{"job":"\x00","attempt":1}',
        b'{"job":"","attempt":1}',
        b'{"job":"' + b"a" * 600 + b'","attempt":1}',
        # What is no event.
        b'{"job":"a"}',
        b'{"job":"a',
        b'{"job":"a"',
        b'{"job":"',
        b'{"job":"a","attempt":1',
        b'{"job":"a","attempt":1}}',
        b'{"job":"a","attempt":"1"}',
        b'{"job":"a","attempt":1,"new":2}',
        b'{"job":"a","attempt":1,' + b" " * 600 + b'"new":2}',
        b'{"job":null,"attempt":1}',
    ],
)
def test_whatever_is_written_is_read_as_it_is(payload):
    good = b'{"job":"j","attempt":1}'
    same_either_way(["GangStarted"] * 3, [1] * 3, [good, payload, good])


def test_the_same_words_of_another_type_are_another_event():
    payload = b'{"job":"a","attempt":1}'
    same_either_way(["GangStarted", "AttemptEnded", "GangStarted"], [1] * 3, [payload] * 3)
    same_either_way(["GangStarted"] * 3, [1, 2, 1], [payload] * 3)


def test_however_much_is_said_all_of_it_is_read():
    said = [e.RanksStarted(f"j{n}", n, (n,)) for n in range(40_000)]
    same_either_way(
        ["RanksStarted"] * len(said), [1] * len(said), [codec.encode(event) for event in said]
    )
    forget()
    same_either_way(["RanksStarted"], [1], [codec.encode(said[7])])
