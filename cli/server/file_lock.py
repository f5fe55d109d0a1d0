"""A lock that allows one writer per file.

The log's own fence would let a second control plane take the lead and stop the first one. Between
machines that is intended; on one machine it is a mistake, so this lock refuses it.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cli.errors import CliError
from cli.settings import reason


@contextmanager
def sole_writer(path: Path) -> Iterator[None]:
    """Hold the lock of `path` until the block ends; the system frees it if the process dies."""
    lock = path.with_name(path.name + ".lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise CliError(
            f"the event log {path} cannot be used: {reason(error)}", hint="Name another with --db."
        ) from None
    try:
        _take(handle, path)
        yield
    finally:
        # The lock file stays: removing it would let two processes lock two files of the same name.
        os.close(handle)


def _take(handle: int, path: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = os.pread(handle, 32, 0).decode(errors="replace").strip()
        who = f" (process {holder})" if holder else ""
        raise CliError(
            f"another muster{who} already writes to {path}",
            hint="Stop that one first, or use another file with --db.",
        ) from None
    os.ftruncate(handle, 0)
    os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
