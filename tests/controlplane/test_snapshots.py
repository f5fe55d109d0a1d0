"""A state as bytes and back: complete, in order, and ignored when it cannot be read."""

import msgspec
import pytest
from msgspec.structs import replace

from adapters.logs.memory_log import MemoryLog
from controlplane.log import snapshots
from controlplane.log.replay import open_snapshot, rebuild
from controlplane.log.snapshots import (
    FORMAT,
    FRAME_ITEMS,
    SnapshotEncoder,
    SnapshotUnreadable,
    read_snapshot,
    state_hash,
    take_snapshot,
)
from controlplane.model import commands as c
from controlplane.model import events as e
from controlplane.ports import StateSnapshot
from controlplane.state.image import Receipt
from tests.controlplane.specification import Given, exited, node, submit

SIZES = [0, 1, FRAME_ITEMS - 1, FRAME_ITEMS, FRAME_ITEMS + 1, 2 * FRAME_ITEMS + 7]


@pytest.fixture
def past() -> Given:
    """A job that ran and ended, and one that waits."""
    given = Given(node()).when(submit()).when_scheduled().later(5)
    given.when(c.ReportRanks(job="j1", attempt=1, started=(0, 1))).later(5)
    return given.when(exited(0)).later(5).when(exited(1)).later(5).when(submit("second", "j2"))


def test_a_state_comes_back_as_it_was(past):
    opened = open_snapshot(take_snapshot(past.world, b"x" * 32))

    assert opened.hash == b"x" * 32
    assert opened.world.image() == past.world.image()
    assert state_hash(opened.world) == state_hash(past.world)
    opened.world.check()


@pytest.mark.parametrize("jobs", SIZES)
@pytest.mark.parametrize("receipts", SIZES)
def test_jobs_and_receipts_keep_their_order_over_many_frames(past, jobs, receipts):
    state, job = past.world.state, past.world.jobs["j1"]
    state.jobs = {f"j{n}": replace(job, id=f"j{n}", name=f"train-{n}") for n in range(jobs)}
    state.receipts = {f"c{n}": Receipt(n, "j1") for n in range(receipts)}

    image = read_snapshot(take_snapshot(state, b""))

    assert image == state.image()


def test_a_snapshot_is_of_the_state_in_which_it_began(past, monkeypatch):
    monkeypatch.setattr(snapshots, "FRAME_ITEMS", 1)
    for number in range(10):
        past.when(submit(f"before-{number}", f"b{number}"))
    expected = take_snapshot(past.world, b"")
    encoder, turns = SnapshotEncoder(past.world, b""), 0
    while (made := encoder.encode_more()) is None:
        turns += 1
        past.when(submit(f"later-{turns}", f"k{turns}"))

    assert turns > 10
    assert made == expected


def damaged(body: bytes) -> dict[str, bytes]:
    head = msgspec.msgpack.encode([FORMAT + 1, {}])
    return {
        "empty": b"",
        "half a length": body[:3],
        "cut within the head": body[:40],
        "cut within a frame": body[:-1],
        "one byte too many": body + b"\0",
        "something else": b"\x93\x02\x80\x90",
        "another format": len(head).to_bytes(4) + head,
        "a later format": body[:5] + bytes([FORMAT + 1]) + body[6:],
    }


@pytest.mark.parametrize("how", damaged(b""))
async def test_a_snapshot_that_cannot_be_read_is_ignored(past, how):
    log = MemoryLog([e.Recorded(1, 1.0, e.EngineStarted(1, "0.1.0"))])
    whole = await rebuild(log)
    body = damaged(take_snapshot(past.world, b"").body)[how]

    with pytest.raises(SnapshotUnreadable):
        read_snapshot(StateSnapshot(1, body))
    await log.save_snapshot(StateSnapshot(1, body))
    again = await rebuild(log)
    assert again.since == 0
    assert state_hash(again.world) == state_hash(whole.world)
