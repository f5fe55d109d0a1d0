"""Which log is meant, and how it is opened: a SQLite file, PostgreSQL, memory, or an export."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from stat import S_ISDIR, S_ISREG

from cli.complaints import WRONG_USAGE, Complaint
from cli.exported import GZIP_MAGIC, ExportedLog
from cli.settings import reason
from controlplane.errors import LogCorrupt, LogUnavailable
from controlplane.ports import EventLog, SearchableLog

SQLITE_MAGIC = b"SQLite format 3\x00"
POSTGRES_SCHEMES = ("postgresql", "postgres")


class Kind(StrEnum):
    SQLITE = "sqlite"
    POSTGRES = "postgres"
    MEMORY = "memory"
    EXPORT = "export"


@dataclass(frozen=True, slots=True)
class Source:
    kind: Kind
    # A path, or a URL.
    place: str

    @property
    def path(self) -> Path:
        assert self.kind in (Kind.SQLITE, Kind.EXPORT), self.kind
        return Path(self.place)

    def __str__(self) -> str:
        """For people: without the password that a URL may hold."""
        if self.kind is Kind.POSTGRES:
            scheme, _, rest = self.place.partition("://")
            return f"{scheme}://{rest.rpartition('@')[2]}"
        return {Kind.MEMORY: "memory"}.get(self.kind, self.place)


def parse_source(text: str) -> Source:
    """What `--db` or a LOG argument names; raises Complaint for what is neither."""
    scheme, separator, rest = text.partition(":")
    if not text:
        raise Complaint("an empty name is no log", exit_code=WRONG_USAGE)
    if text == "-":
        return Source(Kind.EXPORT, text)
    if text in ("memory", "memory:", ":memory:"):
        return Source(Kind.MEMORY, "")
    if scheme in POSTGRES_SCHEMES and separator:
        return Source(Kind.POSTGRES, text)
    if scheme == "sqlite" and separator:
        # As in SQLAlchemy's URLs, a third slash ends the empty host, and a fourth begins the path.
        text = rest.removeprefix("//")
        text = text.removeprefix("/") if rest.startswith("///") else text
        if text == ":memory:":
            return Source(Kind.MEMORY, "")
    elif "://" in text:
        raise Complaint(
            f"{scheme}: is no kind of log that is known here",
            hint="Use a file, sqlite:///FILE, postgresql://..., or memory:.",
            exit_code=WRONG_USAGE,
        )
    path = Path(text).expanduser()
    return Source(Kind.EXPORT if _is_export(path) else Kind.SQLITE, str(path))


def _is_export(path: Path) -> bool:
    """Told by what is in the file, and by its name only while nothing is in it."""
    try:
        with path.open("rb") as file:
            start = file.read(len(SQLITE_MAGIC))
    except OSError:
        start = b""
    return start.lstrip().startswith((b"{", GZIP_MAGIC)) or (
        not start and path.suffix in (".jsonl", ".ndjson")
    )


@asynccontextmanager
async def reading(source: Source) -> AsyncIterator[EventLog]:
    """The log, opened so that whoever writes it is not disturbed; failures become complaints."""
    try:
        log = await _open_to_read(source)
        try:
            yield log
        finally:
            await log.close()
    except LogUnavailable as error:
        raise Complaint(str(error)) from None
    except LogCorrupt as error:
        raise damage(source, error) from None


async def _open_to_read(source: Source) -> EventLog:
    if source.kind is Kind.MEMORY:
        raise Complaint("a log in memory is gone when its server is", exit_code=WRONG_USAGE)
    if source.kind is Kind.POSTGRES:
        return await open_postgres(source.place, read_only=True)
    if source.place == "-":
        return ExportedLog.from_stdin()
    _require_file(source.path)
    if source.kind is Kind.EXPORT:
        return ExportedLog.open(source.path)
    from adapters.sqlite_log import SqliteLog

    return await SqliteLog.open(source.path, read_only=True)


def _require_file(path: Path) -> None:
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        told = f"there is no log {path}"
    except (OSError, ValueError) as error:
        told = f"{path} cannot be read: {reason(error)}"
    else:
        if S_ISREG(mode):
            return
        told = f"{path} is no file" + (", but a folder" if S_ISDIR(mode) else "; - reads a pipe")
    hint = "Name a SQLite file, a postgresql:// URL or an export; `muster up` makes a log."
    raise Complaint(told, hint=hint)


async def open_postgres(url: str, *, read_only: bool = False) -> SearchableLog:
    from adapters.postgres_log import PostgresLog

    return await PostgresLog.open(url, read_only=read_only)


def damage(source: Source, error: LogCorrupt) -> Complaint:
    """The first bad position, and how to save what lies before it."""
    good = error.position - 1
    if good < 1:
        return Complaint(f"{source} is damaged: {error}", hint="Restore it from a backup.")
    return Complaint(
        f"{source} is damaged at {error}",
        hint=f"Positions 1-{good} are good. Keep a copy; save them with "
        f"`muster log export {source} --to {good} -o good.jsonl`, and go on with "
        "`muster log import good.jsonl NEW`.",
    )
