"""Payloads read in one call: the same events as one by one, and nothing that a reader refuses."""

import msgspec
import pytest

from controlplane import codec
from controlplane import events as e
from controlplane.errors import LogCorrupt
from controlplane.folding import fold
from controlplane.payloads import read_all
from controlplane.state import State

READERS = {
    "JobSucceeded": (1, msgspec.json.Decoder(e.JobSucceeded).decode),
    "RanksStarted": (2, msgspec.json.Decoder(e.RanksStarted).decode),
    "Ünruhe": (1, msgspec.json.decode),
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
    readers = {name: (1, lambda _, name=name: name) for name in names[::2]}
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
    with pytest.raises((TypeError, ValueError)):
        read_all(types, versions, payloads, READERS)


def test_what_a_reader_raises_beside_refusals_is_heard_of():
    def fail(payload: bytes) -> None:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        read_all("A", [1], b"{}", {"A": (1, fail)})


def test_a_payload_that_cannot_be_read_is_named_by_its_position_and_type():
    bad = (1, 1.5, "node/n", "NodeLost", 1, b'{"node":7}', "", "")
    rows = [(*bad, codec.link(codec.GENESIS, *bad))]
    with pytest.raises(LogCorrupt, match=r"NodeLost version 1 cannot be read: .*node") as found:
        fold(State(), rows, codec.GENESIS)
    assert found.value.position == 1
