"""The world at any position or instant, from the log alone.

A snapshot only makes it quicker: it carries the hash of the row it stands at, so the tail behind it
is checked as strictly as a whole log is.
"""

from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from typing import NamedTuple

import msgspec

from controlplane.codec import GENESIS, Row, check_chain, decoder_of, encode, fresh_sha256, from_row
from controlplane.collector import collector_at_rest
from controlplane.errors import LogCorrupt
from controlplane.events import Recorded
from controlplane.image import Image
from controlplane.job_life import EVOLVE
from controlplane.ports import LogReader, Snapshot
from controlplane.state import State
from controlplane.world import World

PAGE_ROWS = 10_000

_encode = msgspec.msgpack.Encoder(order="deterministic").encode
_decoder = msgspec.msgpack.Decoder(Image)

# The events of jobs by the names that rows have: what each makes of a job, and how it is read.
_EVOLVE = {kind.__name__: evolve for kind, evolve in EVOLVE.items()}
_DECODE = {kind.__name__: decoder_of(kind.__name__) for kind in EVOLVE}
_VERSIONS = {kind.__name__: kind.version for kind in EVOLVE}


class Rebuilt(NamedTuple):
    """A world, the hash of the last row that went into it, and where reading the rows began."""

    world: World
    hash: bytes
    since: int = 0


async def rebuild(
    log: LogReader,
    *,
    position: int | None = None,
    at: float | None = None,
    use_snapshot: bool = True,
    begin: Rebuilt | None = None,
) -> Rebuilt:
    """The world after `position`, or after the last event not later than `at`, or at the head.

    `begin` is a world at an earlier position, which goes on to this one and is nobody else's.

    Raises LogCorrupt, with the first bad position, if the log is not what was written to it.
    """
    with collector_at_rest():
        return await _rebuild(log, position, at, use_snapshot, begin)


async def _rebuild(
    log: LogReader,
    position: int | None,
    at: float | None,
    use_snapshot: bool,
    begin: Rebuilt | None,
) -> Rebuilt:
    if at is not None:
        then = await position_at(log, at)
        position = then if position is None else min(position, then)
    state, digest = await _start(log, position, use_snapshot, begin)
    since = state.position
    while position is None or state.position < position:
        left = PAGE_ROWS if position is None else position - state.position
        rows = await log.read(state.position, min(PAGE_ROWS, left))
        if not rows:
            break
        digest = fold(state, rows, digest)
    world = state if isinstance(state, World) else World.around(state)
    return Rebuilt(world, digest, since)


async def _start(
    log: LogReader, position: int | None, use_snapshot: bool, begin: Rebuilt | None
) -> tuple[State, bytes]:
    if begin is not None and (position is None or begin.world.position <= position):
        return begin.world, begin.hash
    snapshot = await log.latest_snapshot(position) if use_snapshot else None
    return (State(), GENESIS) if snapshot is None else _open(snapshot)


async def beginning(log: LogReader) -> Rebuilt:
    """The world before the first event: an empty one, or for a bundle the state it begins with."""
    rows = await log.read(0, 1)
    if not rows or rows[0][0] == 1:
        return Rebuilt(World(), GENESIS)
    first = rows[0][0]
    snapshot = await log.latest_snapshot(first - 1)
    if snapshot is None or snapshot.position != first - 1:
        raise LogCorrupt(1, f"expected here, but the log goes on at {first}")
    return open_snapshot(snapshot)


async def position_at(log: LogReader, at: float, *, before: bool = False) -> int:
    """The position of the last event not later than `at`, or `before` it; 0 if there is none.

    Time in a log never runs backwards, so a few looks are enough.
    """
    low, high = 0, (await log.head()).position
    while low < high:
        middle = (low + high + 1) // 2
        rows = await log.read(middle - 1, 1)
        if rows and (rows[0][1] < at if before else rows[0][1] <= at):
            low = middle
        else:
            high = middle - 1
    return low


def fold(
    state: State,
    rows: Sequence[Row],
    digest: bytes,
    watch: Callable[[Recorded], None] | None = None,
) -> bytes:
    """Takes rows in that follow right behind, each checked before it is believed.

    `digest` is the hash of the row before the first; that of the last one is returned.
    """
    if watch is None and type(state) is State:
        return _fold_many(state, rows, digest)
    for row in check_chain(rows, after=state.position, previous=digest):
        recorded = from_row(row)
        try:
            state.apply(recorded)
        except (AssertionError, LookupError) as error:
            raise _impossible(recorded.position, error) from error
        digest = row[8]
        if watch is not None:
            watch(recorded)
    return digest


def _fold_many(state: State, rows: Sequence[Row], digest: bytes) -> bytes:
    """As above, with `check_chain`, `from_row` and `apply` written out for the usual events.

    A long log passes through here row by row, and every call and value that is spared counts. What
    is not an event of a job, or was caused by a person, or is of an older version, takes the plain
    way. That both ways lead to the same state is what the properties and scenarios test.
    """
    jobs, position, fresh = state.jobs, state.position, fresh_sha256
    try:
        for row in rows:
            found_at, at, stream, name, version, payload, cause, actor, found = row
            position += 1
            if found_at != position:
                raise LogCorrupt(position, f"expected here, but the log goes on at {found_at}")
            fields = encode((position, at, stream, name, version, cause, actor))
            hashed = fresh()
            hashed.update(digest + fields + payload)
            digest = hashed.digest()
            if digest != found:
                raise LogCorrupt(position, "its hash does not follow from its content")
            evolve = _EVOLVE.get(name)
            if evolve is None or cause or version != _VERSIONS[name]:
                state.position = position - 1
                state.apply(from_row(row))
            else:
                event = _DECODE[name](payload)
                jobs[event.job] = evolve(jobs[event.job], event, at, position)
                state.at = at
    except (AssertionError, LookupError) as error:
        raise _impossible(position, error) from error
    except msgspec.MsgspecError as error:
        raise LogCorrupt(position, f"it cannot be read: {error}") from None
    except (TypeError, UnicodeEncodeError) as error:
        raise LogCorrupt(position, f"the row cannot be read: {error}") from None
    state.position = position
    return digest


def _impossible(position: int, error: Exception) -> LogCorrupt:
    return LogCorrupt(position, f"this cannot have happened: {error}")


def take_snapshot(state: State, hash: bytes) -> Snapshot:
    """A snapshot of the state; `hash` is that of the row at its position."""
    return Snapshot(state.position, _encode(state.image(hash)))


# How much of a snapshot is encoded in one go: some milliseconds' worth.
SLICE_BYTES = 1_000_000
SLICE_ITEMS = 1_000


class SnapshotInSlices:
    """A snapshot that is encoded a little at a time, while the state goes on changing.

    The state is read at the beginning and consists of frozen values, so what the slices make up is
    the state as it was then: byte for byte what `take_snapshot` would have made of it.
    """

    def __init__(self, state: State, hash: bytes) -> None:
        self._position = state.position
        self._made: list[bytes] = []
        self._left = _slices(state.image(hash))

    def go_on(self) -> Snapshot | None:
        """Encodes some more; the snapshot once it is whole."""
        size = 0
        for piece in self._left:
            self._made.append(piece)
            size += len(piece)
            if size >= SLICE_BYTES:
                return None
        return Snapshot(self._position, b"".join(self._made))


def _slices(image: Image) -> Iterator[bytes]:
    """The bytes that `_encode` makes of an image, some at a time."""
    defaults = {field.name: field.default for field in msgspec.structs.fields(Image)}
    values = {name: getattr(image, name) for name in defaults}
    # What is the default is left out, as in every value of the model.
    written = {name: value for name, value in values.items() if value is not defaults[name]}
    yield bytes([0x80 | len(written)])
    for name, value in written.items():
        yield _encode(name)
        if isinstance(value, list):
            yield _array_header(len(value))
            for first in range(0, len(value), SLICE_ITEMS):
                some = value[first : first + SLICE_ITEMS]
                yield _encode(some)[len(_array_header(len(some))) :]
        else:
            yield _encode(value)


def _array_header(size: int) -> bytes:
    """How MessagePack says that an array of this size follows."""
    if size < 16:
        return bytes([0x90 | size])
    return b"\xdc" + size.to_bytes(2) if size < 1 << 16 else b"\xdd" + size.to_bytes(4)


def open_snapshot(snapshot: Snapshot) -> Rebuilt:
    image = _decoder.decode(snapshot.body)
    return Rebuilt(World(image), image.hash, image.position)


def _open(snapshot: Snapshot) -> tuple[State, bytes]:
    image = _decoder.decode(snapshot.body)
    return State(image), image.hash


def state_hash(state: State) -> str:
    """One word for the whole state: equal states have equal hashes, in every process."""
    return sha256(_encode(state.image())).hexdigest()
