"""The hash chain of a whole page at once.

Row by row, half of the time goes into the interpreter's steps from one call to the next. Here each
step is one call for all rows, and answers only whether everything is right. Who wants to know what
is wrong, and where first, asks `codec.check_chain`.
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import cast

import msgspec

from controlplane.codec import Row
from controlplane.page import Page

_encode_lines = msgspec.json.Encoder().encode_lines
_digest = type(sha256()).digest


def page_of(rows: Sequence[Row]) -> Page | None:
    """The rows as a page; None if their positions have gaps."""
    positions, *columns = map(list, zip(*rows, strict=True))
    after = cast(int, positions[0]) - 1
    if positions != list(range(after + 1, after + 1 + len(rows))):
        return None
    return Page(after, *columns)


def follows(page: Page, previous: bytes) -> bool:
    """Whether every hash of the page is the right one, if `previous` is that of the row before it.

    Each is taken over the hash that stands before it, which is right if its own check is. Columns
    of different lengths make no rows, so nothing follows from them.
    """
    try:
        found = map(_digest, map(sha256, map(b"".join, _hashed(page, previous))))
        return list(found) == page.hashes
    except (TypeError, ValueError):
        return False


def _hashed(page: Page, previous: bytes) -> "zip[tuple[bytes, bytes, bytes]]":
    """What each hash is taken over, in three parts (see `codec.link`)."""
    positions = range(page.after + 1, page.last + 1)
    # A JSON text has no line break in it, so one call encodes them all.
    fields = _encode_lines(
        zip(
            positions, page.ats, page.streams, page.types, page.versions, page.causes, page.actors,
            strict=True,
        )
    )  # fmt: skip
    return zip([previous, *page.hashes[:-1]], fields.splitlines(), page.payloads, strict=True)
