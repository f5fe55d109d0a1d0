"""Nodes and queues as tables."""

import sys
from collections.abc import Iterable, Sequence

from rich.text import Text

from cli.output.tables import Column, Table
from controlplane.event_messages import gpu_count
from controlplane.model.quantities import parse
from controlplane.model.resources import CPU, MEMORY, amounts, in_units
from controlplane.queries.views import NodeView, QueueView

BAR_MAX = 16


def nodes_table(nodes: Iterable[NodeView], *, wide: bool = False) -> Table:
    """Return a table of nodes; `wide` adds the free resources other than GPUs."""
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
    """Return the free and total amount of a resource on `node`: 2.5 of 4."""
    if resource not in node.resources:
        return "-"
    left, most = node.resources_free[resource], node.resources[resource]
    return f"{_for_people(resource, left)} of {_for_people(resource, most)}"


def _for_people(resource: str, written: str) -> str:
    amount = parse(written)
    if amount is None:
        return written
    return in_units(resource, amounts({resource: amount}).get(resource, 0))


def status(node: NodeView) -> Text:
    if not node.ready:
        return Text("Lost", style="bold red")
    if node.cordoned:
        return Text("Cordoned", style="yellow")
    return Text("Ready", style="green")


def gpus_bar(node: NodeView) -> Text:
    """Return a bar of a node's use; in ASCII where the terminal's encoding has no other characters.

    Shared devices stand between those that are taken and those that are free.
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
        Column("QUOTA", right=True),
        Column("BORROWED", right=True),
        Column("LENT", right=True),
        Column("CEILING", right=True),
        Column("DISCIPLINE"),
    )
    rows = [
        (
            queue.name,
            str(queue.jobs_waiting),
            gpu_count(queue.gpus_used),
            _limit(queue.nominal),
            gpu_count(queue.gpus_borrowed),
            gpu_count(queue.gpus_lent),
            _limit(queue.gpus_max),
            queue.discipline,
        )
        for queue in queues
    ]
    return Table(columns, rows)


def _limit(gpus: int | None) -> str:
    return "none" if gpus is None else str(gpus)
