"""Events to rows and back: versioned JSON, and the hash chain that makes a change visible.

A row is (position, at, stream, type, version, payload, cause, actor, hash). The hash covers the
hash before it and every other field, so whoever knows the last hash knows the whole log.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from controlplane import events as e
from controlplane.errors import LogCorrupt
from controlplane.rows import chained

Row = tuple[int, float, str, str, int, bytes, str, str, bytes]

GENESIS = bytes(32)

EVENT_TYPES: dict[str, type[e.Event]] = {
    kind.__name__: kind
    for kind in (
        e.JobSubmitted,
        e.GangPlaced,
        e.GangHeld,
        e.JobUnschedulable,
        e.JobSchedulable,
        e.StepPassed,
        e.ProtectionEnded,
        e.RanksReplaced,
        e.RanksStarted,
        e.GangStarted,
        e.RanksExited,
        e.RanksLost,
        e.RanksStuck,
        e.RanksGone,
        e.RankRestarting,
        e.RankRelaunched,
        e.RanksRestartedInPlace,
        e.RanksAdded,
        e.JobRestarting,
        e.JobRequeued,
        e.AttemptEnded,
        e.JobSucceeded,
        e.JobFailed,
        e.JobCancelled,
        e.JobSuspended,
        e.JobResumed,
        e.CodeResolved,
        e.JobScaled,
        e.JobAmended,
        e.JobDeleteRequested,
        e.JobErrored,
        e.EngineFailed,
        e.JobQuarantined,
        e.JobRemoved,
        e.NodeReported,
        e.NodeLost,
        e.NodeRemoved,
        e.NodeCordoned,
        e.NodeUncordoned,
        e.QueueDefined,
        e.QueueRemoved,
        e.PolicySet,
        e.StartsCounted,
        e.CycleEnded,
        e.ClusterSurveyed,
        e.ClusterModelled,
        e.PoolNodesRequested,
        e.PoolNodesReturned,
        e.TimePassed,
        e.EngineStarted,
    )
}

# What an old version's payload was, as today's type and payload: (type, version) -> function that
# returns (type, version, payload) one step nearer to today.
Upcast = Callable[[dict[str, Any]], tuple[str, int, dict[str, Any]]]
UPCASTS: dict[tuple[str, int], Upcast] = {}

encode = msgspec.json.Encoder().encode
_decoders = {name: msgspec.json.Decoder(kind).decode for name, kind in EVENT_TYPES.items()}
_versions = {name: kind.version for name, kind in EVENT_TYPES.items()}
_kinds = {
    kind: (name, kind.version, issubclass(kind, e.JobEvent)) for name, kind in EVENT_TYPES.items()
}
# Copying a fresh hash takes two thirds of the time that making one does.
fresh_sha256 = hashlib.sha256().copy


def _sha256(data: bytes) -> bytes:
    digest = fresh_sha256()
    digest.update(data)
    return digest.digest()


def decoder_of(name: str) -> Callable[[bytes], Any]:
    """What reads the payload of today's version of a type of event."""
    return _decoders[name]


def link(
    previous: bytes,
    position: int,
    at: float,
    stream: str,
    type: str,
    version: int,
    payload: bytes,
    cause: str,
    actor: str,
) -> bytes:
    """The hash of a row that follows one with the hash `previous`.

    It is taken over that hash, then the other fields as a JSON array, then the payload.
    """
    fields = encode((position, at, stream, type, version, cause, actor))
    return _sha256(previous + fields + payload)


def to_rows(batch: Sequence[e.Recorded], previous: bytes) -> list[Row]:
    """Rows for a batch that follows a row with the hash `previous`."""
    return chained(batch, previous, _kinds)


def check_chain(rows: Iterable[Row], *, after: int, previous: bytes) -> Iterator[Row]:
    """The same rows, each only after its position and hash were found right.

    As in `chained`, `link` is written out once more.
    """
    fresh = fresh_sha256
    for row in rows:
        position, at, stream, name, version, payload, cause, actor, found = row
        after += 1
        if position != after:
            raise LogCorrupt(after, f"expected here, but the log goes on at {position}")
        try:
            fields = encode((position, at, stream, name, version, cause, actor))
            digest = fresh()
            digest.update(previous + fields + payload)
        except (TypeError, UnicodeEncodeError) as error:
            raise LogCorrupt(position, f"the row cannot be read: {error}") from None
        previous = digest.digest()
        if previous != found:
            raise LogCorrupt(position, "its hash does not follow from its content")
        yield row


def from_row(row: Row) -> e.Recorded:
    """The event of a row, upcast to today's form if it is older."""
    position, at, _, name, version, payload, cause, actor, _ = row
    return e.Recorded(position, at, read_event(position, name, version, payload), cause, actor)


def read_event(position: int, name: str, version: int, payload: bytes) -> e.Event:
    """The event in a payload, upcast to today's form if it is older."""
    try:
        if _versions.get(name) == version:
            event: e.Event = _decoders[name](payload)
            return event
        return _upcast(name, version, payload)
    except msgspec.MsgspecError as error:
        told = f"{name} version {version} cannot be read: {error}"
        raise LogCorrupt(position, told) from None
    except LookupError:
        told = f"{name} version {version} is unknown to this release; use a newer one"
        raise LogCorrupt(position, told) from None


def _upcast(name: str, version: int, payload: bytes) -> e.Event:
    fields: dict[str, Any] = msgspec.json.decode(payload)
    while _versions.get(name) != version:
        name, version, fields = UPCASTS[name, version](fields)
    return msgspec.convert(fields, EVENT_TYPES[name])


class Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row as one line of an exported log."""

    position: int
    at: float
    stream: str
    type: str
    version: int
    payload: msgspec.Raw
    cause: str
    actor: str
    hash: str


_line_decoder = msgspec.json.Decoder(Line)


def to_line(row: Row) -> bytes:
    """One line of JSON, without its end."""
    position, at, stream, name, version, payload, cause, actor, digest = row
    return encode(
        Line(position, at, stream, name, version, msgspec.Raw(payload), cause, actor, digest.hex())
    )


def from_line(line: bytes) -> Row:
    """The row of one exported line; raises ValueError with what is wrong with it."""
    try:
        x = _line_decoder.decode(line)
        digest = bytes.fromhex(x.hash)
    except (msgspec.MsgspecError, ValueError) as error:
        raise ValueError(str(error)) from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    row = (
        x.position, x.at, x.stream, x.type, x.version, bytes(x.payload), x.cause, x.actor, digest
    )  # fmt: skip
    # The same time may be written in several ways, and a hash in capitals; only one is ours.
    if to_line(row) != line.strip():
        raise ValueError("it is not written as an export writes it")
    return row
