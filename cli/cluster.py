"""`muster node` and `muster queue`: the cluster and who waits for it."""

from collections.abc import Sequence
from urllib.parse import quote

import click
from rich.text import Text

from cli.client import connect, run
from cli.cluster_tables import nodes_table, queues_table, status
from cli.options import output_option, url_option
from cli.tables import Column, Table, write, write_json, write_yaml
from cli.times import span
from controlplane.queries import JobView, NodeView, QueueView

NODES = "/v1/nodes"
QUEUES = "/v1/queues"
PLAIN = ("table", "json", "yaml", "name")


def _show(items: Sequence[NodeView] | Sequence[QueueView], output: str) -> None:
    if output == "name":
        for item in items:
            click.echo(item.name)
    else:
        (write_json if output == "json" else write_yaml)({"items": items})


# ---------------------------------------------------------------- node


@click.group()
def node() -> None:
    """List nodes, and take them out of use.

    \b
    Examples:
      muster node list
      muster node cordon rack-0-3     what runs there goes on; nothing starts
      muster node uncordon rack-0-3
    """


@node.command("list")
@output_option(*PLAIN)
@url_option
def node_list(output: str, url: str | None) -> None:
    """List the nodes of the cluster."""
    nodes = run(_nodes(url))
    if output == "table":
        write(nodes_table(nodes))
    else:
        _show(nodes, output)


@node.command("get")
@click.argument("name")
@output_option("table", "json", "yaml")
@url_option
def node_get(name: str, output: str, url: str | None) -> None:
    """Show one node and what runs on it."""
    found = run(_node(name, url))
    if output != "table":
        (write_json if output == "json" else write_yaml)(found)
        return
    memory = f", {found.gpu_memory_mib // 1024} GiB each" if found.gpu_memory_mib else ""
    facts: dict[str, str | Text] = {
        "Node": found.name,
        "Rack": found.rack or "-",
        "Status": status(found),
        "GPUs": f"{found.gpus} {found.gpu_type}{memory}; {found.gpus_free} free",
        "Jobs": ", ".join(found.jobs) or "none",
    }
    if found.message:
        facts["Message"] = found.message
    for title, value in facts.items():
        write(Text.assemble((f"{title:<9}", "bold"), value))


async def _nodes(url: str | None) -> list[NodeView]:
    async with connect(url) as server:
        return await server.all_pages(NODES, NodeView)


async def _node(name: str, url: str | None) -> NodeView:
    async with connect(url) as server:
        return await server.get(_path(NODES, name), NodeView)


def _path(parent: str, name: str) -> str:
    return f"{parent}/{quote(name, safe='')}"


@node.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@url_option
def cordon(names: tuple[str, ...], url: str | None) -> None:
    """Let nothing new start on nodes; what runs there goes on."""
    run(_mark(names, "cordon", url))


@node.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@url_option
def uncordon(names: tuple[str, ...], url: str | None) -> None:
    """Let nodes take work again."""
    run(_mark(names, "uncordon", url))


async def _mark(names: tuple[str, ...], verb: str, url: str | None) -> None:
    async with connect(url) as server:
        for name in names:
            await server.change("POST", f"{_path(NODES, name)}/{verb}", NodeView)
            click.echo(f"{name} {verb}ed")


# ---------------------------------------------------------------- queue


@click.group()
def queue() -> None:
    """List queues, and set how many GPUs the jobs of one may hold together.

    \b
    Examples:
      muster queue list
      muster queue set research --gpus-max 32
      muster queue set research --no-ceiling
    """


@queue.command("list")
@output_option(*PLAIN)
@url_option
def queue_list(output: str, url: str | None) -> None:
    """List the queues."""
    queues = run(_queues(url))
    if output == "table":
        write(queues_table(queues))
    else:
        _show(queues, output)


async def _queues(url: str | None) -> list[QueueView]:
    async with connect(url) as server:
        return await server.all_pages(QUEUES, QueueView)


@queue.command("get")
@click.argument("name")
@output_option("table", "json", "yaml")
@url_option
def queue_get(name: str, output: str, url: str | None) -> None:
    """Show one queue and who waits in it."""
    found, waiting, now = run(_queue(name, url))
    if output != "table":
        (write_json if output == "json" else write_yaml)(found)
        return
    write(queues_table([found]))
    if waiting:
        columns = (
            Column("PLACE", right=True),
            Column("JOB"),
            Column("GPUS", right=True),
            Column("PRIORITY", right=True),
            Column("WAITS", right=True),
        )
        click.echo()
        write(Table(columns, [_waiting_row(n, job, now) for n, job in enumerate(waiting, 1)]))


def _waiting_row(place: int, job: JobView, now: float) -> list[str]:
    waits = span(now - job.queued_at)
    return [str(place), f"{job.namespace}/{job.name}", str(job.gpus), str(job.priority), waits]


async def _queue(name: str, url: str | None) -> tuple[QueueView, list[JobView], float]:
    async with connect(url) as server:
        found = await server.get(_path(QUEUES, name), QueueView)
        waiting = await server.all_pages("/v1/jobs", JobView, queue=name, phase=("Queued",))
        # As the scheduler has it: higher priority first, then who came first.
        waiting.sort(key=lambda job: (-job.priority, job.queued_at))
        return found, waiting, server.now


@queue.command("set")
@click.argument("name")
@click.option("--gpus-max", type=click.IntRange(0), help="The most GPUs its jobs may hold.")
@click.option("--no-ceiling", is_flag=True, help="As many as there are.")
@url_option
def queue_set(name: str, gpus_max: int | None, no_ceiling: bool, url: str | None) -> None:
    """Make a queue, or change its ceiling."""
    if (gpus_max is None) != no_ceiling:
        raise click.UsageError("give either --gpus-max N or --no-ceiling.")
    run(_define(name, gpus_max, url))


async def _define(name: str, gpus_max: int | None, url: str | None) -> None:
    async with connect(url) as server:
        body = {"gpus_max": gpus_max}
        found = await server.change("PUT", _path(QUEUES, name), QueueView, body)
        ceiling = "no ceiling" if found.gpus_max is None else f"at most {found.gpus_max} GPUs"
        click.echo(f"{found.name} set: {ceiling}")
