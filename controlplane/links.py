"""Whether the hashes of many rows follow from each other: `codec.link` for a page in one call.

Row by row, half of the time goes into the interpreter's steps from one call to the next. Here each
step is one call for all rows.
"""

from collections.abc import Sequence
from hashlib import sha256
from struct import unpack

import msgspec

_HASH_BYTES = 32
_encode_lines = msgspec.json.Encoder().encode_lines
_digest = type(sha256()).digest


def linked(
    previous: bytes,
    after: int,
    ats: Sequence[float],
    streams: str,
    types: str,
    versions: Sequence[int],
    payloads: bytes,
    causes: str,
    actors: str,
    hashes: bytes,
    /,
) -> bool:
    """Whether they do behind a row with the hash `previous`; texts have one line a row, and there
    is a comma between two hashes.

    Each hash is taken over the one that stands before it, which is right if its own check is. May
    raise a TypeError or ValueError if something is no column of rows at all.
    """
    count, rest = divmod(len(hashes) + 1, _HASH_BYTES + 1)
    if rest or not count or after < 0:
        return False
    found = list(unpack(f"{_HASH_BYTES}sx" * count, hashes + b","))
    if b",".join(found) != hashes:
        return False
    # Whatever else has been given as a text is a TypeError here.
    texts = [str.split(column, "\n") for column in (streams, types, causes, actors)]
    # A JSON text has no line break in it, so one call encodes them all.
    fields = _encode_lines(
        zip(
            range(after + 1, after + 1 + count), ats, texts[0], texts[1], versions, *texts[2:],
            strict=True,
        )
    )  # fmt: skip
    # What each hash is taken over, in three parts.
    hashed = zip(
        [previous, *found[:-1]], fields.splitlines(), bytes.split(payloads, b"\n"), strict=True
    )
    return list(map(_digest, map(sha256, map(b"".join, hashed)))) == found
