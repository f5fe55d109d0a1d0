"""How the command line says no: what, where, what to do, and an exit code that scripts can use."""

from collections.abc import Sequence
from typing import IO, Any

import click

FAILED = 1
WRONG_USAGE = 2
JOB_FAILED = 100
JOB_CANCELLED = 101
NO_SUCH_JOB = 102
CAN_NEVER_FIT = 103
# What a shell makes of an interrupt: 128 and the number of the signal.
INTERRUPTED = 130

# The exit code of a refusal: by the stable code in the problem document, or else by its status.
EXIT_CODES = {"no_such_job": NO_SUCH_JOB, "can_never_fit": CAN_NEVER_FIT}
# What was sent cannot be taken, whatever the state of things.
WRONG_STATUSES = frozenset({400, 413, 415, 422})


class Complaint(click.ClickException):
    """One line that says what is wrong, perhaps one for each place, and what to do about it."""

    def __init__(
        self,
        message: str,
        *,
        places: Sequence[str] = (),
        hint: str = "",
        exit_code: int = FAILED,
    ) -> None:
        super().__init__(message)
        self.places = places
        self.hint = hint
        # click declares it for the class; each complaint has its own.
        self.exit_code = exit_code  # type: ignore[misc]

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"error: {self.message}", file=file, err=True)
        for place in self.places:
            click.echo(f"  {place}", file=file, err=True)
        if self.hint:
            click.echo(f"  {self.hint}", file=file, err=True)


def exit_code_of(code: str, status: int) -> int:
    """The exit code for what the server refused."""
    return EXIT_CODES.get(code, WRONG_USAGE if status in WRONG_STATUSES else FAILED)
