"""What can go wrong and has a name: refusals for people, and a log that says no."""

from collections.abc import Sequence
from typing import NamedTuple


class Problem(NamedTuple):
    """One thing that is wrong with a document: what sort of fault, in which field, and the advice.

    The sorts are those of Kubernetes' own validation: Required, Invalid, Forbidden, NotSupported,
    Duplicate, TooLong and TypeInvalid.
    """

    sort: str
    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


class Rejected(Exception):
    """A request that cannot be met. The code is stable; the message is for the person.

    A document may be wrong in several places; then `problems` has them all.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        field: str | None = None,
        problems: Sequence[Problem] = (),
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.field = field
        self.problems = tuple(problems)


class LogConflict(Exception):
    """Another writer leads now: this one's append changed nothing, and it must stop."""


class LogUnavailable(Exception):
    """The log could not be reached or written; whether the append happened may be unknown."""


class TelemetryUnavailable(Exception):
    """What measures the devices could not be asked; the message says what and why."""


class LogCorrupt(Exception):
    """The log does not say what was once written to it."""

    def __init__(self, position: int, message: str) -> None:
        super().__init__(f"position {position}: {message}")
        self.position = position
