"""`muster list`, `get`, `why` and `wait`: reading jobs."""

import sys
from collections.abc import Hashable, Mapping

import click
from rich.console import RenderableType
from rich.text import Text

from cli.client.client import Client, connect, job_path, run
from cli.client.refresh import repaint, report
from cli.jobs.wait import exit_with, wait_for_all
from cli.options import (
    JobName,
    all_namespaces_option,
    job_argument,
    jobs_argument,
    namespace_option,
    output_option,
    parse_job,
    url_option,
)
from cli.output.forecast_lines import forecast_line
from cli.output.job_tables import detail, list_table, note, why_text, wide_table
from cli.output.tables import write, write_as
from cli.output.times import clock_time
from controlplane.model.phases import Phase
from controlplane.queries.views import JobDetail, JobView
from studies.forecast.views import WhyAnswer

# Query parameters of a list of jobs.
Query = dict[str, object]

watch_option = click.option("-w", "--watch", is_flag=True, help="Show changes until interrupted.")


# ---------------------------------------------------------------- list


@click.command("list")
@all_namespaces_option
@namespace_option
@click.option(
    "--phase",
    type=click.Choice([phase.value for phase in Phase], case_sensitive=False),
    multiple=True,
    help="Only jobs in this phase; may be repeated.",
)
@click.option("--queue", help="Only jobs of this queue.")
@click.option("--kind", "-T", help="Only jobs of this kind, such as TFJob.")
@click.option("--array", help="The jobs of this array, one line for each index.")
@output_option()
@watch_option
@url_option
def list_command(
    all_namespaces: bool,
    namespace: str,
    phase: tuple[str, ...],
    queue: str | None,
    kind: str | None,
    array: str | None,
    output: str,
    watch: bool,
    url: str | None,
) -> None:
    """List jobs, in the order in which they were submitted.

    \b
    Examples:
      muster list
      muster list -A --phase Running --phase Restarting
      muster list --array sweep --phase Failed
      muster list --watch
      muster list -o json | jq '.items[] | select(.restarts > 0) | .name'
    """
    wanted = None if all_namespaces else namespace
    query: Query = {"namespace": wanted, "phase": phase, "queue": queue, "kind": kind}
    query["array"] = array
    if watch:
        _refuse_watch(output)
        run(_watch_list(url, query, all_namespaces))
    jobs, now = run(_list(url, query))
    if output == "table" and not jobs:
        such = "such " if phase or queue or kind else ""
        where = "" if all_namespaces else f" in namespace {namespace}"
        click.echo(f"no {such}jobs{where}", err=True)
        return
    _show_list(jobs, now, output, all_namespaces)


async def _list(url: str | None, query: Query) -> tuple[list[JobView], float]:
    async with connect(url) as server:
        return await _find(server, query), server.now


async def _find(server: Client, query: Query) -> list[JobView]:
    return await server.all_pages("/v1/jobs", JobView, **query)


def _show_list(jobs: list[JobView], now: float, output: str, all_namespaces: bool) -> None:
    match output:
        case "table":
            write(list_table(jobs, now, all_namespaces=all_namespaces))
        case "wide":
            write(wide_table(jobs))
        case "name":
            for job in jobs:
                click.echo(f"{job.namespace}/{job.name}")
        case _:
            write_as(output, {"items": jobs})


def _refuse_watch(output: str) -> None:
    if output not in ("table", "wide"):
        raise click.UsageError(f"--watch shows a table; it does not go with -o {output}.")


async def _watch_list(url: str | None, query: Query, all_namespaces: bool) -> None:
    async with connect(url) as server:

        async def picture() -> RenderableType:
            jobs = await _find(server, query)
            if not jobs:
                return Text("no jobs")
            return list_table(jobs, server.now, all_namespaces=all_namespaces)

        async def lines() -> Mapping[Hashable, tuple[Hashable, str]]:
            jobs = await _find(server, query)
            return {f"{j.namespace}/{j.name}": _line(j, server.now) for j in jobs}

        if sys.stdout.isatty():
            await repaint(server, picture)
        await report(server, lines)


def _line(job: JobView, now: float) -> tuple[Hashable, str]:
    state = (job.id, job.phase, job.ranks_running, job.attempt, job.restarts, job.deleting)
    line = (
        f"{clock_time(now)}  {job.namespace}/{job.name}  {job.phase}  "
        f"{job.ranks_running}/{job.ranks}  {note(job, now)}"
    )
    return state, line.rstrip()


# ---------------------------------------------------------------- get, why


@click.command()
@job_argument
@namespace_option
@output_option()
@watch_option
@url_option
def get(job: str, namespace: str, output: str, watch: bool, url: str | None) -> None:
    """Show a job with its ranks, where they run, and every restart.

    \b
    Examples:
      muster get bert
      muster get research/bert -o yaml
      muster get bert --watch
    """
    name = parse_job(job, namespace)
    if watch:
        _refuse_watch(output)
        run(_watch_job(url, name))
    job_detail, now = run(_get(url, name))
    match output:
        case "table":
            write(detail(job_detail, now))
        case "wide":
            write(wide_table([job_detail.job]))
        case "name":
            click.echo(str(name))
        case _:
            write_as(output, job_detail)


async def _get(url: str | None, name: JobName) -> tuple[JobDetail, float]:
    async with connect(url) as server:
        return await server.get(job_path(*name), JobDetail), server.now


async def _watch_job(url: str | None, name: JobName) -> None:
    async with connect(url) as server:

        async def picture() -> RenderableType:
            return detail(await server.get(job_path(*name), JobDetail), server.now)

        async def lines() -> Mapping[Hashable, tuple[Hashable, str]]:
            job_detail = await server.get(job_path(*name), JobDetail)
            return {str(name): _line(job_detail.job, server.now)}

        if sys.stdout.isatty():
            await repaint(server, picture)
        await report(server, lines)


@click.command()
@job_argument
@namespace_option
@output_option("table", "json", "yaml")
@url_option
def why(job: str, namespace: str, output: str, url: str | None) -> None:
    """Explain why a job waits, restarted or ended.

    \b
    Examples:
      muster why bert
      muster why bert -o json | jq '.reasons[].code'
    """
    answer = run(_why(url, parse_job(job, namespace)))
    if output == "table":
        write(why_text(answer, with_start=answer.forecast is None))
        if forecast := forecast_line(answer.forecast):
            click.echo(forecast)
    else:
        write_as(output, answer)


async def _why(url: str | None, name: JobName) -> WhyAnswer:
    async with connect(url) as server:
        return await server.get(job_path(*name, "/why"), WhyAnswer)


# ---------------------------------------------------------------- wait


@click.command()
@jobs_argument
@namespace_option
@click.option("-q", "--quiet", is_flag=True, help="Print nothing; the exit code is the outcome.")
@url_option
def wait(jobs: tuple[str, ...], namespace: str, quiet: bool, url: str | None) -> None:
    """Wait until jobs have finished.

    Exit code: 0 if all succeeded, 100 if one failed, 101 if one was cancelled, 102 if one does
    not exist.

    \b
    Examples:
      muster wait bert && muster submit eval.yaml
    """
    run(_wait([parse_job(job, namespace) for job in jobs], url, quiet))


async def _wait(names: list[JobName], url: str | None, quiet: bool) -> None:
    async with connect(url) as server:
        exit_with(await wait_for_all(server, names, quiet=quiet))
