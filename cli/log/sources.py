"""The log that an argument names, and how it is opened: SQLite, PostgreSQL, memory or an export."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from stat import S_ISDIR, S_ISREG

from cli.errors import WRONG_USAGE, CliError
from cli.log.exported_log import GZIP_MAGIC, ExportedLog
from cli.settings import reason
from controlplane.model.errors import LogCorrupt, LogUnavailable, PolicyMissing
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
    def where(self) -> str | Path:
        """The SQLite file or the PostgreSQL URL to open."""
        return self.place if self.kind is Kind.POSTGRES else self.path

    @property
    def path(self) -> Path:
        assert self.kind in (Kind.SQLITE, Kind.EXPORT), self.kind
        return Path(self.place)

    def __str__(self) -> str:
        """Return the place for display, without the password that a URL may hold."""
        if self.kind is Kind.POSTGRES:
            scheme, _, rest = self.place.partition("://")
            return f"{scheme}://{rest.rpartition('@')[2]}"
        return {Kind.MEMORY: "memory"}.get(self.kind, self.place)


def parse_source(text: str) -> Source:
    """Parse the value of `--db` or of a LOG argument; raise CliError if it names no log."""
    scheme, separator, rest = text.partition(":")
    if not text:
        raise CliError("the name of the log is empty", exit_code=WRONG_USAGE)
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
        raise CliError(
            f"{scheme}: is an unknown type of log",
            hint="Use a file, sqlite:///FILE, postgresql://..., or memory:.",
            exit_code=WRONG_USAGE,
        )
    path = Path(text).expanduser()
    return Source(Kind.EXPORT if _is_export(path) else Kind.SQLITE, str(path))


def _is_export(path: Path) -> bool:
    """Return whether the file is an export, by its content; by its name only if it is empty."""
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
    """Open the log without disturbing its writer; its failures become CliError."""
    load_installed_policies()
    try:
        log = await _open_to_read(source)
        try:
            yield log
        finally:
            await log.close()
    except LogUnavailable as error:
        raise CliError(str(error)) from None
    except LogCorrupt as error:
        raise damage(source, error) from None


def load_installed_policies() -> None:
    """Register the disciplines and quota models of other packages, which a log may name."""
    # Imported here because most commands read no log and the scheduler takes time to import.
    from cli.policies import load_policies

    load_policies()


async def _open_to_read(source: Source) -> EventLog:
    if source.kind is Kind.MEMORY:
        raise CliError("a log in memory is gone when its server is", exit_code=WRONG_USAGE)
    if source.kind is Kind.POSTGRES:
        return await open_log(source, read_only=True)
    if source.place == "-":
        return ExportedLog.from_stdin()
    _require_file(source.path)
    if source.kind is Kind.EXPORT:
        return ExportedLog.open(source.path)
    return await open_log(source, read_only=True)


def _require_file(path: Path) -> None:
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        message = f"there is no log {path}"
    except (OSError, ValueError) as error:
        message = f"{path} cannot be read: {reason(error)}"
    else:
        if S_ISREG(mode):
            return
        message = f"{path} is not a file" + (
            ", but a folder" if S_ISDIR(mode) else "; - reads a pipe"
        )
    hint = "Name a SQLite file, a postgresql:// URL or an export; `muster up` makes a log."
    raise CliError(message, hint=hint)


async def open_log(source: Source, *, read_only: bool = False) -> SearchableLog:
    """Open the log in a database, created unless `read_only`; raise LogUnavailable."""
    load_installed_policies()
    # Imported here because most commands open no database and SQLAlchemy takes time to import.
    from adapters.database.event_log import DatabaseLog

    return await DatabaseLog.open(source.where, read_only=read_only)


def damage(source: Source, error: LogCorrupt) -> CliError:
    """Return an error with the first bad position, and how to save the events before it."""
    if isinstance(error, PolicyMissing):
        hint = "Install the package that adds it; `muster log verify` then reads the whole log."
        return CliError(f"{source} cannot be read at {error}", hint=hint)
    good = error.position - 1
    if good < 1:
        return CliError(f"{source} is damaged: {error}", hint="Restore it from a backup.")
    return CliError(
        f"{source} is damaged at {error}",
        hint=f"Positions 1-{good} are good. Keep a copy; save them with "
        f"`muster log export {source} --to {good} -o good.jsonl`, and go on with "
        "`muster log import good.jsonl NEW`.",
    )
