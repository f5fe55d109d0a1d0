"""Many rows as columns: how SQLite is asked for them, and what it answers."""

from typing import Any

import msgspec

from controlplane.page import HASH_BYTES

# SQLite writes 15 digits of a number, and some times have 17. As a multiple of 2**-30 a time is an
# integer, unless it is before February 1970.
FRACTION = 2.0**30

# Rows of one range of positions are visited in their order. Between hashes stands a comma: to put
# nothing there takes SQLite as long as reading them.
COLUMNS = f"""
    SELECT CAST(group_concat(CAST(at * {FRACTION} AS INTEGER)) AS BLOB), sum(version),
        group_concat(stream, '\n'), group_concat(type, '\n'),
        CAST(group_concat(payload, '\n') AS BLOB), group_concat(cause, '\n'),
        group_concat(actor, '\n'), CAST(group_concat(hash) AS BLOB), sum(typeof(hash) = 'blob')
    FROM events WHERE position > ? AND position <= ?
"""

# Times, versions (or None, if they are to be asked for), streams, types, payloads, causes, actors and
# hashes: as in a page.
Columns = tuple[list[float], list[int] | None, str, str, bytes, str, str, bytes]

_read_numbers = msgspec.json.Decoder(list[float]).decode
_to_seconds = (1 / FRACTION).__mul__


def taken_apart(found: tuple[Any, ...], /) -> Columns | None:
    """The columns of what `COLUMNS` has found; None if there are no rows, or some lack a value.

    Raises a ValueError if some value is not as it was written.
    """
    if None in found:
        return None
    ats, versions, streams, types, payloads, causes, actors, hashes, blobs = found
    count, rest = divmod(len(hashes) + 1, HASH_BYTES + 1)
    # A text of the same bytes would pass for a hash here, and for none where rows are read.
    if rest or not count or blobs != count:
        return None
    # Nearly every event is of the first version.
    known = [1] * count if versions == count else None
    return _seconds(ats), known, streams, types, payloads, causes, actors, hashes


def _seconds(text: bytes) -> list[float]:
    return list(map(_to_seconds, _read_numbers(b"[" + text + b"]")))
