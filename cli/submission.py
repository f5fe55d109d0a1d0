"""Documents to the server: all of them are checked before the first one is stored."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from cli.client import Client, Refused, connect, run
from cli.complaints import WRONG_USAGE, Complaint
from cli.documents import Document
from cli.ending import exit_with, wait_for_all
from cli.forecast_lines import forecast_line
from cli.job_tables import indices
from cli.options import JobName, output_option, url_option
from cli.tables import Column, Table, gpu_count, write, write_as
from controlplane.views import JobDetail, JobView
from studies.forecast_answers import PlanAnswer

F = TypeVar("F", bound=Callable[..., Any])


def submission_options(command: F) -> F:
    command = url_option(output_option("table", "json", "yaml", "name")(command))
    wait = click.option("--wait", is_flag=True, help="Wait for the end; the exit code tells it.")
    plan = click.option("--plan", is_flag=True, help="Say what would happen, and store nothing.")
    return plan(wait(command))


def submit_documents(
    documents: Sequence[Document], *, url: str | None, plan: bool, wait: bool, output: str
) -> None:
    if plan and wait:
        raise click.UsageError("--plan stores nothing, so there is nothing to --wait for.")
    _refuse_twins(documents)
    run(_submit(documents, url=url, only_plan=plan, wait=wait, output=output))


def _refuse_twins(documents: Sequence[Document]) -> None:
    seen: dict[JobName, Document] = {}
    for document in documents:
        name = name_of(document)
        if name in seen:
            first = seen[name].where()
            raise Complaint(
                f"{document.where()}: {name} is here a second time, after {first}",
                exit_code=WRONG_USAGE,
            )
        seen[name] = document


def name_of(document: Document) -> JobName:
    """As far as it can be told before the server has read the document."""
    value = document.value
    metadata = value.get("metadata") if isinstance(value, dict) else None
    if not isinstance(metadata, dict):
        # The server says what is wrong; until then its place tells it from the others.
        return JobName("", document.where())
    return JobName(str(metadata.get("namespace") or "default"), str(metadata.get("name")))


async def _submit(
    documents: Sequence[Document], *, url: str | None, only_plan: bool, wait: bool, output: str
) -> None:
    async with connect(url) as server:
        # A single document is checked by its submission as well.
        if only_plan or len(documents) > 1:
            plans = [await _post(server, document, PlanAnswer, plan=True) for document in documents]
            if only_plan:
                _show_plans(plans, output)
                return
        jobs = [(await _post(server, document, JobDetail)).job for document in documents]
        _show_jobs(jobs, output)
        if wait:
            names = [JobName(job.namespace, job.name) for job in jobs]
            exit_with(await wait_for_all(server, names))


T = TypeVar("T")


async def _post(
    server: Client, document: Document, type: type[T], *, plan: bool | None = None
) -> T:
    try:
        return await server.change("POST", "/v1/jobs", type, document.value, plan=plan)
    except Refused as refused:
        raise _complaint(refused, document) from None
    finally:
        for warning in server.warnings:
            warn(document, warning)
        server.warnings.clear()


def _complaint(refused: Refused, document: Document) -> Complaint:
    problem = refused.problem
    where = document.where(problem.field) if document.source else ""
    if len(problem.errors) <= 1:
        return refused.complaint(where)
    return several(document, [(each.field, str(each)) for each in problem.errors])


def several(document: Document, errors: Sequence[tuple[str, str]]) -> Complaint:
    """All that is wrong with a document, one place a line."""
    source = f"{document.source}: " if document.source else ""
    places = [
        f"{document.where(field)}: {told}" if document.source else told for field, told in errors
    ]
    told = f"{source}the manifest is wrong in {len(places)} places"
    return Complaint(told, places=places, exit_code=WRONG_USAGE)


def warn(document: Document, warning: str) -> None:
    source = f"{document.source}: " if document.source else ""
    click.echo(f"warning: {source}{warning}", err=True)


def _show_plans(plans: Sequence[PlanAnswer], output: str) -> None:
    if output == "table":
        for plan in plans:
            _show_plan(plan)
    else:
        _show(plans, output)


def _show_plan(plan: PlanAnswer) -> None:
    asked = f"{gpu_count(0, plan.gpu_memory_mib)} of GPU memory"
    if plan.gpus or not plan.gpu_memory_mib:
        asked = f"{gpu_count(plan.gpus)} GPUs"
    click.echo(f"{plan.namespace}/{plan.name} ({plan.kind}, {asked}): {plan.summary}")
    if plan.ahead:
        click.echo(f"  ahead: {', '.join(plan.ahead)}")
    if told := forecast_line(plan.forecast):
        click.echo(f"  {told}")
    if plan.ranks:
        columns = (Column("RANK", right=True), Column("NAME"), Column("NODE"), Column("GPUS"))
        rows = [(str(r.rank), r.name, r.node, indices(r.devices, r.share)) for r in plan.ranks]
        write(Table(columns, rows))


def _show_jobs(jobs: Sequence[JobView], output: str) -> None:
    if output == "table":
        for job in jobs:
            told = "submitted, suspended" if job.phase == "Suspended" else "submitted"
            click.echo(f"{job.namespace}/{job.name} {told}")
    else:
        _show(jobs, output)


def _show(items: Sequence[PlanAnswer] | Sequence[JobView], output: str) -> None:
    if output == "name":
        for item in items:
            click.echo(f"{item.namespace}/{item.name}")
        return
    value = items[0] if len(items) == 1 else {"items": items}
    write_as(output, value)
