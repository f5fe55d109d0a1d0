"""The hash chain of a whole page at once: it answers only whether everything is right.

Who wants to know what is wrong, and where first, asks `codec.check_chain`.
"""

from collections.abc import Sequence
from typing import cast

from controlplane.codec import Row
from controlplane.links import linked
from controlplane.page import HASH_BYTES, Page


def page_of(rows: Sequence[Row]) -> Page | None:
    """The rows as a page; None if their positions have gaps, or some value is of another type.

    A line break within a value makes two lines of it, so such a page does not follow.
    """
    positions, ats, streams, types, versions, payloads, causes, actors, hashes = map(
        list, zip(*rows, strict=True)
    )
    after = cast(int, positions[0]) - 1
    if positions != list(range(after + 1, after + 1 + len(rows))):
        return None
    try:
        if {len(digest) for digest in hashes} != {HASH_BYTES}:
            return None
        return Page(
            after,
            ats,
            versions,
            "\n".join(streams),
            "\n".join(types),
            b"\n".join(payloads),
            "\n".join(causes),
            "\n".join(actors),
            b",".join(hashes),
        )
    except TypeError:
        return None


def follows(page: Page, previous: bytes) -> bool:
    """Whether every hash of the page is the right one, if `previous` is that of the row before it.

    Columns of different lengths make no rows, so nothing follows from them.
    """
    try:
        return linked(
            previous, page.after, page.ats, page.streams, page.types, page.versions,
            page.payloads, page.causes, page.actors, page.hashes,
        )  # fmt: skip
    except (TypeError, ValueError, OverflowError):
        return False
