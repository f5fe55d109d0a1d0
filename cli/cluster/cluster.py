"""`muster node` and `muster queue`: nodes, and queues with the jobs that wait in them."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import click
from msgspec import to_builtins
from rich.text import Text

from cli.client.client import connect, run
from cli.client.key_values import merged, read_settings, with_named
from cli.cluster.policy import POLICY
from cli.options import dry_run_option, output_option, url_option
from cli.output.cluster_tables import free_text, nodes_table, queues_table, status
from cli.output.preview_lines import preview_lines
from cli.output.tables import Column, Table, write, write_as
from cli.output.times import span
from controlplane.event_messages import gpu_count
from controlplane.model.policy import Policy
from controlplane.model.quantities import parse
from controlplane.model.resources import CPU, MEMORY
from controlplane.queries.views import JobView, NodeView, QueueView
from studies.forecast.views import Preview

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
    """List, cordon and drain nodes.

    \b
    Examples:
      muster node list
      muster node list -o wide        with free CPUs and memory
      muster node cordon rack-0-3     running jobs continue; nothing starts
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
    view = run(_node(name, url))
    if output != "table":
        write_as(output, view)
        return
    memory = f", {view.gpu_memory_mib // 1024} GiB each" if view.gpu_memory_mib else ""
    facts: dict[str, str | Text] = {
        "Node": view.name,
        "Rack": view.rack or "-",
        "Status": status(view),
        "GPUs": f"{view.gpus} {view.gpu_type}{memory}; {view.gpus_free} free",
        "Jobs": ", ".join(view.jobs) or "none",
    }
    for name in view.resources:
        title = {CPU: "CPUs", MEMORY: "Memory"}.get(name, name)
        facts[title] = f"{free_text(view, name)} free"
    if view.message:
        facts["Message"] = view.message
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
@dry_run_option
@url_option
def cordon(names: tuple[str, ...], dry_run: bool, url: str | None) -> None:
    """Mark nodes as unschedulable; jobs that run there continue."""
    run(_mark(names, "cordon", url, dry_run=dry_run))


@node.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@dry_run_option
@url_option
def drain(names: tuple[str, ...], dry_run: bool, url: str | None) -> None:
    """Mark nodes as unschedulable, and restart their jobs on other nodes."""
    run(_mark(names, "drain", url, dry_run=dry_run))


@node.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@dry_run_option
@url_option
def forget(names: tuple[str, ...], dry_run: bool, url: str | None) -> None:
    """Remove nodes that are lost and will not return.

    A gang that lost ranks there waits until the cluster reports that they are gone, because they
    may still run. This command reports it, so make sure that the machine is off. On Kubernetes the
    pods there are deleted without waiting for their kubelet. A node that still answers is refused.
    """
    run(_mark(names, "forget", url, dry_run=dry_run))


@node.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@dry_run_option
@url_option
def uncordon(names: tuple[str, ...], dry_run: bool, url: str | None) -> None:
    """Mark nodes as schedulable again."""
    run(_mark(names, "uncordon", url, dry_run=dry_run))


async def _mark(names: tuple[str, ...], verb: str, url: str | None, *, dry_run: bool) -> None:
    async with connect(url) as server:
        for name in names:
            if dry_run:
                path = f"{_path(NODES, name)}/{verb}"
                preview = await server.change("POST", path, Preview, dry_run="true")
                click.echo("\n".join([f"{name} (dry run)", *preview_lines(preview)]))
                continue
            await server.change("POST", f"{_path(NODES, name)}/{verb}", NodeView)
            click.echo(f"{name} {verb}ed")


# ---------------------------------------------------------------- queue


@click.group()
def queue() -> None:
    """List queues, and set their quota, borrowing, lending and discipline.

    \b
    Examples:
      muster queue list
      muster queue set research --gpus-max 32
      muster queue set research nominal=24 parent=lab discipline=easy
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
    """Show one queue and the jobs that wait in it."""
    view, waiting, now = run(_queue(name, url))
    if output != "table":
        write_as(output, view)
        return
    write(queues_table([view]))
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
        queue = await server.get(_path(QUEUES, name), QueueView)
        waiting = await server.all_pages("/v1/jobs", JobView, queue=name, phase=("Queued",))
        # The scheduler's order: higher priority first, then the earlier queued.
        waiting.sort(key=lambda job: (-job.priority, job.queued_at))
        return queue, waiting, server.now


@queue.command("set")
@click.argument("name")
@click.argument("settings", nargs=-1, metavar="[KEY=VALUE]...")
@click.option(
    "--gpus-max", type=click.IntRange(0), help="Ceiling: the most GPUs that its jobs may have."
)
@click.option("--no-ceiling", is_flag=True, help="Remove the ceiling.")
@dry_run_option
@url_option
def queue_set(
    name: str,
    settings: tuple[str, ...],
    gpus_max: int | None,
    no_ceiling: bool,
    dry_run: bool,
    url: str | None,
) -> None:
    """Create a queue, or change settings of a queue.

    KEY is parent, nominal (the quota), borrow_max, lend_max, gpus_max (the ceiling), weight,
    rank, discipline, preempt.within_queue, preempt.reclaim or preempt.borrow_below; or, for a quota of one
    kind of GPU, flavors.NAME.nominal, .borrow_max or .lend_max, in the order in which
    they are tried, and of what pods request besides GPUs, resources.NAME.nominal and so
    on. An empty VALUE resets a setting.

    \b
    Examples:
      muster queue set lab
      muster queue set research nominal=32 parent=lab borrow_max=16
      muster queue set research flavors.h100.nominal=8 flavors.a100.nominal=24
      muster queue set research flavors.a100=
      muster queue set research resources.cpu.nominal=512 resources.memory.nominal=4Ti
      muster queue set research discipline=easy
    """
    if gpus_max is not None and no_ceiling:
        raise click.UsageError("give either --gpus-max N or --no-ceiling.")
    changes = read_settings(settings)
    if gpus_max is not None or no_ceiling:
        changes["gpus_max"] = gpus_max
    run(_define(name, changes, url, dry_run=dry_run))


async def _define(
    name: str, changes: dict[str, Any], url: str | None, *, dry_run: bool = False
) -> None:
    async with connect(url) as server:
        known = await server.all_pages(QUEUES, QueueView)
        view = next((queue for queue in known if queue.name == name), None)
        if view is not None and not changes:
            raise click.UsageError("nothing to set: give KEY=VALUE, --gpus-max N or --no-ceiling.")
        settings = {} if view is None else _own_settings(view, await server.get(POLICY, Policy))
        for key in NAMED:
            if isinstance(changes.get(key), dict):
                named = with_named(settings.get(key), changes[key])
                changes = {**changes, key: [_in_numbers(each) for each in named]}
        body = merged(settings, changes)
        if dry_run:
            path = _path(QUEUES, name)
            preview = await server.change("PUT", path, Preview, body, dry_run="true")
            click.echo("\n".join([f"{name} (dry run)", *preview_lines(preview)]))
            return
        queue = await server.change("PUT", _path(QUEUES, name), QueueView, body)
        quota = "no quota" if queue.nominal is None else f"quota {queue.nominal} GPUs"
        ceiling = "no ceiling" if queue.gpus_max is None else f"ceiling {queue.gpus_max} GPUs"
        click.echo(f"{queue.name} set: {quota}, {ceiling}, discipline {queue.discipline}")


def _in_numbers(quota: dict[str, Any]) -> dict[str, Any]:
    """Return `quota` with amounts in Kubernetes notation, such as 512Gi or 500m, as numbers."""
    numbers = dict(quota)
    for key, value in quota.items():
        if key != "name" and isinstance(value, str):
            amount = parse(value)
            if amount is None:
                raise click.UsageError(f"{quota['name']}.{key}: {value!r} is not an amount.")
            numbers[key] = float(amount.amount)
    return numbers


def _own_settings(view: QueueView, policy: Policy) -> dict[str, Any]:
    """Return the queue's own settings, without those that it inherits from the policy."""
    own = {name: getattr(view, name) for name in _SETTINGS}
    if own["discipline"] == policy.discipline:
        del own["discipline"]
    if own["preempt"] == policy.preempt:
        del own["preempt"]
    built: dict[str, Any] = to_builtins(own)
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
