"""Times as SQLite strings them together, to the last bit.

SQLite writes 15 digits of a number, and some times have 17. As a multiple of 2**-30 a time is an
integer, unless it is before February 1970.

Where the core is compiled, `deploy/compiled/times.c` stands in this module's place and does the same.
"""

import msgspec

FRACTION = 2.0**30

_read_numbers = msgspec.json.Decoder(list[float]).decode
_to_seconds = (1 / FRACTION).__mul__


def seconds(text: bytes, /) -> list[float]:
    """The times in a text of such integers with commas between them; raises ValueError."""
    return list(map(_to_seconds, _read_numbers(b"[" + text + b"]")))
