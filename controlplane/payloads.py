"""The events in many payloads, read in one call."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

# For each name of a type the version that is read, what reads it, and whether events of jobs that
# differ in the job alone may be taken for one.
Readers = Mapping[str, tuple[int, Callable[[bytes], Any], bool]]


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


def read_alike(
    types: str, versions: Sequence[int], payloads: bytes, readers: Readers, /
) -> tuple[list[str | None], list[Any]]:
    """The same events, each with the id of the job that it is said of, in place of its own.

    None stands for its own.
    """
    events = read_all(types, versions, payloads, readers)
    return [None] * len(events), events


def forget() -> None:
    """Lets go of what was remembered for the next call."""


def _read(
    version: int, payload: bytes, reader: tuple[int, Callable[[bytes], Any], bool] | None
) -> Any:
    if reader is None or reader[0] != version:
        return None
    try:
        return reader[1](payload)
    except ValueError:
        return None
