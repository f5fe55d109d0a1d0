"""The world at any position or instant, from the log alone.

A snapshot only makes it quicker: it carries the hash of the row it stands at, so the tail behind it
is checked as strictly as a whole log is.
"""

import gc
import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import msgspec

from controlplane.codec import GENESIS, Row, read_checked
from controlplane.errors import LogCorrupt
from controlplane.events import Recorded
from controlplane.ports import LogReader, Snapshot
from controlplane.state import Image, State
from controlplane.world import World

PAGE_ROWS = 10_000

_encode = msgspec.msgpack.Encoder(order="deterministic").encode
_decoder = msgspec.msgpack.Decoder(Image)


class Rebuilt(NamedTuple):
    """A world, and the hash of the last row that went into it."""

    world: World
    hash: bytes


async def rebuild(
    log: LogReader,
    *,
    position: int | None = None,
    at: float | None = None,
    use_snapshot: bool = True,
) -> Rebuilt:
    """The world after `position`, or after the last event not later than `at`, or at the head.

    Raises LogCorrupt, with the first bad position, if the log is not what was written to it.
    """
    with _collector_at_rest():
        return await _rebuild(log, position, at, use_snapshot)


@contextmanager
def _collector_at_rest() -> Iterator[None]:
    """Nothing made here is part of a cycle, and looking for some would cost a tenth of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


async def _rebuild(
    log: LogReader, position: int | None, at: float | None, use_snapshot: bool
) -> Rebuilt:
    snapshot = await log.latest_snapshot(position) if use_snapshot and at is None else None
    state, digest = (State(), GENESIS) if snapshot is None else _open(snapshot)
    while position is None or state.position < position:
        left = PAGE_ROWS if position is None else position - state.position
        rows = await log.read(state.position, min(PAGE_ROWS, left))
        if at is not None and rows and rows[-1][1] > at:
            digest = fold(state, [row for row in rows if row[1] <= at], digest)
            break
        if not rows:
            break
        digest = fold(state, rows, digest)
    return Rebuilt(World.around(state), digest)


def fold(
    state: State,
    rows: Sequence[Row],
    digest: bytes,
    watch: Callable[[Recorded], None] | None = None,
) -> bytes:
    """Takes rows in that follow right behind, each checked before it is believed.

    `digest` is the hash of the row before the first; that of the last one is returned.
    """
    for recorded in read_checked(rows, after=state.position, previous=digest):
        try:
            state.apply(recorded)
        except (AssertionError, LookupError) as error:
            raise LogCorrupt(recorded.position, f"this cannot have happened: {error}") from error
        if watch is not None:
            watch(recorded)
    return rows[-1][8] if rows else digest


def take_snapshot(state: State, hash: bytes) -> Snapshot:
    """A snapshot of the state; `hash` is that of the row at its position."""
    return Snapshot(state.position, _encode(state.image(hash)))


def open_snapshot(snapshot: Snapshot) -> Rebuilt:
    image = _decoder.decode(snapshot.body)
    return Rebuilt(World(image), image.hash)


def _open(snapshot: Snapshot) -> tuple[State, bytes]:
    image = _decoder.decode(snapshot.body)
    return State(image), image.hash


def state_hash(state: State) -> str:
    """One word for the whole state: equal states have equal hashes, in every process."""
    return hashlib.sha256(_encode(state.image())).hexdigest()
