"""Exceptions that cross module boundaries: refused requests, and failures of the log."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple


class Problem(NamedTuple):
    """One problem of a document: its sort, the path of its field, and a message with advice.

    The sorts are those of Kubernetes' field validation: Required, Invalid, Forbidden, NotSupported,
    Duplicate and TypeInvalid.
    """

    sort: str
    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


class Rejected(Exception):
    """A refused request. `code` is stable; `message` is for the person who sent it.

    `field` is the path of the field at fault, if there is one, and `line` the line of the document
    if that is known. `problems` lists every problem of a document that has several.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        field: str | None = None,
        problems: Sequence[Problem] = (),
        line: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.field = field
        self.problems = tuple(problems)
        self.line = line


class LogConflict(Exception):
    """Another writer leads: the append changed nothing, and this writer must stop."""


class LogUnavailable(Exception):
    """The log cannot be reached or written; it may be unknown whether the append happened."""


class TelemetryUnavailable(Exception):
    """The source of device metrics cannot be queried; the message names it and the cause."""


class ImpossibleEvent(AssertionError):
    """An event that the present state does not allow: a bug, or a log that was altered."""


class LogCorrupt(Exception):
    """The log differs from what was written to it; `position` is the first bad one."""

    def __init__(self, position: int, message: str) -> None:
        super().__init__(f"position {position}: {message}")
        self.position = position


class PolicyMissing(LogCorrupt):
    """The log names a discipline or quota model that is not installed here."""


class JobFault(Exception):
    """An error that concerns one job; `error` is the original."""

    def __init__(self, job: str, error: Exception) -> None:
        super().__init__(job, error)
        self.job = job
        self.error = error

    def __str__(self) -> str:
        return f"{type(self.error).__name__} for job {self.job}: {self.error}"


@contextmanager
def concerning(job: str) -> Iterator[None]:
    """Wrap errors that the block raises in a JobFault for this job; Rejected passes unchanged."""
    try:
        yield
    except (Rejected, JobFault):
        raise
    except Exception as error:
        raise JobFault(job, error) from error
