"""`muster logs`: the logs of all ranks of a job, or of some."""

import asyncio
from collections.abc import Sequence
from typing import Any

import click

from cli.client.client import Client, connect, job_path, run
from cli.client.follow_logs import follow_pods, has_pods
from cli.errors import WRONG_USAGE, CliError
from cli.jobs.wait import exit_with, wait_for_all
from cli.options import JobName, job_argument, namespace_option, parse_job, url_option
from controlplane.queries.views import JobDetail, LogLines

AT_ONCE_MAX = 16
LOOK_EVERY_S = 0.5
TAIL_MAX = 10_000


@click.command()
@job_argument
@namespace_option
@click.option("-f", "--follow", is_flag=True, help="Show new lines until the job ends.")
@click.option(
    "-r", "--rank", multiple=True, help="Only this rank: a number, or a name such as worker-0."
)
@click.option(
    "-t",
    "--tail",
    type=click.IntRange(1, TAIL_MAX),
    default=100,
    show_default=True,
    help="Show at most this many lines of each rank.",
)
@click.option(
    "-a", "--attempt", type=click.IntRange(1), help="Logs of this attempt instead of the latest."
)
@click.option(
    "-p", "--previous", is_flag=True, help="Logs of containers before their last restart."
)
@click.option(
    "-c", "--container", default="", help="Logs of this container instead of the main one."
)
@url_option
def logs(
    job: str,
    namespace: str,
    follow: bool,
    rank: tuple[str, ...],
    tail: int,
    attempt: int | None,
    previous: bool,
    container: str,
    url: str | None,
) -> None:
    """Show the logs of a job's latest attempt, each line with the name of its rank.

    On Kubernetes the logs of deleted pods are kept for a while, of all containers.
    Without --container they are those of the container whose exit code counts for the
    rank.

    \b
    Examples:
      muster logs bert --tail 20
      muster logs bert --rank master-0 --follow
      muster logs bert --attempt 1
      muster logs bert --rank 0 --container sidecar
    """
    name = parse_job(job, namespace)
    if follow and (attempt or previous):
        raise CliError("what is over cannot be followed", exit_code=WRONG_USAGE)
    asked = {"attempt": attempt, "previous": "true" if previous else None, "container": container}
    older = {key: value for key, value in asked.items() if value}
    if follow:
        run(_follow(url, name, rank, tail, container))
    else:
        run(_print(url, name, rank, tail, older))


async def _print(
    url: str | None, name: JobName, wanted: Sequence[str], tail: int, older: dict[str, Any]
) -> None:
    async with connect(url) as server:
        job = await server.get(job_path(*name), JobDetail)
        ranks = ranks_named(job, wanted)
        logs = await _lines(server, name, ranks, tail, **older)
        for rank, lines in zip(ranks, logs, strict=True):
            _print_lines(job, rank, lines.lines, alone=len(ranks) == 1)


def names_of(job: JobDetail) -> list[str]:
    if job.attempt is not None:
        return [rank.name for rank in job.attempt.ranks]
    return [job.spec.rank_name(rank) for rank in range(job.spec.size)]


def ranks_named(job: JobDetail, wanted: Sequence[str]) -> list[int]:
    """Return the numbers of the ranks named in `wanted`; all ranks if it is empty."""
    names = names_of(job)
    if not wanted:
        return list(range(len(names)))
    ranks: list[int] = []
    for each in wanted:
        if each.isdigit() and int(each) < len(names):
            ranks.append(int(each))
        elif each.lower() in names:
            ranks.append(names.index(each.lower()))
        else:
            raise CliError(
                f"there is no rank {each!r}; the ranks are 0-{len(names) - 1}: {_some(names)}",
                exit_code=WRONG_USAGE,
            )
    return ranks


def _some(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= 8 else f"{', '.join(names[:8])}, ..."


async def _lines(
    server: Client, name: JobName, ranks: Sequence[int], tail: int, **older: Any
) -> list[LogLines]:
    turns = asyncio.Semaphore(AT_ONCE_MAX)

    async def ask(rank: int) -> LogLines:
        query = {"rank": rank, "tail": tail, **older}
        async with turns:
            return await server.get(job_path(*name, "/logs"), LogLines, **query)

    return list(await asyncio.gather(*(ask(rank) for rank in ranks)))


def _print_lines(job: JobDetail, rank: int, lines: Sequence[str], *, alone: bool) -> None:
    prefix = "" if alone else f"[{names_of(job)[rank]}] "
    for line in lines:
        click.echo(prefix + line)


async def _follow(
    url: str | None, name: JobName, wanted: Sequence[str], tail: int, container: str
) -> None:
    async with connect(url) as server:
        end = asyncio.create_task(wait_for_all(server, [name], quiet=True))
        try:
            if await has_pods(server, name):
                await follow_pods(server, name, wanted, tail, end, container)
            elif container:
                message = "a simulated cluster has no containers"
                raise CliError(message, exit_code=WRONG_USAGE)
            else:
                await _look_again_and_again(server, name, wanted, tail, end)
        finally:
            end.cancel()
        click.echo(f"{name}: {end.result()[0].text}", err=True)
        exit_with(end.result())


async def _look_again_and_again(
    server: Client, name: JobName, wanted: Sequence[str], tail: int, end: asyncio.Task[Any]
) -> None:
    seen: dict[int, tuple[int, list[str]]] = {}
    while True:
        over = end.done()
        await _print_new(server, name, wanted, tail, seen)
        if over:
            break
        await asyncio.wait({end}, timeout=LOOK_EVERY_S)


async def _print_new(
    server: Client,
    name: JobName,
    wanted: Sequence[str],
    tail: int,
    seen: dict[int, tuple[int, list[str]]],
) -> None:
    """Print the lines that are new since the last call; a new attempt starts over."""
    job = await server.get(job_path(*name), JobDetail)
    ranks = ranks_named(job, wanted)
    # The first call shows the tail; later calls must not lose lines written in between.
    depth = tail if not seen else TAIL_MAX
    for rank, log in zip(ranks, await _lines(server, name, ranks, depth), strict=True):
        attempt, before = seen.get(rank, (log.attempt, []))
        fresh = log.lines if attempt != log.attempt else _fresh(before, log.lines)
        _print_lines(job, rank, fresh, alone=len(ranks) == 1)
        seen[rank] = (log.attempt, log.lines)


def _fresh(before: list[str], now: list[str]) -> list[str]:
    """Return the lines after the last one that was already shown."""
    if not before:
        return now
    for index in range(len(now) - 1, -1, -1):
        if now[index] == before[-1]:
            return now[index + 1 :]
    return now
