"""What SQLite's errors mean for a log, and what a person can do about them."""

import sqlite3
from pathlib import Path

from controlplane.errors import LogCorrupt, LogUnavailable

ADVICE = {
    sqlite3.SQLITE_FULL: "the disk is full; make room and start again",
    sqlite3.SQLITE_BUSY: "another program keeps it locked; stop that one or wait for its end",
    sqlite3.SQLITE_READONLY: (
        "it cannot be written; let this user write the file and its folder, or only read the log"
    ),
    sqlite3.SQLITE_CANTOPEN: (
        "it cannot be opened; see that it is a file in a folder that exists, "
        "and that this user may read and write both"
    ),
    sqlite3.SQLITE_IOERR: "the disk reports an error; see the kernel's log before you start again",
}
# SQLITE_ERROR means that tables are missing: what we ask for never changes.
DAMAGE = {
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_CONSTRAINT,
    sqlite3.SQLITE_TOOBIG,
    sqlite3.SQLITE_ERROR,
}


def translated(error: sqlite3.Error, path: Path) -> LogUnavailable | LogCorrupt:
    if is_damage(error):
        return LogCorrupt(
            0,
            f"{path} is damaged ({error}); keep a copy, save with `muster log export` what can "
            "be read, and go on from that or from a backup",
        )
    return LogUnavailable(f"{path}: {ADVICE.get(code_of(error), 'SQLite failed')} ({error})")


def is_damage(error: sqlite3.Error) -> bool:
    return code_of(error) in DAMAGE


def code_of(error: sqlite3.Error) -> int:
    # Text that is not UTF-8 is noticed by the sqlite3 module, which gives its error no code.
    codeless = sqlite3.SQLITE_CORRUPT if isinstance(error, sqlite3.OperationalError) else 0
    code = getattr(error, "sqlite_errorcode", codeless)
    # The low byte is the kind, the rest its circumstances.
    return int(code) & 0xFF
