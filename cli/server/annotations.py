"""Where a server keeps the annotations of its log."""

from pathlib import Path

from api.history.annotations import AnnotationBook, beside
from cli.errors import CliError
from cli.log.sources import Kind, Source


def annotations_of(source: Source) -> AnnotationBook:
    """Return the annotations of a log: beside it, or in memory if it is no file. Raise CliError."""
    is_file = source.kind in (Kind.SQLITE, Kind.EXPORT) and source.place != "-"
    try:
        return AnnotationBook(beside(Path(source.place).absolute()) if is_file else None)
    except ValueError as error:
        hint = "Move that file away, or mend it: it is a JSON list."
        raise CliError(str(error), hint=hint) from None
