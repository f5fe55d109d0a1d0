"""The formats of traces: the reader of each, and how a file's format is recognised."""

import zlib
from collections.abc import Callable
from pathlib import Path

from studies.workloads import alibaba, slurm_like
from studies.workloads.csv_trace import REQUIRED, open_bytes, open_text, read_csv
from studies.workloads.event_log import read_event_log
from studies.workloads.philly import read_philly
from studies.workloads.swf import read_swf
from studies.workloads.trace import BadTrace, Trace

READERS: dict[str, Callable[[Path], Trace]] = {
    "csv": read_csv,
    "philly": read_philly,
    "pai": alibaba.read_pai,
    "openb": alibaba.read_openb,
    "lingjun": alibaba.read_lingjun,
    "helios": slurm_like.read_helios,
    "acme": slurm_like.read_acme,
    "swf": read_swf,
    "muster": read_event_log,
}
# The columns by which a CSV file is recognised.
_HEADERS = {
    "csv": REQUIRED,
    "openb": alibaba.OPENB,
    "helios": slurm_like.HELIOS,
    "acme": slurm_like.ACME,
}
# The first bytes of a log in an SQLite file.
SQLITE = b"SQLite format 3\0"
_FOLDERS = {"pai": "pai_task_table.csv", "lingjun": "worker.csv"}


def read_trace(path: Path, form: str = "") -> Trace:
    """Read the workload in a file or folder; without `form`, its content determines the format.

    Raise BadTrace if it cannot be read.
    """
    if form and form not in READERS:
        raise BadTrace(
            str(path), None, f"{form!r} is not a trace format; use one of {', '.join(READERS)}"
        )
    try:
        there = path.exists()
    except OSError as error:
        raise BadTrace(str(path), None, f"cannot be read: {error.strerror}") from None
    if not there:
        raise BadTrace(str(path), None, "there is no such file")
    return READERS[form or form_of(path)](path)


def form_of(path: Path) -> str:
    """Return the format of a file or folder by its content; raise BadTrace if it is unknown."""
    if path.is_dir():
        for form, table in _FOLDERS.items():
            if (path / table).exists():
                return form
        tables = " or ".join(_FOLDERS.values())
        raise BadTrace(str(path), None, f"is a folder without {tables}")
    if ".swf" in path.suffixes:
        return "swf"
    return _form_of_text(path)


def _form_of_text(path: Path) -> str:
    try:
        with open_bytes(path) as file:
            is_log = file.read(len(SQLITE)) == SQLITE
        if is_log:
            message = f"is a log; `muster log export {path}` makes a trace of it"
            raise BadTrace(path.name, None, message)
        with open_text(path) as text:
            first = text.readline(1_000_000).strip()
    except UnicodeDecodeError:
        raise BadTrace(path.name, None, "is not UTF-8 text") from None
    except (OSError, EOFError, zlib.error) as error:
        raise BadTrace(path.name, None, f"cannot be unpacked: {error}") from None
    if first.startswith("["):
        return "philly"
    if first.startswith("{"):
        return "muster"
    if first.startswith(";"):
        return "swf"
    columns = {column.strip() for column in first.split(",")}
    for form, header in _HEADERS.items():
        if columns.issuperset(header):
            return form
    # The reader of Muster's own format reports best which columns are missing.
    return "csv"
