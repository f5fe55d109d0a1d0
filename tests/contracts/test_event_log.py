"""What every EventLog promises, whatever keeps it.

A store is the place where a log is kept; each time it is opened there is one more handle on the
same log. Another adapter joins by adding its store to `STORES`.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.clocks.asyncio_clock import AsyncioClock
from adapters.database.event_log import DatabaseLog
from adapters.logs.follower import follow
from adapters.logs.memory_log import MemoryLog
from controlplane import ports
from controlplane.log.codec import from_line, from_row, to_line, to_rows
from controlplane.log.hash_chain import check_chain
from controlplane.model.errors import LogConflict
from controlplane.model.events import NodeLost, Recorded
from controlplane.model.rows import GENESIS, Row
from controlplane.ports import SNAPSHOTS_KEPT, EventLog, Head, StateSnapshot

# -------------------------------------------------------------------- stores


class Store:
    """Handles on one log; all are closed at the end."""

    def __init__(self, opened: Callable[[], Awaitable[EventLog]]) -> None:
        self._opened = opened
        self._handles: list[EventLog] = []

    async def open(self) -> EventLog:
        self._handles.append(await self._opened())
        return self._handles[-1]

    async def close(self) -> None:
        for handle in self._handles:
            await handle.close()


def memory_store(request):
    log = MemoryLog()

    async def opened():
        return log

    return opened


def sqlite_store(request):
    folder = request.getfixturevalue("tmp_path_factory").mktemp("log")
    return lambda: DatabaseLog.open(folder / "muster.db")


def postgres_store(request):
    url, name = request.getfixturevalue("postgres_url"), f"log-{next(SCHEMAS)}"
    return lambda: DatabaseLog.open(url, schema_name=name)


SCHEMAS = count(1)
STORES = {"memory": memory_store, "sqlite": sqlite_store, "postgres": postgres_store}


@pytest.fixture(params=STORES, scope="module")
def new_store(request):
    """A context in which there is a new and empty store."""

    @asynccontextmanager
    async def new_store():
        store = Store(STORES[request.param](request))
        try:
            yield store
        finally:
            await store.close()

    return new_store


@pytest.fixture
async def store(new_store):
    async with new_store() as store:
        yield store


@pytest.fixture
async def log(store):
    return await store.open()


# -------------------------------------------------------------------- events


def some(first: int, count: int, *, node: str = "n1", message: str = "gone") -> list[Recorded]:
    """Events at the positions from `first` on."""
    return [
        Recorded(
            position, position / 7, NodeLost(node, detail=f"{message} {position}"), "c1", "ann",
            command="ReportNodeLost", step=position // 2, ordinal=1 + position % 2,
        )
        for position in range(first, first + count)
    ]  # fmt: skip


async def everything(log: EventLog) -> list:
    return list(await log.read(0, 1_000_000))


async def state(log: EventLog) -> tuple:
    return await log.head(), await everything(log)


# -------------------------------------------------------------------- reading and writing


async def test_an_empty_log_ends_before_the_first_position(log):
    assert await state(log) == (Head(0, GENESIS, 0), [])
    assert await log.latest_snapshot() is None


async def test_events_come_back_as_rows_whose_chain_the_codec_alone_decides(log):
    # As the expectation knows no adapter, equal events have equal hashes in all of them.
    first, second = some(1, 3), some(4, 2)
    epoch = (await log.lead()).epoch
    await log.append(first, epoch=epoch)
    await log.append(second, epoch=epoch)

    rows = await everything(log)

    assert rows == to_rows(first + second, GENESIS)
    assert all(type(row) is Row for row in rows)
    assert [[type(field) for field in row] for row in rows] == (
        [[int, int, int, float, str, str, int, bytes, str, str, str, bytes]] * 5
    )
    assert list(check_chain(rows, after=0, previous=GENESIS)) == rows
    assert await log.head() == Head(5, rows[-1].hash, epoch)


async def test_rows_survive_export_and_import(log):
    await log.append(some(1, 5, message="ünï\n✓"), epoch=(await log.lead()).epoch)

    rows = await everything(log)

    assert [from_line(to_line(row)) for row in rows] == rows


@pytest.mark.parametrize(
    "text",
    ["", " ", '"\\/', "naïve ✓ 日本語 🚀", "\n\r\t\x01\x7f", "\u2028\ufeff\uffff", "x" * 1_000_000],
    ids=["empty", "space", "quotes", "unicode", "control", "odd", "1 MB"],
)
async def test_any_text_comes_back_as_it_was(log, text):
    event = Recorded(1, 1e9 + 1 / 3, NodeLost(text, detail=text), text[:200], text[:200])
    await log.append([event], epoch=(await log.lead()).epoch)

    (row,) = await everything(log)

    assert row == to_rows([event], GENESIS)[0]
    assert from_row(row) == event


async def test_a_message_with_a_null_comes_back_as_it_was(log):
    event = Recorded(1, 1.0, NodeLost("n1", detail="\0 and \ud7ff"))
    await log.append([event], epoch=(await log.lead()).epoch)

    assert [from_row(row) for row in await everything(log)] == [event]


@pytest.mark.parametrize("at", [0, 7, 5e-324, 0.1 + 0.2, 1_700_000_000.123456, 2.0**53, 1.7e308])
async def test_a_time_comes_back_to_the_last_bit(log, at):
    await log.append([Recorded(1, at, NodeLost("n1"))], epoch=(await log.lead()).epoch)

    (row,) = await everything(log)

    assert row.at == at
    assert list(check_chain([row], after=0, previous=GENESIS)) == [row]
    assert list(check_chain([from_line(to_line(row))], after=0, previous=GENESIS)) == [row]


@pytest.mark.parametrize("size", [1, 9, 10, 11, 99, 100, 101, 234, 1000])
async def test_a_batch_may_have_any_size(log, size):
    epoch = (await log.lead()).epoch
    await log.append(some(1, size), epoch=epoch)
    await log.append(some(size + 1, 1), epoch=epoch)

    assert await everything(log) == to_rows(some(1, size + 1), GENESIS)


async def test_an_empty_batch_changes_nothing(log):
    epoch = (await log.lead()).epoch
    await log.append(some(1, 1), epoch=epoch)
    before = await state(log)

    await log.append([], epoch=epoch)

    assert await state(log) == before


async def test_pages_are_cut_where_the_reader_asks(log):
    await log.append(some(1, 10), epoch=(await log.lead()).epoch)
    rows = await everything(log)

    for after in range(12):
        for limit in range(1, 12):
            assert list(await log.read(after, limit)) == rows[after : after + limit]


async def test_a_stream_can_be_read_between_any_two_positions(log):
    epoch = (await log.lead()).epoch
    for n in range(12):
        await log.append(some(n + 1, 1, node=f"n{n % 3}"), epoch=epoch)
    rows = await everything(log)

    for after in range(13):
        for upto in range(after, 14):
            mine = [row for row in rows[after:upto] if row.stream == "node/n1"]
            assert list(await log.read_stream("node/n1", after, upto)) == mine
    assert list(await log.read_stream("node/none", 0, 99)) == []


async def test_appends_under_way_together_keep_their_order(log):
    epoch = (await log.lead()).epoch

    await asyncio.gather(*(log.append(some(1 + 3 * n, 3), epoch=epoch) for n in range(20)))

    assert await everything(log) == to_rows(some(1, 60), GENESIS)


async def test_what_one_handle_appends_another_reads(store):
    writer, reader = await store.open(), await store.open()
    await writer.append(some(1, 3), epoch=(await writer.lead()).epoch)

    assert await state(reader) == await state(writer)


async def test_a_log_is_the_same_after_it_was_closed_and_opened(store):
    log = await store.open()
    await log.append(some(1, 3), epoch=(await log.lead()).epoch)
    await log.save_snapshot(StateSnapshot(2, b"a world"))
    before = await state(log)
    await log.close()

    log = await store.open()

    assert await state(log) == before
    assert await log.latest_snapshot() == StateSnapshot(2, b"a world")
    await log.append(some(4, 1), epoch=(await log.lead()).epoch)
    assert await everything(log) == to_rows(some(1, 4), GENESIS)


async def test_a_log_may_be_closed_twice(log):
    await log.close()
    await log.close()


# -------------------------------------------------------------------- the fence


async def test_each_leader_has_a_higher_epoch(store):
    one, other = await store.open(), await store.open()

    epochs = [(await log.lead()).epoch for log in (one, other, one, other)]

    assert epochs == [1, 2, 3, 4]
    assert (await one.head()).epoch == 4


@pytest.mark.parametrize("position", [1, 2, 3, 5, 1000])
async def test_an_append_that_is_not_right_behind_the_head_changes_nothing(log, position):
    epoch = (await log.lead()).epoch
    await log.append(some(1, 3), epoch=epoch)
    before = await state(log)

    with pytest.raises(LogConflict):
        await log.append(some(position, 2), epoch=epoch)

    assert await state(log) == before
    await log.append(some(4, 1), epoch=epoch)


@pytest.mark.parametrize("positions", [[4, 6], [4, 4], [5, 4]])
async def test_a_batch_with_a_hole_changes_nothing(log, positions):
    epoch = (await log.lead()).epoch
    await log.append(some(1, 3), epoch=epoch)
    before = await state(log)

    with pytest.raises((AssertionError, LogConflict)):
        await log.append([some(position, 1)[0] for position in positions], epoch=epoch)

    assert await state(log) == before
    await log.append(some(4, 1), epoch=epoch)


@pytest.mark.parametrize("epoch", [0, 1, 3])
async def test_an_append_with_another_epoch_changes_nothing(log, epoch):
    await log.lead()
    assert (await log.lead()).epoch == 2
    await log.append(some(1, 2), epoch=2)
    before = await state(log)

    with pytest.raises(LogConflict):
        await log.append(some(3, 1), epoch=epoch)

    assert await state(log) == before
    await log.append(some(3, 1), epoch=2)


async def test_no_append_succeeds_before_an_engine_leads(log):
    with pytest.raises(LogConflict):
        await log.append(some(1, 1), epoch=1)

    assert await everything(log) == []


async def test_a_leader_that_was_replaced_stays_out_until_it_leads_again(store):
    old, new = await store.open(), await store.open()
    stale = (await old.lead()).epoch
    await old.append(some(1, 2, node="old"), epoch=stale)
    current = (await new.lead()).epoch

    with pytest.raises(LogConflict):
        await old.append(some(3, 1, node="stale"), epoch=stale)
    await new.append(some(3, 2, node="new"), epoch=current)
    for position in (3, 5):
        with pytest.raises(LogConflict):
            await old.append(some(position, 1, node="stale"), epoch=stale)
    head = await old.lead()
    assert head.position == 4
    await old.append(some(5, 1, node="back"), epoch=head.epoch)
    with pytest.raises(LogConflict):
        await new.append(some(6, 1, node="new"), epoch=current)

    expected = some(1, 2, node="old") + some(3, 2, node="new") + some(5, 1, node="back")
    assert await everything(new) == to_rows(expected, GENESIS)


async def test_it_is_the_epoch_that_counts_and_not_the_handle(store):
    one, other = await store.open(), await store.open()
    epoch = (await one.lead()).epoch

    for position, handle in enumerate([one, other, other, one, other], 1):
        await handle.append(some(position, 1), epoch=epoch)

    assert await everything(one) == to_rows(some(1, 5), GENESIS)


async def test_of_concurrent_appends_only_the_leader_s_succeeds(store):
    handles = [await store.open() for _ in range(8)]
    epochs = [(await handle.lead()).epoch for handle in handles]

    outcomes = await asyncio.gather(
        *(
            handle.append(some(1, 3, node=f"n{epoch}"), epoch=epoch)
            for handle, epoch in zip(handles, epochs, strict=True)
        ),
        return_exceptions=True,
    )

    assert [type(outcome) for outcome in outcomes] == [LogConflict] * 7 + [type(None)]
    assert await everything(handles[0]) == to_rows(some(1, 3, node="n8"), GENESIS)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("lead"), st.integers(0, 1)),
        st.tuples(
            st.just("append"), st.integers(0, 1), st.integers(-1, 1), st.sampled_from([1, 2, 13])
        ),
        st.tuples(st.just("reopen"), st.integers(0, 1)),
    ),
    max_size=12,
)


@settings(max_examples=25)
@given(steps)
def test_any_order_of_appends_and_take_overs_obeys_the_fence(new_store, steps):
    async def obey() -> None:
        async with new_store() as store:
            handles = [await store.open(), await store.open()]
            epochs, leader, expected = [0, 0], 0, []
            for step in steps:
                match step:
                    case "lead", who:
                        head = await handles[who].lead()
                        epochs[who] = leader = leader + 1
                        assert (head.position, head.epoch) == (len(expected), leader)
                    case "append", who, shift, size:
                        batch = some(len(expected) + 1 + shift, size, node=f"n{who}")
                        if shift == 0 and epochs[who] == leader:
                            await handles[who].append(batch, epoch=epochs[who])
                            expected += batch
                        else:
                            with pytest.raises(LogConflict):
                                await handles[who].append(batch, epoch=epochs[who])
                    case "reopen", who:
                        await handles[who].close()
                        handles[who] = await store.open()
            for handle in handles:
                assert await everything(handle) == to_rows(expected, GENESIS)

    asyncio.run(obey())


# -------------------------------------------------------------------- readers while others write


async def test_a_reader_sees_whole_batches_only(store):
    writer, reader = await store.open(), await store.open()
    epoch, size, batches = (await writer.lead()).epoch, 7, 30
    heads: list[Head] = []

    async def watch() -> None:
        while not heads or heads[-1].position < size * batches:
            heads.append(await reader.head())
            await asyncio.sleep(0)

    watching = asyncio.create_task(watch())
    for batch in range(batches):
        await writer.append(some(1 + size * batch, size), epoch=epoch)
        await asyncio.sleep(0)
    await watching

    rows = [None, *await everything(reader)]
    assert all(head.position % size == 0 for head in heads)
    assert all(head.hash == rows[head.position].hash for head in heads if head.position)
    assert heads == sorted(heads, key=lambda head: head.position)


class Leader:
    """Appends while it leads, and takes the lead again when it has lost it."""

    def __init__(self, name: str, log: EventLog, dice: random.Random) -> None:
        self.acknowledged: list[Recorded] = []
        self.led = self.refused = 0
        self._name, self._log, self._dice = name, log, dice
        self._head: Head | None = None

    async def move(self) -> None:
        if self._head is None:
            self._head = await self._log.lead()
            self.led += 1
            return
        position, epoch = self._head.position, self._head.epoch
        batch = some(position + 1, self._dice.choice([1, 2, 13]), node=f"{self._name}-{epoch}")
        try:
            await self._log.append(batch, epoch=epoch)
        except LogConflict:
            self.refused += 1
            self._head = None
        else:
            self.acknowledged += batch
            self._head = self._head._replace(position=position + len(batch))


async def fight(store: Store, *, take_overs: int, seed: int) -> None:
    """Two leaders replace each other again and again while a reader follows the log."""
    dice = random.Random(seed)
    one, other = Leader("a", await store.open(), dice), Leader("b", await store.open(), dice)
    seen: list = []

    async def look() -> None:
        log, clock = await store.open(), AsyncioClock()
        async for rows in follow(log, 0, clock=clock, look_every_s=0.001, rows_max=10):
            seen.extend(rows)
            if from_row(rows[-1]).event.node == "the end":
                return

    looking = asyncio.create_task(look())
    while one.led + other.led < take_overs:
        # Mostly both at once, so that it is the log that decides who was first.
        movers = dice.choice([[one, other], [other, one], [one], [other]])
        await asyncio.gather(*(leader.move() for leader in movers))
    last = await store.open()
    head = await last.lead()
    end = some(head.position + 1, 1, node="the end")
    await last.append(end, epoch=head.epoch)
    await asyncio.wait_for(looking, 60)

    assert min(one.refused, other.refused) > take_overs / 4, seed
    acknowledged = sorted(one.acknowledged + other.acknowledged, key=lambda r: r.position)
    assert [from_row(row) for row in seen] == acknowledged + end, seed
    assert list(check_chain(seen, after=0, previous=GENESIS)) == await everything(last), seed


async def test_a_follower_sees_each_acknowledged_event_once_while_leaders_fight(store):
    await fight(store, take_overs=120, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
async def test_a_follower_sees_each_acknowledged_event_once_in_long_fights(store, seed):
    await fight(store, take_overs=1000, seed=seed)


# -------------------------------------------------------------------- snapshots


async def test_the_latest_snapshot_is_the_one_at_the_highest_position(log):
    for position in (5, 9, 7):
        await log.save_snapshot(StateSnapshot(position, b"world %d" % position))

    assert await log.latest_snapshot() == StateSnapshot(9, b"world 9")


@pytest.mark.parametrize(
    ("at_most", "expected"), [(4, None), (5, 5), (6, 5), (8, 7), (9, 9), (1000, 9)]
)
async def test_a_snapshot_can_be_asked_for_up_to_a_position(log, at_most, expected):
    for position in (5, 7, 9):
        await log.save_snapshot(StateSnapshot(position, b"world %d" % position))

    snapshot = await log.latest_snapshot(at_most)

    assert snapshot == (
        None if expected is None else StateSnapshot(expected, b"world %d" % expected)
    )


async def test_a_snapshot_replaces_another_at_its_position(log):
    await log.save_snapshot(StateSnapshot(5, b"one"))
    await log.save_snapshot(StateSnapshot(5, b"other"))

    assert await log.latest_snapshot() == StateSnapshot(5, b"other")


async def test_only_a_few_snapshots_are_kept_and_no_instant_is_far_behind_one(log):
    last = 4 * SNAPSHOTS_KEPT
    for position in range(1, last + 1):
        await log.save_snapshot(StateSnapshot(position, b"world %d" % position))

    kept = [p for p in range(1, last + 1) if await log.latest_snapshot(p) == (p, b"world %d" % p)]
    assert (len(kept), kept[-1]) == (SNAPSHOTS_KEPT, last)
    # Twice as far apart as if all were equally far, and not more.
    assert max(b - a for a, b in pairwise([0, *kept])) <= 8


async def test_large_snapshots_are_kept_as_long_as_there_is_room(log, monkeypatch):
    monkeypatch.setattr(ports, "SNAPSHOT_BYTES_KEPT", 1_000)
    for position in range(1, 9):
        await log.save_snapshot(StateSnapshot(position, bytes(300)))
    kept = [p for p in range(1, 9) if (await log.latest_snapshot(p) or (0,))[0] == p]
    assert (len(kept), kept[-1]) == (3, 8)

    # One that is larger than all the room there is stays alone.
    await log.save_snapshot(StateSnapshot(9, bytes(2_000)))
    assert await log.latest_snapshot(8) is None
    assert (await log.latest_snapshot()).position == 9


@pytest.mark.parametrize("body", [b"", bytes(range(256)), b"x" * 3_000_000])
async def test_a_snapshot_may_be_any_bytes(log, body):
    await log.save_snapshot(StateSnapshot(1, body))

    assert await log.latest_snapshot() == StateSnapshot(1, body)


async def test_a_snapshot_can_be_saved_while_events_are_appended(log):
    epoch = (await log.lead()).epoch

    await asyncio.gather(
        *(log.append(some(1 + n, 1), epoch=epoch) for n in range(20)),
        *(log.save_snapshot(StateSnapshot(n, bytes(10_000))) for n in range(5)),
    )

    assert await everything(log) == to_rows(some(1, 20), GENESIS)
    assert (await log.latest_snapshot()).position == 4
