"""Nodes and queues as tables."""

import sys
from collections.abc import Iterable, Sequence

from rich.text import Text

from cli.tables import Column, Table, gpu_count
from controlplane.quantities import parse
from controlplane.requests import CPU, MEMORY, amounts, told
from controlplane.views import NodeView, QueueView

BAR_MAX = 16


def nodes_table(nodes: Iterable[NodeView], *, wide: bool = False) -> Table:
    """`wide` also says what is free beside GPUs, for who requests that."""
    columns = (
        Column("NODE"),
        Column("RACK"),
        Column("STATUS"),
        Column("GPU"),
        Column("USED", right=True),
        Column(""),
        *((Column("CPUS FREE", right=True), Column("MEMORY FREE", right=True)) if wide else ()),
        Column("JOBS", flexible=True),
    )
    return Table(columns, [_node_row(node, wide=wide) for node in nodes])


def _node_row(node: NodeView, *, wide: bool) -> list[str | Text]:
    return [
        node.name,
        node.rack or "-",
        status(node),
        node.gpu_type or "-",
        f"{gpu_count(node.gpus_used)}/{node.gpus}",
        gpus_bar(node),
        *([free_text(node, CPU), free_text(node, MEMORY)] if wide else []),
        ", ".join(node.jobs) or "-",
    ]


def free_text(node: NodeView, resource: str) -> str:
    """What ranks can still request of it, and of how much: 2.5 of 4."""
    if resource not in node.resources:
        return "-"
    left, most = node.resources_free[resource], node.resources[resource]
    return f"{_for_people(resource, left)} of {_for_people(resource, most)}"


def _for_people(resource: str, written: str) -> str:
    amount = parse(written)
    if amount is None:
        return written
    return told(resource, amounts({resource: amount}).get(resource, 0))


def status(node: NodeView) -> Text:
    if not node.ready:
        return Text("Lost", style="bold red")
    if node.cordoned:
        return Text("Cordoned", style="yellow")
    return Text("Ready", style="green")


def gpus_bar(node: NodeView) -> Text:
    """How full a node is, as a picture; plain characters where the terminal knows no others.

    Devices that are shared stand between those that are taken and those that are free.
    """
    if not node.gpus:
        return Text("")
    length = min(node.gpus, BAR_MAX)
    shared = round(len(node.shared) * length / node.gpus)
    filled = round((node.gpus - node.gpus_free) * length / node.gpus)
    whole = max(0, filled - shared)
    fancy = "utf" in (getattr(sys.stdout, "encoding", "") or "").lower()
    full, part, empty = ("■", "◧", "□") if fancy else ("#", "+", ".")
    return Text.assemble(
        (full * whole, "green"),
        (part * (filled - whole), "green"),
        (empty * (length - filled), "bright_black"),
    )


def gpus_line(nodes: Sequence[NodeView]) -> str:
    total = sum(node.gpus for node in nodes)
    used = sum(node.gpus_used for node in nodes)
    share = f" ({100 * used / total:.0f}%)" if total else ""
    lost = sum(node.gpus for node in nodes if not node.ready)
    out = f"; {lost} on nodes that do not answer" if lost else ""
    return f"{gpu_count(used)} of {total} GPUs in use{share}{out}"


def queues_table(queues: Iterable[QueueView]) -> Table:
    columns = (
        Column("QUEUE"),
        Column("WAITING", right=True),
        Column("GPUS USED", right=True),
        Column("CEILING", right=True),
    )
    rows = [
        (
            queue.name,
            str(queue.jobs_waiting),
            gpu_count(queue.gpus_used),
            "none" if queue.gpus_max is None else str(queue.gpus_max),
        )
        for queue in queues
    ]
    return Table(columns, rows)
