"""Submission of documents: all of them are checked before the first one is stored."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from cli.client.client import Client, Refused, connect, run
from cli.client.documents import Document
from cli.errors import WRONG_USAGE, CliError
from cli.jobs.wait import exit_with, wait_for_all
from cli.options import JobName, output_option, url_option
from cli.output.forecast_lines import forecast_line
from cli.output.job_tables import indices
from cli.output.tables import Column, Table, write, write_as
from controlplane.event_messages import gpu_count
from controlplane.kinds import native
from controlplane.kinds.manifest.annotations import AFTER, ARRAY
from controlplane.model.dependencies import parse_after
from controlplane.model.owners import plain_array
from controlplane.queries.views import JobDetail, JobView
from studies.forecast.views import PlanAnswer

F = TypeVar("F", bound=Callable[..., Any])


def submission_options(command: F) -> F:
    command = url_option(output_option("table", "json", "yaml", "name")(command))
    wait = click.option(
        "--wait", is_flag=True, help="Wait for the end; the exit code is the outcome."
    )
    plan = click.option("--plan", is_flag=True, help="Show what would happen; submit nothing.")
    after = click.option(
        "--after",
        metavar="JOB[:CONDITION]",
        multiple=True,
        help="Wait until this job or array has succeeded (or: finished, failed). Repeatable.",
    )
    array = click.option(
        "--array",
        metavar="INDICES",
        help="Run one job per index: 0-99, or 0-99%10 for at most 10 at a time.",
    )
    return plan(wait(after(array(command))))


def submit_documents(
    documents: Sequence[Document],
    *,
    url: str | None,
    plan: bool,
    wait: bool,
    output: str,
    after: Sequence[str] = (),
    array: str | None = None,
) -> None:
    if plan and wait:
        raise click.UsageError("--plan stores nothing, so there is nothing to --wait for.")
    _refuse_twins(documents)
    for document in documents:
        _add_workflow(document, after, array)
    run(_submit(documents, url=url, only_plan=plan, wait=wait, output=output))


def _add_workflow(document: Document, after: Sequence[str], array: str | None) -> None:
    """Add the dependencies and the array of the flags to `document`, as fields or as annotations.

    Raises CliError if a flag cannot be parsed.
    """
    try:
        waits = [str(parse_after(text)) for text in after]
        indices = None if array is None else plain_array(array)
    except ValueError as error:
        raise CliError(str(error), exit_code=WRONG_USAGE) from None
    value = document.value
    if not isinstance(value, dict) or not (waits or indices):
        return
    if value.get("kind") == native.NAME and isinstance(value.get("spec"), dict):
        spec = value["spec"]
        if waits:
            spec["after"] = [*(spec.get("after") or []), *waits]
        if indices:
            spec["array"] = indices
        return
    metadata = value.setdefault("metadata", {})
    if isinstance(metadata, dict):
        annotations = {**(metadata.get("annotations") or {})}
        if waits:
            annotations[AFTER] = ",".join([*filter(None, [annotations.get(AFTER)]), *waits])
        if indices:
            annotations[ARRAY] = indices
        metadata["annotations"] = annotations


def _refuse_twins(documents: Sequence[Document]) -> None:
    seen: dict[JobName, Document] = {}
    for document in documents:
        name = name_of(document)
        if name in seen:
            first = seen[name].where()
            raise CliError(
                f"{document.where()}: {name} is here a second time, after {first}",
                exit_code=WRONG_USAGE,
            )
        seen[name] = document


def name_of(document: Document) -> JobName:
    """Return the job's name as far as it is known before the server has parsed the document."""
    value = document.value
    metadata = value.get("metadata") if isinstance(value, dict) else None
    if not isinstance(metadata, dict):
        # The server will report the error; until then the document's place identifies it.
        return JobName("", document.where())
    return JobName(str(metadata.get("namespace") or "default"), str(metadata.get("name")))


async def _submit(
    documents: Sequence[Document], *, url: str | None, only_plan: bool, wait: bool, output: str
) -> None:
    async with connect(url) as server:
        # A single document is checked by its submission anyway.
        if only_plan or len(documents) > 1:
            plans = [
                await _post(server, document, PlanAnswer, plan=True, before=documents[:place])
                for place, document in enumerate(documents)
            ]
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
    server: Client,
    document: Document,
    type: type[T],
    *,
    plan: bool | None = None,
    before: Sequence[Document] = (),
) -> T:
    """Send one document. `before` are documents submitted ahead of it, which `after` may name."""
    names = tuple(str(name_of(each)) for each in before)
    try:
        return await server.change(
            "POST", "/v1/jobs", type, document.value, plan=plan, before=names
        )
    except Refused as refused:
        raise _cli_error(refused, document) from None
    finally:
        for warning in server.warnings:
            warn(document, warning)
        server.warnings.clear()


def _cli_error(refused: Refused, document: Document) -> CliError:
    problem = refused.problem
    where = document.where(problem.field) if document.source else ""
    if len(problem.errors) <= 1:
        return refused.cli_error(where)
    return several(document, [(each.field, str(each)) for each in problem.errors])


def several(document: Document, errors: Sequence[tuple[str, str]]) -> CliError:
    """Return an error with all problems of a document, one per line."""
    source = f"{document.source}: " if document.source else ""
    places = [
        f"{document.where(field)}: {message}" if document.source else message
        for field, message in errors
    ]
    message = f"{source}the manifest is wrong in {len(places)} places"
    return CliError(message, places=places, exit_code=WRONG_USAGE)


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
    if forecast := forecast_line(plan.forecast):
        click.echo(f"  {forecast}")
    if plan.ranks:
        columns = (Column("RANK", right=True), Column("NAME"), Column("NODE"), Column("GPUS"))
        rows = [(str(r.rank), r.name, r.node, indices(r.devices, r.share)) for r in plan.ranks]
        write(Table(columns, rows))


def _show_jobs(jobs: Sequence[JobView], output: str) -> None:
    if output == "table":
        for job in jobs:
            outcome = "submitted, suspended" if job.phase == "Suspended" else "submitted"
            click.echo(f"{job.namespace}/{job.name} {outcome}")
    else:
        _show(jobs, output)


def _show(items: Sequence[PlanAnswer] | Sequence[JobView], output: str) -> None:
    if output == "name":
        for item in items:
            click.echo(f"{item.namespace}/{item.name}")
        return
    value = items[0] if len(items) == 1 else {"items": items}
    write_as(output, value)
