"""Errors of the command line: what, where, what to do, and an exit code for scripts."""

from collections.abc import Sequence
from typing import IO, Any

import click

FAILED = 1
WRONG_USAGE = 2
JOB_FAILED = 100
JOB_CANCELLED = 101
NO_SUCH_JOB = 102
CAN_NEVER_FIT = 103
# A shell's exit code for an interrupt: 128 plus the number of the signal.
INTERRUPTED = 130

# The exit code of a refusal: by the stable code in the problem document, or else by its status.
EXIT_CODES = {"no_such_job": NO_SUCH_JOB, "can_never_fit": CAN_NEVER_FIT}
# Statuses of requests that are wrong in any state of the server.
WRONG_STATUSES = frozenset({400, 413, 415, 422})


class CliError(click.ClickException):
    """An error message in one line, optional lines with places, and a hint."""

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
        # click declares it for the class; each error has its own.
        self.exit_code = exit_code  # type: ignore[misc]

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"error: {self.message}", file=file, err=True)
        for place in self.places:
            click.echo(f"  {place}", file=file, err=True)
        if self.hint:
            click.echo(f"  {self.hint}", file=file, err=True)


def exit_code_of(code: str, status: int) -> int:
    """Return the exit code for a refusal with this problem code and HTTP status."""
    return EXIT_CODES.get(code, WRONG_USAGE if status in WRONG_STATUSES else FAILED)
