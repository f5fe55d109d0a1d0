"""Reading many rows as columns.

A row that passes through the sqlite3 module costs a lock and some calls for each of its values,
which is more than finding it. A page costs them once for each column.

Whatever might go wrong on the way, a missing row, a line break within a value, or a time that was
not carried over to its last bit, the chain shows: a page is believed only if its hashes are right.
Otherwise, as for a damaged file, the rows are read one by one.
"""

import sqlite3

import msgspec

from adapters.sqlite_log.strung import COLUMNS, taken_apart
from controlplane.page import Page

# Pages of 250 to 1,000 rows take the same time; what one holds in memory at once is small.
PAGE_ROWS = 500

VERSIONS = """
    SELECT CAST(group_concat(version) AS BLOB) FROM events WHERE position > ? AND position <= ?
"""

_read_integers = msgspec.json.Decoder(list[int]).decode


def read_pages(connection: sqlite3.Connection, after: int, limit: int) -> list[Page]:
    """Pages that follow each other, as long as rows come apart as they should."""
    pages: list[Page] = []
    end = after + limit
    while after < end:
        try:
            page = _read_page(connection, after, min(after + PAGE_ROWS, end))
        except (sqlite3.Error, ValueError):
            break
        if page is None:
            break
        pages.append(page)
        after = page.last
    return pages


def _read_page(connection: sqlite3.Connection, after: int, upto: int) -> Page | None:
    """The rows up to a position; None if there are none, or if some lack a value."""
    columns = taken_apart(connection.execute(COLUMNS, (after, upto)).fetchone())
    if columns is None:
        return None
    ats, versions, streams, types, payloads, causes, actors, hashes = columns
    if versions is None:
        versions = _versions(connection, after, upto)
    return Page(after, ats, versions, streams, types, payloads, causes, actors, hashes)


def _versions(connection: sqlite3.Connection, after: int, upto: int) -> list[int]:
    (versions,) = connection.execute(VERSIONS, (after, upto)).fetchone()
    return _read_integers(b"[" + versions + b"]")
