"""`muster node` and `muster queue`: the cluster and who waits for it."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import click
from msgspec import to_builtins
from rich.text import Text

from cli.client import connect, run
from cli.cluster_tables import free_text, nodes_table, queues_table, status
from cli.key_values import merged, read_settings, with_named
from cli.options import output_option, url_option
from cli.policy import POLICY
from cli.tables import Column, Table, gpu_count, write, write_as
from cli.times import span
from controlplane.quantities import parse
from controlplane.requests import CPU, MEMORY
from controlplane.sharing import Policy
from controlplane.views import JobView, NodeView, QueueView

NODES = "/v1/nodes"
QUEUES = "/v1/queues"
PLAIN = ("table", "json", "yaml", "name")


def _show(items: Sequence[NodeView] | Sequence[QueueView], output: str) -> None:
    if output == "name":
        for item in items:
            click.echo(item.name)
    else:
        write_as(output, {"items": items})


# ---------------------------------------------------------------- node


@click.group()
def node() -> None:
    """List nodes, and take them out of use.

    \b
    Examples:
      muster node list
      muster node list -o wide        with free CPUs and memory
      muster node cordon rack-0-3     what runs there goes on; nothing starts
      muster node uncordon rack-0-3
    """


@node.command("list")
@output_option("table", "wide", "json", "yaml", "name")
@url_option
def node_list(output: str, url: str | None) -> None:
    """List the nodes of the cluster."""
    nodes = run(_nodes(url))
    if output in ("table", "wide"):
        write(nodes_table(nodes, wide=output == "wide"))
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
        write_as(output, found)
        return
    memory = f", {found.gpu_memory_mib // 1024} GiB each" if found.gpu_memory_mib else ""
    facts: dict[str, str | Text] = {
        "Node": found.name,
        "Rack": found.rack or "-",
        "Status": status(found),
        "GPUs": f"{found.gpus} {found.gpu_type}{memory}; {found.gpus_free} free",
        "Jobs": ", ".join(found.jobs) or "none",
    }
    for name in found.resources:
        title = {CPU: "CPUs", MEMORY: "Memory"}.get(name, name)
        facts[title] = f"{free_text(found, name)} free"
    if found.message:
        facts["Message"] = found.message
    for title, value in facts.items():
        write(Text.assemble((f"{title:<8} ", "bold"), value))


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
def drain(names: tuple[str, ...], url: str | None) -> None:
    """Let nothing new start on nodes, and start again elsewhere what runs there."""
    run(_mark(names, "drain", url))


@node.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@url_option
def forget(names: tuple[str, ...], url: str | None) -> None:
    """Give up nodes that do not answer and will not come back.

    A gang that lost ranks there waits until the cluster says that they are gone, because they may
    still run. This says it: make sure that the machine is off. On Kubernetes the pods there are
    deleted without waiting for their kubelet. A node that answers is not forgotten.
    """
    run(_mark(names, "forget", url))


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
    """List queues, and set what they own, borrow and lend, and how their lines move.

    \b
    Examples:
      muster queue list
      muster queue set research --gpus-max 32
      muster queue set research nominal=24 parent=lab discipline=easy_backfill
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
        write_as(output, found)
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
    return [
        str(place),
        f"{job.namespace}/{job.name}",
        gpu_count(job.gpus, job.gpu_memory_mib),
        str(job.priority),
        waits,
    ]


async def _queue(name: str, url: str | None) -> tuple[QueueView, list[JobView], float]:
    async with connect(url) as server:
        found = await server.get(_path(QUEUES, name), QueueView)
        waiting = await server.all_pages("/v1/jobs", JobView, queue=name, phase=("Queued",))
        # As the scheduler has it: higher priority first, then who came first.
        waiting.sort(key=lambda job: (-job.priority, job.queued_at))
        return found, waiting, server.now


@queue.command("set")
@click.argument("name")
@click.argument("settings", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--gpus-max", type=click.IntRange(0), help="The most GPUs its jobs may hold.")
@click.option("--no-ceiling", is_flag=True, help="As many as there are.")
@url_option
def queue_set(
    name: str, settings: tuple[str, ...], gpus_max: int | None, no_ceiling: bool, url: str | None
) -> None:
    """Make a queue, or change some of what it is told to be; the rest stays as it is.

    KEY is parent, nominal, borrow_max, lend_max, gpus_max, weight, rank, discipline,
    preempt.within_queue, preempt.reclaim or preempt.borrow_below; or, for a quota of one
    kind of GPU, flavors.NAME.nominal, .borrow_max or .lend_max, in the order in which
    they are tried, and of what pods request beside GPUs, resources.NAME.nominal and so
    on. An empty VALUE takes a setting back.

    \b
    Examples:
      muster queue set lab
      muster queue set research nominal=32 parent=lab borrow_max=16
      muster queue set research flavors.h100.nominal=8 flavors.a100.nominal=24
      muster queue set research flavors.a100=
      muster queue set research resources.cpu.nominal=512 resources.memory.nominal=4Ti
      muster queue set research discipline=easy_backfill
    """
    if gpus_max is not None and no_ceiling:
        raise click.UsageError("give either --gpus-max N or --no-ceiling.")
    changes = read_settings(settings)
    if gpus_max is not None or no_ceiling:
        changes["gpus_max"] = gpus_max
    run(_define(name, changes, url))


async def _define(name: str, changes: dict[str, Any], url: str | None) -> None:
    async with connect(url) as server:
        known = await server.all_pages(QUEUES, QueueView)
        view = next((queue for queue in known if queue.name == name), None)
        if view is not None and not changes:
            raise click.UsageError("say what to set: KEY=VALUE, --gpus-max N or --no-ceiling.")
        told = {} if view is None else _told(view, await server.get(POLICY, Policy))
        for key in NAMED:
            if isinstance(changes.get(key), dict):
                named = with_named(told.get(key), changes[key])
                changes = {**changes, key: [_in_numbers(each) for each in named]}
        body = merged(told, changes)
        found = await server.change("PUT", _path(QUEUES, name), QueueView, body)
        ceiling = "no ceiling" if found.gpus_max is None else f"at most {found.gpus_max} GPUs"
        quota = "" if found.nominal is None else f", {found.nominal} GPUs of its own"
        click.echo(f"{found.name} set: {ceiling}{quota}")


def _in_numbers(quota: dict[str, Any]) -> dict[str, Any]:
    """Amounts as Kubernetes writes them, such as 512Gi or 500m, as numbers."""
    found = dict(quota)
    for key, value in quota.items():
        if key != "name" and isinstance(value, str):
            amount = parse(value)
            if amount is None:
                raise click.UsageError(f"{quota['name']}.{key}: {value!r} is not an amount.")
            found[key] = float(amount.amount)
    return found


def _told(view: QueueView, policy: Policy) -> dict[str, Any]:
    """What the queue was told to be; what it has from the policy is left to the policy."""
    said = {name: getattr(view, name) for name in _SETTINGS}
    if said["discipline"] == policy.discipline:
        del said["discipline"]
    if said["preempt"] == policy.preempt:
        del said["preempt"]
    built: dict[str, Any] = to_builtins(said)
    return built


NAMED = ("flavors", "resources")
_SETTINGS = (
    "gpus_max", "parent", "nominal", "borrow_max", "lend_max", "weight", "rank", "flavors",
    "resources", "discipline", "preempt",
)  # fmt: skip


@queue.command("delete")
@click.argument("name")
@url_option
def queue_delete(name: str, url: str | None) -> None:
    """Remove a queue that has no jobs and no queues below it."""
    run(_remove(name, url))


async def _remove(name: str, url: str | None) -> None:
    async with connect(url) as server:
        await server.delete(_path(QUEUES, name))
        click.echo(f"{name} deleted")
