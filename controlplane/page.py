"""A stretch of the log, column by column."""

import msgspec


class Page(msgspec.Struct, frozen=True, gc=False):
    """What the rows behind position `after` hold, without a gap: the n-th of each belong together.

    A row's values lie far apart here, so a page is for who goes through all of them. Whoever read
    it may have been mistaken: it is as good as its chain (see `chain.follows`).
    """

    after: int
    ats: list[float]
    streams: list[str]
    types: list[str]
    versions: list[int]
    payloads: list[bytes]
    causes: list[str]
    actors: list[str]
    hashes: list[bytes]

    @property
    def last(self) -> int:
        return self.after + len(self.hashes)
