"""`muster top`: use of the GPUs, by node or by job."""

from collections import defaultdict

import click
from rich.text import Text

from api.cluster.telemetry_views import TelemetryView
from cli.client.client import connect, run
from cli.cluster.telemetry_summary import COUNTERS, Sum, by, by_holder, link_lines, plain, read
from cli.cluster.top_devices import show
from cli.errors import WRONG_USAGE, CliError
from cli.options import (
    Span,
    all_namespaces_option,
    namespace_option,
    output_option,
    parse_job,
    url_option,
)
from cli.output.cluster_tables import gpus_line, status
from cli.output.tables import Column, Table, phase, write, write_as
from cli.output.times import span
from controlplane.event_messages import gpu_count
from controlplane.queries.views import JobView, NodeView

NODES = "/v1/nodes"


@click.group()
def top() -> None:
    """Show how the GPUs are used, by node or by job.

    \b
    Examples:
      muster top node
      muster top job -A
      muster top job gpt-finetune --last 1h
    """


_last_option = click.option(
    "--last",
    type=Span(),
    metavar="SPAN",
    help="With NAME: metrics of the last 30m, 2h, ...",
)


@top.command("node")
@click.argument("name", required=False)
@_last_option
@output_option("table", "json", "yaml")
@url_option
def top_node(name: str | None, last: float | None, output: str, url: str | None) -> None:
    """Show the GPUs in use and the GPU metrics of each node; with NAME, each GPU of one node."""
    if name is not None:
        show(url, output, last, node=name)
        return
    _refuse_last(last)
    nodes, seen = run(_nodes(url))
    if output != "table":
        write_as(output, {"items": nodes} | plain(seen))
        return
    sums = by(seen.devices, lambda device: device.node)
    columns = (
        Column("NODE"),
        Column("STATUS"),
        Column("GPU"),
        Column("USED", right=True),
        *COUNTERS,
        Column("JOBS", flexible=True),
    )
    write(Table(columns, [_node_row(node, sums.get(node.name, Sum())) for node in nodes]))
    click.echo(f"\n{gpus_line(nodes)}")
    for line in link_lines(seen.links):
        click.echo(line)
    _show_problem(seen)


def _refuse_last(last: float | None) -> None:
    if last is not None:
        raise CliError("--last needs the name of a job or a node", exit_code=WRONG_USAGE)


def _show_problem(seen: TelemetryView) -> None:
    """Report on standard error why there are dashes instead of numbers."""
    if seen.problem:
        click.echo(f"note: {seen.problem}", err=True)


def _node_row(node: NodeView, seen: Sum) -> list[str | Text]:
    return [
        node.name,
        status(node),
        node.gpu_type or "-",
        f"{gpu_count(node.gpus_used)}/{node.gpus}",
        *seen.cells(),
        ", ".join(node.jobs) or "-",
    ]


async def _nodes(url: str | None) -> tuple[list[NodeView], TelemetryView]:
    async with connect(url) as server:
        return await server.all_pages(NODES, NodeView), await read(server)


@top.command("job")
@click.argument("name", required=False)
@_last_option
@all_namespaces_option
@namespace_option
@output_option("table", "json", "yaml")
@url_option
def top_job(
    name: str | None,
    last: float | None,
    all_namespaces: bool,
    namespace: str,
    output: str,
    url: str | None,
) -> None:
    """Show the jobs with GPUs and their GPU metrics; with NAME, each rank of one job."""
    if name is not None:
        show(url, output, last, job=str(parse_job(name, namespace)))
        return
    _refuse_last(last)
    jobs, nodes, seen, now = run(_holders(url, None if all_namespaces else namespace))
    if output != "table":
        write_as(output, {"items": jobs})
        return
    if not jobs:
        click.echo("no job holds GPUs")
        return
    places = defaultdict[str, list[str]](list)
    for node in nodes:
        for name in node.jobs:
            places[name].append(node.name)
    columns = (
        Column("JOB"),
        Column("PHASE"),
        Column("GPUS", right=True),
        Column("OF", right=True),
        Column("FOR", right=True),
        Column("GPU-HOURS", right=True),
        *COUNTERS,
        Column("NODES", flexible=True),
    )
    sums = by(by_holder(seen.devices), lambda device: device.job)
    write(Table(columns, [_holder_row(job, places, sums, now) for job in jobs]))
    click.echo(f"\n{gpus_line(nodes)}")
    _show_problem(seen)


async def _holders(
    url: str | None, namespace: str | None
) -> tuple[list[JobView], list[NodeView], TelemetryView, float]:
    async with connect(url) as server:
        jobs = await server.all_pages("/v1/jobs", JobView, namespace=namespace)
        nodes = await server.all_pages(NODES, NodeView)
        holding = [job for job in jobs if job.gpus_held]
        seen = await read(server)
        return sorted(holding, key=lambda job: -job.gpus_held), nodes, seen, server.now


def _holder_row(
    job: JobView, places: dict[str, list[str]], sums: dict[str, Sum], now: float
) -> list[str | Text]:
    name = f"{job.namespace}/{job.name}"
    held_s = None if job.placed_at is None else now - job.placed_at
    hours = "-" if held_s is None else f"{job.gpus_held * held_s / 3600:.1f}"
    return [
        name,
        phase(job.phase),
        gpu_count(job.gpus_held),
        gpu_count(job.gpus, job.gpu_memory_mib),
        span(held_s),
        hours,
        *sums.get(name, Sum()).cells(),
        ", ".join(places.get(name, ())) or "-",
    ]
