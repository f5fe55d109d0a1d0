"""What only the memory log promises: appends that cost next to nothing, and no waiting at all."""

from adapters.logs import memory_log
from adapters.logs.memory_log import MemoryLog
from controlplane.log.codec import to_rows
from controlplane.model.events import NodeLost, Recorded
from controlplane.model.rows import GENESIS
from controlplane.ports import StateSnapshot


def some(first: int, count: int) -> list[Recorded]:
    return [Recorded(p, p / 8, NodeLost("n1", detail=f"{p}")) for p in range(first, first + count)]


def at_once(coroutine):
    """What a coroutine returns that never suspends, as in virtual time none may."""
    try:
        waited_for = coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError(f"it waits for {waited_for}")


def test_no_method_ever_waits():
    log = MemoryLog()
    epoch = at_once(log.lead()).epoch
    at_once(log.append(some(1, 2), epoch=epoch))
    at_once(log.save_snapshot(StateSnapshot(1, b"world")))

    assert at_once(log.read(0, 10)) == to_rows(some(1, 2), GENESIS)
    assert at_once(log.head()).position == 2
    assert at_once(log.latest_snapshot()) == StateSnapshot(1, b"world")
    at_once(log.close())


def test_rows_are_made_once_and_only_for_readers(monkeypatch):
    made = []

    def counted(batch, previous):
        made.extend(batch)
        return to_rows(batch, previous)

    monkeypatch.setattr(memory_log, "to_rows", counted)
    log = MemoryLog()
    epoch = at_once(log.lead()).epoch
    for n in range(100):
        at_once(log.append(some(1 + n, 1), epoch=epoch))
    assert made == []

    for after in (0, 5, 10, 0):
        at_once(log.read(after, 10))
    assert made == some(1, 20)
    at_once(log.head())
    assert made == some(1, 100)


def test_a_log_may_begin_with_a_past():
    log = MemoryLog(some(1, 3))
    head = at_once(log.lead())
    at_once(log.append(some(4, 1), epoch=head.epoch))

    assert head.position == 3
    assert log.events == some(1, 4)
    assert at_once(log.read(0, 10)) == to_rows(some(1, 4), GENESIS)
