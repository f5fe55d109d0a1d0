"""The world at any position or instant, from the log alone.

A snapshot only makes it quicker: it carries the hash of the row it stands at, so the tail behind it
is checked as strictly as a whole log is.
"""

import hashlib
from collections.abc import Callable, Iterable

import msgspec

from controlplane.codec import GENESIS, Row, check_chain, from_row
from controlplane.errors import LogCorrupt
from controlplane.events import Recorded
from controlplane.ports import EventLog, Snapshot
from controlplane.world import Image, World

PAGE_ROWS = 10_000

_encode = msgspec.msgpack.Encoder(order="deterministic").encode
_decoder = msgspec.msgpack.Decoder(Image)


class Rebuilt(msgspec.Struct):
    """A world, and the hash of the last row that went into it."""

    world: World
    hash: bytes


async def rebuild(
    log: EventLog,
    *,
    position: int | None = None,
    at: float | None = None,
    use_snapshot: bool = True,
    watch: Callable[[Recorded, World], None] | None = None,
) -> Rebuilt:
    """The world after `position`, or after the last event not later than `at`, or at the head.

    Raises LogCorrupt, with the first bad position, if the log is not what was written to it.
    """
    rebuilt = Rebuilt(World(), GENESIS)
    if use_snapshot and at is None and watch is None:
        snapshot = await log.latest_snapshot(position)
        rebuilt = rebuilt if snapshot is None else open_snapshot(snapshot)
    while position is None or rebuilt.world.position < position:
        left = PAGE_ROWS if position is None else position - rebuilt.world.position
        rows = await log.read(rebuilt.world.position, min(PAGE_ROWS, left))
        if not rows:
            break
        if at is not None and rows[-1][1] > at:
            fold(rebuilt, (row for row in rows if row[1] <= at), watch)
            break
        fold(rebuilt, rows, watch)
    return rebuilt


def fold(
    rebuilt: Rebuilt,
    rows: Iterable[Row],
    watch: Callable[[Recorded, World], None] | None = None,
) -> None:
    """Takes rows in that follow right behind, each checked before it is believed."""
    world, apply = rebuilt.world, rebuilt.world.apply
    for row in check_chain(rows, after=world.position, previous=rebuilt.hash):
        recorded = from_row(row)
        try:
            apply(recorded)
        except (AssertionError, KeyError) as error:
            raise LogCorrupt(recorded.position, f"this cannot have happened: {error}") from error
        rebuilt.hash = row[8]
        if watch is not None:
            watch(recorded, world)


def take_snapshot(world: World, hash: bytes) -> Snapshot:
    """A snapshot of the world; `hash` is that of the row at the world's position."""
    return Snapshot(world.position, _encode(world.image(hash)))


def open_snapshot(snapshot: Snapshot) -> Rebuilt:
    image = _decoder.decode(snapshot.body)
    return Rebuilt(World.of(image), image.hash)


def state_hash(world: World) -> str:
    """One word for the whole state: equal states have equal hashes, in every process."""
    return hashlib.sha256(_encode(world.image())).hexdigest()
