"""`muster cancel`, `suspend`, `resume`, `scale`, `amend`, `delete`, `prune`: what changes a job."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import click

from cli.client import Client, Refused, connect, job_path, run
from cli.complaints import WRONG_USAGE, Complaint
from cli.job_tables import list_table
from cli.options import (
    JobName,
    Span,
    all_namespaces_option,
    job_argument,
    jobs_argument,
    namespace_option,
    parse_job,
    url_option,
)
from cli.tables import write
from cli.times import span
from controlplane.job import FINISHED
from controlplane.model import CleanPods
from controlplane.views import JobDetail, JobView

Change = Callable[[Client, JobName], Awaitable[str]]


@click.command()
@jobs_argument
@namespace_option
@url_option
def cancel(jobs: tuple[str, ...], namespace: str, url: str | None) -> None:
    """Stop jobs for good. What happened to them stays on record.

    \b
    Examples:
      muster cancel bert
      muster cancel research/bert research/gpt
    """
    _change_all(jobs, namespace, url, _post("cancel", "cancelled"))


@click.command()
@jobs_argument
@namespace_option
@url_option
def suspend(jobs: tuple[str, ...], namespace: str, url: str | None) -> None:
    """Stop jobs and give their GPUs back, until they are resumed."""
    _change_all(jobs, namespace, url, _post("suspend", "suspended"))


@click.command()
@jobs_argument
@namespace_option
@url_option
def resume(jobs: tuple[str, ...], namespace: str, url: str | None) -> None:
    """Let suspended jobs queue again."""
    _change_all(jobs, namespace, url, _post("resume", "resumed"))


@click.command()
@jobs_argument
@namespace_option
@url_option
def delete(jobs: tuple[str, ...], namespace: str, url: str | None) -> None:
    """Stop jobs if they run, and forget them. The event log still knows them."""
    _change_all(jobs, namespace, url, _delete)


@click.command()
@job_argument
@click.option("--replicas", type=click.IntRange(0), required=True, help="How many there should be.")
@click.option("--role", default="Worker", show_default=True, help="Of which role.")
@namespace_option
@url_option
def scale(job: str, replicas: int, role: str, namespace: str, url: str | None) -> None:
    """Change the number of replicas of a role.

    An elastic gang grows or shrinks while it runs; another one starts again with the new size.

    \b
    Examples:
      muster scale bert --replicas 8
      muster scale wide --role PS --replicas 2
    """
    body = {"role": role, "replicas": replicas}
    change = _post("scale", f"scaled: {role} to {replicas} replicas", body)
    _change_all((job,), namespace, url, change)


# click takes None for an option that was not given.
NOTHING = object()


class Unless(click.ParamType[Any]):
    """What another type reads, or `none`, which is read as null."""

    def __init__(self, inner: click.ParamType[Any]) -> None:
        self.inner, self.name = inner, f"{inner.name}|none"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return NOTHING if value in (NOTHING, "none") else self.inner.convert(value, param, ctx)


@click.command()
@job_argument
@click.option("--deadline", type=Unless(Span()), help="At most so long active; or none.")
@click.option("--ttl", type=Unless(Span()), help="So long kept after its end; or none.")
@click.option("--restart-limit", type=Unless(click.IntRange(0)), help="So many restarts; or none.")
@click.option(
    "--clean",
    type=click.Choice([each.value for each in CleanPods]),
    help="Which pods go when it is over.",
)
@namespace_option
@url_option
def amend(job: str, namespace: str, url: str | None, **asked: Any) -> None:
    """Change the limits of a job while it waits or runs; what is not named stays.

    A finished job may still be given another time to live.

    \b
    Examples:
      muster amend bert --deadline 12h
      muster amend bert --restart-limit 10 --ttl none
    """
    names = {"deadline": "active_deadline_s", "ttl": "ttl_s"}
    given = {key: value for key, value in asked.items() if value is not None}
    if not given:
        raise Complaint(
            "say what is to change: --deadline, --ttl, --restart-limit or --clean",
            exit_code=WRONG_USAGE,
        )
    body = {names.get(key, key): None if x is NOTHING else x for key, x in given.items()}

    async def change(server: Client, job: JobName) -> str:
        await server.change("PATCH", job_path(*job), JobDetail, body)
        return f"amended: {', '.join(sorted(given)).replace('_', '-')}"

    _change_all((job,), namespace, url, change)


def _post(verb: str, done: str, body: object = None) -> Change:
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
    """Does all that can be done, and complains of the rest at the end."""
    complaints: list[Complaint] = []
    async with connect(url) as server:
        for job in jobs:
            try:
                click.echo(f"{job} {await change(server, job)}")
            except Refused as refused:
                complaints.append(refused.complaint())
    for complaint in complaints[:-1]:
        complaint.show()
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
    help="Only jobs that finished longer ago than this.",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Only show which jobs they are.")
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
