"""A part of a log that stands by itself: the state it begins with, and the events that follow.

A bundle is a file of lines. The first says what it is, the second holds the state before the first
event, and every other line is an event as an exported log has it. It begins and ends between two
instants, so that what it holds can be replayed, decided again and forked like a whole log.
"""

from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace

from controlplane.codec import Row, from_row, to_line, to_rows
from controlplane.errors import LogCorrupt
from controlplane.folding import fold
from controlplane.image import Image
from controlplane.ports import LogReader, Snapshot
from controlplane.redaction import Redactor
from controlplane.replay import PAGE_ROWS, position_at, rebuild, state_hash, take_snapshot
from controlplane.state import State

FORMAT = 1
# How the file begins, by which it is known.
MAGIC = b'{"muster_bundle":'


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """What a bundle is and where it comes from."""

    muster_bundle: int = FORMAT
    # The release that made the bundle; which ones decided is told by its `EngineStarted` events.
    release: str
    # The position of the state it begins with; the events are those behind it.
    base: int
    last: int
    first_at: float
    last_at: float
    # The hash of the last event in the log it was taken from, and of the state after it in here.
    log_hash: str
    state_hash: str
    redacted: bool = False
    note: str = ""


class _StateLine(msgspec.Struct, frozen=True):
    state: Image


_header_decoder = msgspec.json.Decoder(Header)
_state_decoder = msgspec.json.Decoder(_StateLine)
_encode = msgspec.json.Encoder(order="deterministic").encode


class Bundle(msgspec.Struct, frozen=True):
    header: Header
    base: Image
    rows: Sequence[Row]

    def lines(self) -> Iterator[bytes]:
        """The file, line by line."""
        yield _encode(self.header) + b"\n"
        yield _encode(_StateLine(self.base)) + b"\n"
        for row in self.rows:
            yield to_line(row) + b"\n"


def read_head(first: bytes, second: bytes) -> tuple[Header, Snapshot]:
    """The first two lines of a bundle; raises LogCorrupt with what is wrong with them."""
    try:
        header = _header_decoder.decode(first)
        image = _state_decoder.decode(second).state
    except msgspec.MsgspecError as error:
        raise LogCorrupt(0, f"the bundle's beginning cannot be read: {error}") from None
    except RecursionError:
        raise LogCorrupt(0, "the bundle's beginning is nested too deeply") from None
    if header.muster_bundle != FORMAT:
        told = f"it is a bundle of format {header.muster_bundle}; this release reads {FORMAT}"
        raise LogCorrupt(0, told)
    if header.base != image.position:
        raise LogCorrupt(0, f"its state is of {image.position}, but it begins at {header.base}")
    return header, take_snapshot(State(image), image.hash)


async def make_bundle(
    log: LogReader, *, first: int, last: int, release: str, redact: bool = False, note: str = ""
) -> Bundle:
    """What lies between two positions, and the rest of the instants at which they stand."""
    start, end = await _instants(log, first, last)
    rebuilt = await rebuild(log, position=start)
    base = rebuilt.world.image(rebuilt.hash)
    rows = await _rows(log, start, end)
    log_hash = rows[-1][8] if rows else rebuilt.hash
    if redact:
        base, rows = _redacted(base, rows)
    state = State(base)
    fold(state, rows, base.hash)
    header = Header(
        release=release,
        base=start,
        last=state.position,
        first_at=rows[0][1] if rows else base.at,
        last_at=state.at,
        log_hash=log_hash.hex(),
        state_hash=state_hash(state),
        redacted=redact,
        note=note,
    )
    return Bundle(header, base, rows)


async def _instants(log: LogReader, first: int, last: int) -> tuple[int, int]:
    """The last position before the instant of `first`, and the last one of that of `last`."""
    at = [await log.read(position - 1, 1) for position in (first, last)]
    if not at[0] or at[0][0][0] != first or not at[1] or at[1][0][0] != last:
        raise ValueError(f"the log does not hold all of the positions {first}-{last}")
    start = await position_at(log, at[0][0][1], before=True)
    return start, await position_at(log, at[1][0][1])


async def _rows(log: LogReader, after: int, last: int) -> list[Row]:
    rows: list[Row] = []
    while after < last and (page := await log.read(after, min(PAGE_ROWS, last - after))):
        rows += page
        after = page[-1][0]
    return rows


def _redacted(base: Image, rows: list[Row]) -> tuple[Image, list[Row]]:
    """The same without names; the chain begins anew, since every hash is another one."""
    recorded = [from_row(row) for row in rows]
    redactor = Redactor(base, recorded)
    base = replace(redactor.image(base), hash=bytes(32))
    return base, to_rows([redactor.recorded(x) for x in recorded], base.hash)
