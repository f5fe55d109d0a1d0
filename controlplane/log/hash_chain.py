"""The hash chain that makes every change of a log visible.

The hash of a row is SHA-256 over three things: the hash of the row before it (`GENESIS` for the
first), a JSON array of the row's other fields in their order, and the payload. So the last hash
depends on every byte of the log, and verification stops at the first row that was changed.
"""

from collections.abc import Iterable, Iterator
from hashlib import sha256

import msgspec

from controlplane.model.errors import LogCorrupt
from controlplane.model.rows import Row

_encode = msgspec.json.Encoder().encode


def link(previous: bytes, row: Row) -> bytes:
    """The hash of a row that follows a row with the hash `previous`; its own hash is ignored."""
    position, step, ordinal, at, stream, name, version, payload, command, cause, actor, _ = row
    fields = _encode((position, step, ordinal, at, stream, name, version, command, cause, actor))
    return sha256(previous + fields + payload).digest()


def check_chain(rows: Iterable[Row], *, after: int, previous: bytes) -> Iterator[Row]:
    """The same rows, each yielded once its position and its hash are verified.

    `after` and `previous` are the position and the hash of the row before the first. Raises
    LogCorrupt with the first bad position.
    """
    for row in rows:
        after += 1
        if row.position != after:
            raise LogCorrupt(after, f"expected here, but the log continues at {row.position}")
        try:
            previous = link(previous, row)
        except (TypeError, UnicodeEncodeError) as error:
            raise LogCorrupt(after, f"the row cannot be read: {error}") from None
        if previous != row.hash:
            raise LogCorrupt(after, "its hash does not follow from its content")
        yield row
