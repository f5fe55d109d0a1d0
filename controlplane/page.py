"""A stretch of the log, column by column."""

import msgspec

HASH_BYTES = 32


class Page(msgspec.Struct, frozen=True, gc=False):
    """What the rows behind position `after` hold, without a gap: the n-th of each belong together.

    Most columns are one text, with a line for each row, and are taken apart only by who needs to: a
    row's values lie far apart here, so a page is for who goes through all of them. Whoever read it
    may have been mistaken: it is as good as its chain (see `chain.follows`).
    """

    after: int
    ats: list[float]
    versions: list[int]
    streams: str
    types: str
    payloads: bytes
    causes: str
    actors: str
    # With a comma between two: SQLite takes longer to leave it out.
    hashes: bytes

    @property
    def last(self) -> int:
        return self.after + (len(self.hashes) + 1) // (HASH_BYTES + 1)

    @property
    def hash(self) -> bytes:
        """That of the last row."""
        return self.hashes[-HASH_BYTES:]
