"""One writer a file, said before anybody is hurt.

The log's own fence would let a second control plane take the lead and stop the first one. Between
machines that is what one wants; twice on one machine it is a mistake, so it is refused here.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cli.complaints import Complaint
from cli.settings import reason


@contextmanager
def sole_writer(path: Path) -> Iterator[None]:
    """Holds the file for this process until the block ends, however the process ends."""
    lock = path.with_name(path.name + ".lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Complaint(
            f"the event log {path} cannot be used: {reason(error)}", hint="Name another with --db."
        ) from None
    try:
        _take(handle, path)
        yield
    finally:
        # The file stays: removing it would let two processes hold two files of one name.
        os.close(handle)


def _take(handle: int, path: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = os.pread(handle, 32, 0).decode(errors="replace").strip()
        who = f" (process {holder})" if holder else ""
        raise Complaint(
            f"another muster{who} already writes to {path}",
            hint="Stop that one first, or use another file with --db.",
        ) from None
    os.ftruncate(handle, 0)
    os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
