"""A part of a log that can be used alone: its initial state, and the events that follow.

A bundle is a file of lines. The first is the header, the second holds the state before the first
event, and every other line is an event as an exported log has it. It begins and ends between two
instants, so that it can be replayed, decided again and forked like a whole log.
"""

from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace

from controlplane.audit.redaction import Redactor
from controlplane.log.codec import from_row, to_line, to_rows
from controlplane.log.fold import fold
from controlplane.log.replay import PAGE_ROWS, position_at, rebuild
from controlplane.log.snapshots import state_hash, take_snapshot
from controlplane.model.errors import LogCorrupt
from controlplane.model.rows import Row
from controlplane.ports import LogReader, StateSnapshot
from controlplane.state.image import StateImage
from controlplane.state.state import State

FORMAT = 1
# The first bytes of the file, which identify a bundle.
MAGIC = b'{"muster_bundle":'


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """What a bundle contains and where it comes from."""

    muster_bundle: int = FORMAT
    # The release that made the bundle; its `EngineStarted` events have those that decided.
    release: str
    # The position of the initial state; the events are those after it.
    base: int
    last: int
    first_at: float
    last_at: float
    # The hash of the last event in the original log, and of the state after it in this bundle.
    log_hash: str
    state_hash: str
    redacted: bool = False
    note: str = ""


class _StateLine(msgspec.Struct, frozen=True):
    state: StateImage


_header_decoder = msgspec.json.Decoder(Header)
_state_decoder = msgspec.json.Decoder(_StateLine)
_encode = msgspec.json.Encoder(order="deterministic").encode


class IncidentBundle(msgspec.Struct, frozen=True):
    """A header, the initial state, and the events that follow."""

    header: Header
    base: StateImage
    rows: Sequence[Row]

    def lines(self) -> Iterator[bytes]:
        """The file, line by line."""
        yield _encode(self.header) + b"\n"
        yield _encode(_StateLine(self.base)) + b"\n"
        for row in self.rows:
            yield to_line(row) + b"\n"


def read_head(first: bytes, second: bytes) -> tuple[Header, StateSnapshot]:
    """The first two lines of a bundle. Raises LogCorrupt with what is wrong with them."""
    try:
        header = _header_decoder.decode(first)
        image = _state_decoder.decode(second).state
    except msgspec.MsgspecError as error:
        raise LogCorrupt(0, f"the bundle's beginning cannot be read: {error}") from None
    except RecursionError:
        raise LogCorrupt(0, "the bundle's beginning is nested too deeply") from None
    if header.muster_bundle != FORMAT:
        message = f"it is a bundle of format {header.muster_bundle}; this release reads {FORMAT}"
        raise LogCorrupt(0, message)
    if header.base != image.position:
        raise LogCorrupt(0, f"its state is of {image.position}, but it begins at {header.base}")
    return header, take_snapshot(State(image), image.hash)


async def make_bundle(
    log: LogReader, *, first: int, last: int, release: str, redact: bool = False, note: str = ""
) -> IncidentBundle:
    """The events between two positions, completed to whole instants.

    Raises ValueError if the log does not have both positions. With `redact`, names and texts of
    users are replaced.
    """
    start, end = await _instants(log, first, last)
    rebuilt = await rebuild(log, position=start)
    base = rebuilt.world.image(rebuilt.hash)
    rows = await _rows(log, start, end)
    log_hash = rows[-1].hash if rows else rebuilt.hash
    if redact:
        base, rows = _redacted(base, rows)
    state = State(base)
    fold(state, rows, base.hash)
    header = Header(
        release=release,
        base=start,
        last=state.position,
        first_at=rows[0].at if rows else base.at,
        last_at=state.at,
        log_hash=log_hash.hex(),
        state_hash=state_hash(state),
        redacted=redact,
        note=note,
    )
    return IncidentBundle(header, base, rows)


async def _instants(log: LogReader, first: int, last: int) -> tuple[int, int]:
    """The last position before the instant of `first`, and the last position of that of `last`."""
    at = [await log.read(position - 1, 1) for position in (first, last)]
    if not at[0] or at[0][0].position != first or not at[1] or at[1][0].position != last:
        raise ValueError(f"the log does not hold all of the positions {first}-{last}")
    start = await position_at(log, at[0][0].at, before=True)
    return start, await position_at(log, at[1][0].at)


async def _rows(log: LogReader, after: int, last: int) -> list[Row]:
    rows: list[Row] = []
    while after < last and (page := await log.read(after, min(PAGE_ROWS, last - after))):
        rows += page
        after = page[-1].position
    return rows


def _redacted(base: StateImage, rows: list[Row]) -> tuple[StateImage, list[Row]]:
    """The same without names; the hash chain begins anew, since every hash changes."""
    recorded = [from_row(row) for row in rows]
    redactor = Redactor()
    base = replace(redactor.image(base), hash=bytes(32))
    return base, to_rows([redactor.recorded(x) for x in recorded], base.hash)
