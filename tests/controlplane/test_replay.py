"""The world at any position or instant, with a snapshot and without."""

import pytest

from adapters.logs.memory_log import MemoryLog
from controlplane.log import codec
from controlplane.log.replay import PAGE_ROWS, rebuild
from controlplane.log.snapshots import state_hash, take_snapshot
from controlplane.model import commands as c
from controlplane.model import events as e
from controlplane.model.errors import LogCorrupt
from controlplane.model.rows import GENESIS
from controlplane.state.world import World
from tests.controlplane.specification import Given, exited, node, submit


class Kept(Given):
    """A past that keeps what happened, and the hash of the state after each event."""

    def __init__(self, *past):
        self.log, self.hashes = [], [state_hash(World())]
        super().__init__(*past)

    def happened(self, *events, cause=""):
        for event in events:
            self.log.append(e.Recorded(self.world.position + 1, self.now, event, cause))
            super().happened(event, cause=cause)
            self.hashes.append(state_hash(self.world))
        return self


@pytest.fixture
def past():
    kept = Kept(node()).when(submit()).when_scheduled().later(5)
    kept.when(c.ReportRanks(job="j1", attempt=1, started=(0, 1))).later(5)
    kept.when(exited(0)).later(5).when(exited(1, 1)).later(5)
    return kept.when(c.CancelJob(id="cmd-2", namespace="default", name="train"))


async def test_any_position_gives_the_state_that_was_live_then(past):
    log = MemoryLog(past.log)
    for position, expected in enumerate(past.hashes):
        rebuilt = await rebuild(log, position=position)
        assert rebuilt.world.position == position
        assert state_hash(rebuilt.world) == expected


async def test_a_snapshot_and_the_tail_behind_it_give_the_same_states(past):
    log = MemoryLog(past.log)
    for position in (3, 6):
        early = await rebuild(log, position=position)
        await log.save_snapshot(take_snapshot(early.world, early.hash))

    for position, expected in enumerate(past.hashes):
        assert state_hash((await rebuild(log, position=position)).world) == expected
    assert state_hash((await rebuild(log)).world) == past.hashes[-1]


async def test_any_instant_gives_the_last_event_not_later(past):
    log = MemoryLog(past.log)
    for at in (0.0, 999.0, 1_000.0, 1_004.9, 1_005.0, 1_011.0, 9e9):
        last = max((r.position for r in past.log if r.at <= at), default=0)
        rebuilt = await rebuild(log, at=at)
        assert rebuilt.world.position == last
        rebuilt.world.check()


async def test_a_long_log_is_read_page_by_page():
    nodes = [e.NodeReported("n", node().info)] * (PAGE_ROWS + 7)
    log = MemoryLog([e.Recorded(n, 1.0, event) for n, event in enumerate(nodes, start=1)])

    assert (await rebuild(log)).world.position == PAGE_ROWS + 7
    assert (await rebuild(log, position=PAGE_ROWS + 3)).world.position == PAGE_ROWS + 3


async def test_a_log_that_cannot_have_happened_is_refused_with_the_position(past):
    impossible = e.Recorded(len(past.log) + 1, 2_000.0, e.JobSucceeded("j1"))
    log = MemoryLog([*past.log, impossible])

    with pytest.raises(LogCorrupt, match="this cannot have happened") as refused:
        await rebuild(log)
    assert refused.value.position == impossible.position


async def test_a_changed_row_is_detected_before_it_is_applied(past):
    class Forged(MemoryLog):
        async def read(self, after, limit):
            rows = list(await super().read(after, limit))
            forged = rows[3]
            rows[3] = forged._replace(payload=forged.payload.replace(b"j1", b"j2"))
            return rows

    with pytest.raises(LogCorrupt, match="hash") as refused:
        await rebuild(Forged(past.log))
    assert refused.value.position == 4


async def test_a_snapshot_of_another_log_does_not_fit(past):
    log, other = MemoryLog(past.log), Kept(node("elsewhere")).when(submit())
    other_log = MemoryLog(other.log)
    stray = await rebuild(other_log)
    await log.save_snapshot(take_snapshot(stray.world, stray.hash))

    with pytest.raises(LogCorrupt):
        await rebuild(log)


async def test_the_hash_of_a_state_does_not_depend_on_how_it_came_to_be(past):
    rows = codec.to_rows(past.log, GENESIS)
    log = MemoryLog([codec.from_row(row) for row in rows])

    assert state_hash((await rebuild(log)).world) == state_hash(past.world)
