"""The events in many payloads, read in one call.

Where the core is compiled, `deploy/compiled/payloads.c` stands in this module's place and does the
same without an object for each name.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

# For each name of a type the version that is read, and what reads it.
Readers = Mapping[str, tuple[int, Callable[[bytes], Any]]]


def read_all(
    types: str, versions: Sequence[int], payloads: bytes, readers: Readers, /
) -> list[Any]:
    """An event for each line of the texts; None where there is no reader for it, or it refuses.

    Raises a TypeError or ValueError if these are no columns of rows.
    """
    return [
        _read(version, payload, readers.get(name))
        for name, version, payload in zip(
            str.split(types, "\n"), versions, bytes.split(payloads, b"\n"), strict=True
        )
    ]


def _read(version: int, payload: bytes, reader: tuple[int, Callable[[bytes], Any]] | None) -> Any:
    if reader is None or reader[0] != version:
        return None
    try:
        return reader[1](payload)
    except ValueError:
        return None
