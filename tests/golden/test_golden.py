"""Logs of every release still replay, byte for byte to the same state."""

import json
from pathlib import Path

import pytest

from controlplane import codec
from controlplane.folding import fold
from controlplane.ports import Snapshot
from controlplane.redeciding import Redecider
from controlplane.replay import open_snapshot, state_hash, take_snapshot
from controlplane.state import State
from controlplane.world import World

HERE = Path(__file__).parent
LOGS = sorted(HERE.glob("*.jsonl"))
# The others are histories drawn by chance, in which nothing was decided by an engine.
DECIDED = [
    path
    for path in LOGS
    if json.loads(path.with_suffix(".json").read_text()).get("decided_by_an_engine")
]


def rows_of(path: Path) -> list[codec.Row]:
    return [codec.from_line(line) for line in path.read_bytes().splitlines()]


def test_there_is_a_log_to_replay():
    assert LOGS
    assert DECIDED


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_an_old_log_replays_to_the_state_it_had_then(path):
    expected = json.loads(path.with_suffix(".json").read_text())
    state = State()
    fold(state, rows_of(path), codec.GENESIS)

    assert state.position == expected["position"]
    assert state_hash(state) == expected["state_hash"]
    World(state.image()).check()


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_an_old_log_is_written_today_as_it_was_then(path):
    """Only for events whose version has not changed since."""
    for row in rows_of(path):
        recorded = codec.from_row(row)
        if codec.EVENT_TYPES[row[3]].version == row[4]:
            again = codec.to_line(codec.to_rows([recorded], codec.GENESIS)[0])
            assert codec.from_line(again)[5] == row[5]


@pytest.mark.parametrize("path", DECIDED, ids=lambda path: path.stem)
def test_an_old_log_is_decided_today_as_it_was_then(path):
    """A release that decides otherwise on purpose says so in its changelog, and keeps its own."""
    redecider = Redecider(World())
    redecider.take(map(codec.from_row, rows_of(path)))
    redecider.finish()


@pytest.mark.parametrize("path", sorted(HERE.glob("*.snapshot")), ids=lambda path: path.stem)
def test_an_old_snapshot_and_the_log_behind_it_lead_to_the_same_state(path):
    """Of the first format, as 0.1.0 wrote it: an image as it is, with every job in full."""
    rows = rows_of(path.with_suffix(".jsonl"))
    rebuilt = open_snapshot(Snapshot(0, path.read_bytes()))
    assert 0 < rebuilt.world.position < len(rows)
    assert rebuilt.hash == rows[rebuilt.world.position - 1][8]

    fold(rebuilt.world, rows[rebuilt.world.position :], rebuilt.hash)

    expected = json.loads(path.with_suffix(".json").read_text())
    assert state_hash(rebuilt.world) == expected["state_hash"]


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_a_snapshot_of_an_old_log_holds_all_of_it(path):
    state = State()
    digest = fold(state, rows_of(path), codec.GENESIS)

    opened = open_snapshot(take_snapshot(state, digest))

    assert state_hash(opened.world) == state_hash(state)
    assert opened.world.image(opened.hash) == state.image(digest)


def test_every_type_of_event_is_in_some_log():
    assert {row[3] for path in LOGS for row in rows_of(path)} >= set(codec.EVENT_TYPES)
