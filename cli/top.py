"""`muster top`: who uses the GPUs, by node or by job."""

from collections import defaultdict

import click
from rich.text import Text

from cli.client import connect, run
from cli.cluster_tables import gpus_line, nodes_table
from cli.options import all_namespaces_option, namespace_option, output_option, url_option
from cli.tables import Column, Table, phase, write, write_json, write_yaml
from cli.times import span
from controlplane.queries import JobView, NodeView

NODES = "/v1/nodes"


@click.group()
def top() -> None:
    """Show who uses the GPUs, by node or by job.

    \b
    Examples:
      muster top node
      muster top job -A
    """


@top.command("node")
@output_option("table", "json", "yaml")
@url_option
def top_node(output: str, url: str | None) -> None:
    """GPUs in use on each node."""
    nodes = run(_nodes(url))
    if output != "table":
        (write_json if output == "json" else write_yaml)({"items": nodes})
        return
    write(nodes_table(nodes))
    click.echo(f"\n{gpus_line(nodes)}")


async def _nodes(url: str | None) -> list[NodeView]:
    async with connect(url) as server:
        return await server.all_pages(NODES, NodeView)


@top.command("job")
@all_namespaces_option
@namespace_option
@output_option("table", "json", "yaml")
@url_option
def top_job(all_namespaces: bool, namespace: str, output: str, url: str | None) -> None:
    """Jobs that hold GPUs, the largest first."""
    jobs, nodes, now = run(_holders(url, None if all_namespaces else namespace))
    if output != "table":
        (write_json if output == "json" else write_yaml)({"items": jobs})
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
        Column("NODES", flexible=True),
    )
    write(Table(columns, [_holder_row(job, places, now) for job in jobs]))
    click.echo(f"\n{gpus_line(nodes)}")


async def _holders(
    url: str | None, namespace: str | None
) -> tuple[list[JobView], list[NodeView], float]:
    async with connect(url) as server:
        jobs = await server.all_pages("/v1/jobs", JobView, namespace=namespace)
        nodes = await server.all_pages(NODES, NodeView)
        holding = [job for job in jobs if job.gpus_held]
        return sorted(holding, key=lambda job: -job.gpus_held), nodes, server.now


def _holder_row(job: JobView, places: dict[str, list[str]], now: float) -> list[str | Text]:
    name = f"{job.namespace}/{job.name}"
    held_s = None if job.placed_at is None else now - job.placed_at
    hours = "-" if held_s is None else f"{job.gpus_held * held_s / 3600:.1f}"
    return [
        name,
        phase(job.phase),
        str(job.gpus_held),
        str(job.gpus),
        span(held_s),
        hours,
        ", ".join(places.get(name, ())) or "-",
    ]
