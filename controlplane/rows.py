"""Rows of the log, made of what was recorded: `codec.link` for a batch in one call."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

# Of each class of events its name, its version, and whether its stream is its job.
Kinds = Mapping[type, tuple[str, int, bool]]

_encode = msgspec.json.Encoder().encode
# Copying a fresh hash takes two thirds of the time that making one does.
_fresh_sha256 = hashlib.sha256().copy


def chained(batch: Sequence[Any], previous: bytes, kinds: Kinds, /) -> list[Any]:
    """A row for each `Recorded`, the first of which follows a row with the hash `previous`.

    Every append passes through here event by event, so `link` is written out once more.
    """
    rows: list[Any] = []
    fresh = _fresh_sha256
    for recorded in batch:
        event = recorded.event
        name, version, is_jobs = kinds[type(event)]
        # Every store gives times back as floats, so an integer must be hashed as one, too.
        position, at = recorded.position, float(recorded.at)
        # A field takes a tenth of the time that a property does.
        stream = event.job if is_jobs else event.stream
        payload, cause, actor = _encode(event), recorded.cause, recorded.actor
        fields = _encode((position, at, stream, name, version, cause, actor))
        digest = fresh()
        digest.update(previous + fields + payload)
        previous = digest.digest()
        rows.append((position, at, stream, name, version, payload, cause, actor, previous))
    return rows
