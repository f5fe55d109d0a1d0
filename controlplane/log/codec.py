"""Events to rows and back, and rows to the lines of an exported log.

The payload of a row is the event as JSON. An event class has a version. When its fields change in
meaning, the version goes up and `UPCASTS` gets a function that turns an old payload into a newer one.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from controlplane.log.hash_chain import link
from controlplane.model import events as e
from controlplane.model.errors import LogCorrupt
from controlplane.model.events import EVENT_TYPES
from controlplane.model.rows import Row

# (type, version) -> a function from the payload to the type, version and payload that replaced it.
Upcast = Callable[[dict[str, Any]], tuple[str, int, dict[str, Any]]]
UPCASTS: dict[tuple[str, int], Upcast] = {}

encode = msgspec.json.Encoder().encode
_decoders = {name: msgspec.json.Decoder(kind) for name, kind in EVENT_TYPES.items()}


def to_rows(batch: Sequence[e.Recorded], previous: bytes) -> list[Row]:
    """Rows for a batch that follows a row with the hash `previous`."""
    rows: list[Row] = []
    for recorded in batch:
        event = recorded.event
        row = Row(
            recorded.position,
            recorded.step,
            recorded.ordinal,
            # Every database returns times as floats, so the hash must cover a float.
            float(recorded.at),
            event.stream,
            type(event).__name__,
            event.version,
            encode(event),
            recorded.command,
            recorded.cause,
            recorded.actor,
            b"",
        )
        previous = link(previous, row)
        rows.append(Row(*row[:-1], previous))
    return rows


def from_row(row: Row) -> e.Recorded:
    """The event of a row, upcast to the current version if it is older.

    Raises LogCorrupt if the payload does not fit its type, or the type or version is unknown.
    """
    name, version = row.type, row.version
    try:
        kind = EVENT_TYPES.get(name)
        if kind is not None and kind.version == version:
            event: e.Event = _decoders[name].decode(row.payload)
        else:
            event = _upcast(name, version, row.payload)
    except msgspec.MsgspecError as error:
        message = f"{name} version {version} cannot be read: {error}"
        raise LogCorrupt(row.position, message) from None
    except LookupError:
        message = f"{name} version {version} is unknown to this release; use a newer one"
        raise LogCorrupt(row.position, message) from None
    return e.Recorded(
        row.position, row.at, event, row.cause, row.actor, row.command, row.step, row.ordinal
    )


def _upcast(name: str, version: int, payload: bytes) -> e.Event:
    fields: dict[str, Any] = msgspec.json.decode(payload)
    while name not in EVENT_TYPES or EVENT_TYPES[name].version != version:
        name, version, fields = UPCASTS[name, version](fields)
    return msgspec.convert(fields, EVENT_TYPES[name])


class Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row as one line of an exported log, with the payload inline and the hash in hexadecimal."""

    position: int
    step: int
    ordinal: int
    at: float
    stream: str
    type: str
    version: int
    payload: msgspec.Raw
    command: str
    cause: str
    actor: str
    hash: str


_line_decoder = msgspec.json.Decoder(Line)


def to_line(row: Row) -> bytes:
    """The row as one line of JSON, without the line break."""
    fields = row._asdict() | {"payload": msgspec.Raw(row.payload), "hash": row.hash.hex()}
    return encode(Line(**fields))


def from_line(line: bytes) -> Row:
    """The row of one exported line. Raises ValueError with what is wrong with the line."""
    try:
        x = _line_decoder.decode(line)
        digest = bytes.fromhex(x.hash)
    except (msgspec.MsgspecError, ValueError) as error:
        raise ValueError(str(error)) from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    row = Row(
        x.position, x.step, x.ordinal, x.at, x.stream, x.type, x.version, bytes(x.payload),
        x.command, x.cause, x.actor, digest,
    )  # fmt: skip
    # JSON allows several notations of a number or a hash, but an export has exactly one.
    if to_line(row) != line.strip():
        raise ValueError("it is not written as an export writes it")
    return row
