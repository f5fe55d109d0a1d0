"""Logs of every release still replay, byte for byte to the same state."""

import hashlib
import json
from pathlib import Path

import pytest

from controlplane.audit.redecide import DecisionVerifier
from controlplane.log import codec
from controlplane.log.fold import fold
from controlplane.log.replay import open_snapshot
from controlplane.log.snapshots import state_hash, take_snapshot
from controlplane.model import events as e
from controlplane.model.rows import GENESIS, Row
from controlplane.ports import StateSnapshot
from controlplane.state.state import State
from controlplane.state.world import World

HERE = Path(__file__).parent
LOGS = sorted(HERE.glob("*.jsonl"))
# The others are histories drawn by chance, in which nothing was decided by an engine.
DECIDED = [
    path
    for path in LOGS
    if json.loads(path.with_suffix(".json").read_text()).get("decided_by_an_engine")
]


def rows_of(path: Path) -> list[Row]:
    return [codec.from_line(line) for line in path.read_bytes().splitlines()]


def test_there_is_a_log_to_replay():
    assert LOGS
    assert DECIDED


def test_the_logs_are_as_they_were_recorded():
    """A log that no longer replays needs an upcast or a default; it is not recorded again."""
    lines = (HERE / "SHA256SUMS").read_text().splitlines()
    recorded = {name: digest for digest, name in (line.split() for line in lines)}
    assert recorded == {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in LOGS}


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_an_old_log_replays_to_the_state_it_had_then(path):
    expected = json.loads(path.with_suffix(".json").read_text())
    state = State()
    fold(state, rows_of(path), GENESIS)

    assert state.position == expected["position"]
    assert state_hash(state) == expected["state_hash"]
    World(state.image()).check()


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_an_old_log_is_written_today_as_it_was_then(path):
    """Only for events whose version has not changed since."""
    for row in rows_of(path):
        recorded = codec.from_row(row)
        if e.EVENT_TYPES[row.type].version == row.version:
            again = codec.to_line(codec.to_rows([recorded], GENESIS)[0])
            assert codec.from_line(again).payload == row.payload


@pytest.mark.parametrize("path", DECIDED, ids=lambda path: path.stem)
def test_an_old_log_is_decided_today_as_it_was_then(path):
    """A release that decides otherwise on purpose has that in its changelog, and keeps its own."""
    verifier = DecisionVerifier(World())
    verifier.take(map(codec.from_row, rows_of(path)))
    verifier.finish()


@pytest.mark.parametrize("path", sorted(HERE.glob("*.snapshot")), ids=lambda path: path.stem)
def test_an_old_snapshot_and_the_log_behind_it_lead_to_the_same_state(path):
    rows = rows_of(path.with_suffix(".jsonl"))
    rebuilt = open_snapshot(StateSnapshot(0, path.read_bytes()))
    assert 0 < rebuilt.world.position < len(rows)
    assert rebuilt.hash == rows[rebuilt.world.position - 1].hash

    fold(rebuilt.world, rows[rebuilt.world.position :], rebuilt.hash)

    expected = json.loads(path.with_suffix(".json").read_text())
    assert state_hash(rebuilt.world) == expected["state_hash"]


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_a_snapshot_of_an_old_log_holds_all_of_it(path):
    state = State()
    digest = fold(state, rows_of(path), GENESIS)

    opened = open_snapshot(take_snapshot(state, digest))

    assert state_hash(opened.world) == state_hash(state)
    assert opened.world.image(opened.hash) == state.image(digest)


def test_every_type_of_event_is_in_some_log():
    assert {row.type for path in LOGS for row in rows_of(path)} >= set(e.EVENT_TYPES)
