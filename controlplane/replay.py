"""The world at any position or instant, from the log alone.

A snapshot only makes it quicker: it carries the hash of the row it stands at, so the tail behind it
is checked as strictly as a whole log is.
"""

from collections.abc import Iterator
from hashlib import sha256
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from controlplane.codec import GENESIS
from controlplane.collector import collector_at_rest
from controlplane.errors import LogCorrupt
from controlplane.folding import Told, fold, fold_pages, settle
from controlplane.image import Image, Written
from controlplane.payloads import forget
from controlplane.ports import LogReader, PageReader, Snapshot
from controlplane.sheets import jobs_of, sheet_of
from controlplane.state import State
from controlplane.world import World

PAGE_ROWS = 10_000
# Where rows come as pages there are fewer at a time, so that they are still at hand when they are
# folded.
_ROWS_AT_HAND = 4_000

# Of a snapshot's body. The first was an image as it is, which is still read.
FORMAT = 2
# An array of three, the first of which is the format.
_BEGINNING = bytes([0x93, FORMAT])

_encode = msgspec.msgpack.Encoder(order="deterministic").encode
_decode = msgspec.msgpack.Decoder(Written).decode
_decode_first_format = msgspec.msgpack.Decoder(Image).decode


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
    told: Told = {}
    while position is None or state.position < position:
        left = PAGE_ROWS if position is None else position - state.position
        before = state.position
        digest = await _go_on(log, state, digest, min(PAGE_ROWS, left), told)
        if state.position == before:
            break
    settle(state, told)
    forget()
    world = state if isinstance(state, World) else World.around(state)
    return Rebuilt(world, digest, since)


async def _go_on(log: LogReader, state: State, digest: bytes, limit: int, told: Told) -> bytes:
    """Takes in what follows, at most so many events, and returns the last one's hash.

    What is `told` of jobs is to be settled in the end.
    """
    before = state.position
    if type(state) is State and isinstance(log, PageReader):
        pages = await log.read_pages(before, min(limit, _ROWS_AT_HAND))
        digest = fold_pages(state, pages, digest, told)
    if state.position > before:
        return digest
    # Whatever is wrong with what follows, what went before is looked at first.
    settle(state, told)
    return fold(state, await log.read(before, limit), digest)


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


def take_snapshot(state: State, hash: bytes) -> Snapshot:
    """A snapshot of the state; `hash` is that of the row at its position."""
    return Snapshot(state.position, b"".join(_slices(state.image(hash))))


# How much of a snapshot is encoded in one go: some milliseconds' worth.
SLICE_BYTES = 200_000
SLICE_ITEMS = 1_000
SHEET_JOBS = 500


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
    """A body of the second format, some at a time."""
    jobs, image = image.jobs, replace(image, jobs=[])
    yield _BEGINNING
    yield from _slices_of_image(image)
    yield _array_header(-(-len(jobs) // SHEET_JOBS))
    for first in range(0, len(jobs), SHEET_JOBS):
        yield _encode(sheet_of(jobs[first : first + SHEET_JOBS]))


def _slices_of_image(image: Image) -> Iterator[bytes]:
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
    image = read_image(snapshot)
    return Rebuilt(World(image), image.hash, image.position)


def _open(snapshot: Snapshot) -> tuple[State, bytes]:
    image = read_image(snapshot)
    return State(image), image.hash


def read_image(snapshot: Snapshot) -> Image:
    """What a snapshot holds, whichever format it was written in."""
    body = snapshot.body
    # An image is a map, and what has come since is an array.
    if body[0] & 0xF0 == 0x80:
        return _decode_first_format(body)
    if not body.startswith(_BEGINNING):
        told = (
            f"the snapshot has format {body[1]}; this release reads up to {FORMAT}: use a newer one"
        )
        raise LogCorrupt(snapshot.position, told)
    written = _decode(body)
    return replace(written.image, jobs=[job for each in written.sheets for job in jobs_of(each)])


def state_hash(state: State) -> str:
    """One word for the whole state: equal states have equal hashes, in every process."""
    return sha256(_encode(state.image())).hexdigest()
