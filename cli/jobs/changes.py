"""`muster cancel`, `suspend`, `resume`, `scale`, `amend`, `rerun`, `delete`, `prune`: changes to jobs."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import click

from cli.client.client import Client, Refused, connect, job_path, run
from cli.errors import WRONG_USAGE, CliError
from cli.options import (
    JobName,
    Span,
    all_namespaces_option,
    dry_run_option,
    job_argument,
    jobs_argument,
    namespace_option,
    parse_job,
    url_option,
)
from cli.output.job_tables import list_table
from cli.output.preview_lines import preview_lines
from cli.output.tables import write
from cli.output.times import span
from controlplane.model.phases import FINISHED
from controlplane.model.spec import CleanPods
from controlplane.queries.views import JobDetail, JobView
from studies.forecast.views import Preview

Change = Callable[[Client, JobName], Awaitable[str]]


@click.command()
@jobs_argument
@dry_run_option
@namespace_option
@url_option
def cancel(jobs: tuple[str, ...], dry_run: bool, namespace: str, url: str | None) -> None:
    """Stop jobs. They stay in the list as Cancelled.

    \b
    Examples:
      muster cancel bert
      muster cancel research/bert research/gpt
    """
    _change_all(jobs, namespace, url, _post("cancel", "cancelled", dry_run=dry_run))


@click.command()
@jobs_argument
@dry_run_option
@namespace_option
@url_option
def suspend(jobs: tuple[str, ...], dry_run: bool, namespace: str, url: str | None) -> None:
    """Stop jobs and release their GPUs until they are resumed."""
    _change_all(jobs, namespace, url, _post("suspend", "suspended", dry_run=dry_run))


@click.command()
@jobs_argument
@dry_run_option
@namespace_option
@url_option
def resume(jobs: tuple[str, ...], dry_run: bool, namespace: str, url: str | None) -> None:
    """Queue suspended jobs again."""
    _change_all(jobs, namespace, url, _post("resume", "resumed", dry_run=dry_run))


@click.command()
@jobs_argument
@dry_run_option
@namespace_option
@url_option
def delete(jobs: tuple[str, ...], dry_run: bool, namespace: str, url: str | None) -> None:
    """Stop jobs if they run, and remove them. The event log keeps their history."""
    _change_all(jobs, namespace, url, _previewed("DELETE") if dry_run else _delete)


@click.command()
@job_argument
@click.option("--index", "indices", metavar="INDICES", help="Only these indices, such as 7,9-12.")
@namespace_option
@url_option
def retry(job: str, indices: str | None, namespace: str, url: str | None) -> None:
    """Run the failed and cancelled indices of an array again.

    \b
    Examples:
      muster retry sweep
      muster retry sweep --index 7,9-12
    """
    body = {} if indices is None else {"indices": indices}
    _change_all((job,), namespace, url, _post("retry", "retried", body))


@click.command()
@job_argument
@click.option(
    "--replicas", type=click.IntRange(0), required=True, help="The new number of replicas."
)
@click.option("--role", default="Worker", show_default=True, help="The role.")
@dry_run_option
@namespace_option
@url_option
def scale(
    job: str, replicas: int, role: str, dry_run: bool, namespace: str, url: str | None
) -> None:
    """Change the number of replicas of a role.

    An elastic gang grows or shrinks while it runs; any other gang restarts with the new size.

    \b
    Examples:
      muster scale bert --replicas 8
      muster scale wide --role PS --replicas 2
    """
    body = {"role": role, "replicas": replicas}
    change = _post("scale", f"scaled: {role} to {replicas} replicas", body, dry_run=dry_run)
    _change_all((job,), namespace, url, change)


# click uses None for an option that was not given.
NOTHING = object()


class Unless(click.ParamType[Any]):
    """A parameter type: a value of another type, or `none`, which becomes null."""

    def __init__(self, inner: click.ParamType[Any]) -> None:
        self.inner, self.name = inner, f"{inner.name}|none"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return NOTHING if value in (NOTHING, "none") else self.inner.convert(value, param, ctx)


@click.command()
@job_argument
@click.option("--deadline", type=Unless(Span()), help="Longest active time, or none.")
@click.option("--ttl", type=Unless(Span()), help="Time to keep the job after its end, or none.")
@click.option(
    "--restart-limit", type=Unless(click.IntRange(0)), help="Largest number of restarts, or none."
)
@click.option(
    "--clean",
    type=click.Choice([each.value for each in CleanPods]),
    help="Which pods to delete at the end.",
)
@click.option("--priority", type=int, help="Its priority, while it waits.")
@click.option("--queue", help="Another queue to wait in, while it waits.")
@dry_run_option
@namespace_option
@url_option
def amend(job: str, dry_run: bool, namespace: str, url: str | None, **asked: Any) -> None:
    """Change the limits of a job while it waits or runs, or its place in the line while it waits.

    What is not given stays the same. The TTL of a finished job can change, too.

    \b
    Examples:
      muster amend bert --deadline 12h
      muster amend bert --restart-limit 10 --ttl none
      muster amend bert --queue urgent --priority 10
    """
    names = {"deadline": "active_deadline_s", "ttl": "ttl_s"}
    given = {key: value for key, value in asked.items() if value is not None}
    if not given:
        raise CliError(
            "nothing to change: give --deadline, --ttl, --restart-limit, --clean, --priority or --queue",
            exit_code=WRONG_USAGE,
        )
    body = {names.get(key, key): None if x is NOTHING else x for key, x in given.items()}

    async def change(server: Client, job: JobName) -> str:
        await server.change("PATCH", job_path(*job), JobDetail, body)
        return f"amended: {', '.join(sorted(given)).replace('_', '-')}"

    _change_all((job,), namespace, url, _previewed("PATCH", body=body) if dry_run else change)


@click.command()
@job_argument
@click.option("--name", default="", help="The name of the new job; without it, a number is added.")
@namespace_option
@url_option
def rerun(job: str, name: str, namespace: str, url: str | None) -> None:
    """Submit a job once more, with the same spec and another name.

    \b
    Examples:
      muster rerun bert
      muster rerun bert --name bert-again
    """

    async def change(server: Client, job: JobName) -> str:
        path = job_path(*job, "/rerun")
        new = (await server.change("POST", path, JobDetail, {"name": name})).job
        return f"runs once more as {new.namespace}/{new.name}"

    _change_all((job,), namespace, url, change)


def _previewed(method: str, suffix: str = "", body: object = None) -> Change:
    """Return a change that only prints what it would do."""

    async def change(server: Client, job: JobName) -> str:
        path = job_path(*job, suffix)
        preview = await server.change(method, path, Preview, body, dry_run="true")
        return "\n".join(["(dry run)", *preview_lines(preview)])

    return change


def _post(verb: str, done: str, body: object = None, *, dry_run: bool = False) -> Change:
    if dry_run:
        return _previewed("POST", f"/{verb}", body)

    async def change(server: Client, job: JobName) -> str:
        await server.change("POST", job_path(*job, f"/{verb}"), JobDetail, body)
        return done

    return change


async def _delete(server: Client, job: JobName) -> str:
    await server.delete(job_path(*job))
    return "deleted"


def _change_all(jobs: Sequence[str], namespace: str, url: str | None, change: Change) -> None:
    run(_each([parse_job(job, namespace) for job in jobs], url, change))


async def _each(jobs: Sequence[JobName], url: str | None, change: Change) -> None:
    """Apply `change` to every job, and raise a CliError for the failures at the end."""
    complaints: list[CliError] = []
    async with connect(url) as server:
        for job in jobs:
            try:
                click.echo(f"{job} {await change(server, job)}")
            except Refused as refused:
                complaints.append(refused.cli_error())
    for cli_error in complaints[:-1]:
        cli_error.show()
    if complaints:
        raise complaints[-1]


@click.command()
@click.option(
    "-s",
    "--older-than",
    "--since",
    type=Span(),
    default="7d",
    show_default=True,
    help="Delete jobs that finished longer ago than this.",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--dry-run", is_flag=True, help="Only list the jobs.")
@all_namespaces_option
@namespace_option
@url_option
def prune(
    older_than: float,
    yes: bool,
    dry_run: bool,
    all_namespaces: bool,
    namespace: str,
    url: str | None,
) -> None:
    """Delete jobs that finished some time ago. Jobs that wait or run are never touched.

    \b
    Examples:
      muster prune --older-than 24h --dry-run
      muster prune --older-than 30d -A --yes
    """
    old, now = run(_finished(url, None if all_namespaces else namespace, older_than))
    if not old:
        click.echo(f"no job finished more than {span(older_than)} ago")
        return
    write(list_table(old, now, all_namespaces=all_namespaces))
    if dry_run:
        click.echo(f"\n{len(old)} jobs would be deleted")
        return
    if not yes:
        click.confirm(f"\nDelete these {len(old)} jobs?", abort=True)
    run(_each([JobName(job.namespace, job.name) for job in old], url, _delete))


async def _finished(
    url: str | None, namespace: str | None, older_than_s: float
) -> tuple[list[JobView], float]:
    async with connect(url) as server:
        phases = tuple(phase.value for phase in FINISHED)
        jobs = await server.all_pages("/v1/jobs", JobView, namespace=namespace, phase=phases)
        now = server.now
    old = [j for j in jobs if j.finished_at is not None and now - j.finished_at > older_than_s]
    return old, now
