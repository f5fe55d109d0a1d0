"""Waiting for the end of jobs, and the resulting exit code."""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple, NoReturn

import click

from cli.client.client import Client, Refused, job_path
from cli.client.event_stream import follow, recorded_of
from cli.errors import JOB_CANCELLED, JOB_FAILED, NO_SUCH_JOB
from cli.options import JobName
from cli.output.times import clock_time, span
from controlplane.event_messages import describe
from controlplane.model import events as e

# The events that are reported while waiting.
REPORTED: tuple[type[e.Event], ...] = (
    e.GangPlaced,
    e.GangStarted,
    e.JobRestarting,
    e.JobRequeued,
    e.JobSuspended,
    e.JobResumed,
    e.JobScaled,
    e.DependenciesMet,
    e.OwnerReady,
    e.OwnerSuspended,
    e.OwnerResumed,
    e.MembersRetried,
)
ENDINGS: dict[type[e.Event], int] = {
    e.JobSucceeded: 0,
    e.JobFailed: JOB_FAILED,
    e.JobCancelled: JOB_CANCELLED,
    e.JobRemoved: NO_SUCH_JOB,
    e.OwnerSucceeded: 0,
    e.OwnerFailed: JOB_FAILED,
    e.OwnerErrored: JOB_FAILED,
    e.OwnerCancelled: JOB_CANCELLED,
    e.OwnerRemoved: NO_SUCH_JOB,
}


class Ending(NamedTuple):
    job: JobName
    exit_code: int
    text: str


async def wait_for_all(
    server: Client, jobs: Sequence[JobName], *, quiet: bool = False
) -> list[Ending]:
    """Wait for every job, and report on standard error what happens meanwhile.

    When a person interrupts it, a message reminds them that the jobs go on.
    """
    try:
        return list(await asyncio.gather(*(_wait_for(server, job, quiet=quiet) for job in jobs)))
    except asyncio.CancelledError:
        if not quiet:
            _report_unfinished(jobs)
        raise


def _report_unfinished(jobs: Sequence[JobName]) -> None:
    names = " ".join(str(job) for job in jobs)
    them = "it" if len(jobs) == 1 else "them"
    click.echo(
        f"\nno longer waiting; {names} {'goes' if len(jobs) == 1 else 'go'} on. "
        f"To wait again: muster wait {names}; to stop {them}: muster cancel {names}",
        err=True,
    )


async def _wait_for(server: Client, job: JobName, *, quiet: bool) -> Ending:
    began: float | None = None
    try:
        async for view in follow(server, 0, job_path(*job, "/events")):
            recorded = recorded_of(view)
            began = recorded.at if began is None else began
            event = recorded.event
            code = ENDINGS.get(type(event))
            if code is not None:
                text = f"{describe(event)}, {span(recorded.at - began)} after it was submitted"
                _print_line(f"{job}: {text}", quiet)
                return Ending(job, code, text)
            if isinstance(event, REPORTED):
                _print_line(f"{clock_time(recorded.at)} {job}: {describe(event)}", quiet)
    except Refused as refused:
        if refused.problem.code != "no_such_job" or began is None:
            raise
    return Ending(job, NO_SUCH_JOB, "it was deleted meanwhile")


def _print_line(line: str, quiet: bool) -> None:
    if not quiet:
        click.echo(line, err=True)


def exit_with(endings: Sequence[Ending]) -> NoReturn:
    """Exit with the exit code of the worst ending."""
    codes = {ending.exit_code for ending in endings}
    for code in (JOB_FAILED, JOB_CANCELLED, NO_SUCH_JOB):
        if code in codes:
            raise click.exceptions.Exit(code)
    raise click.exceptions.Exit(0)
