"""`muster sim cluster`: the content of a cluster file, as a summary and a drawing."""

from collections import Counter
from pathlib import Path
from typing import Any

import click

from cli.cluster.cluster_files import read_cluster
from cli.output.tables import Column, Table, write, write_json
from simulator.network.topology import ClusterModel, NodeModel

BOXES_MAX = 12
RACKS_MAX = 16


@click.command()
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
def cluster(file: Path, as_json: bool) -> None:
    """Check a cluster file, and show its racks and links.

    \b
    Example:
      muster sim cluster examples/cluster.yaml
    """
    model = read_cluster(str(file))
    if as_json:
        write_json(_view(model))
        return
    racks = _racks(model)
    click.echo(
        f"{file}: {len(model.nodes)} nodes in {len(racks)} racks, {model.gpus} GPUs, "
        f"seed {model.seed}"
    )
    click.echo(_fabric_line(model))
    click.echo()
    write(_table(racks))
    click.echo()
    click.echo(picture(model))
    for line in _fault_lines(model):
        click.echo(line)
    unknown = sorted({node.gpu_type or "no type" for node in model.nodes if not node.hardware})
    if unknown:
        click.echo(
            f"\nnote: {', '.join(unknown)} is not in the catalogue, so jobs there run by given "
            "durations only"
        )


def _racks(model: ClusterModel) -> dict[str, list[NodeModel]]:
    racks: dict[str, list[NodeModel]] = {}
    for node in model.nodes:
        racks.setdefault(node.rack or "(no rack)", []).append(node)
    return racks


def _fabric_line(model: ClusterModel) -> str:
    fabric = model.fabric
    over = (
        "not oversubscribed"
        if fabric.oversubscription == 1.0
        else f"{fabric.oversubscription:g}:1 oversubscribed"
    )
    return f"fabric: {fabric.nodes_per_leaf} nodes a leaf, {over}"


def _kind(node: NodeModel) -> tuple[str, ...]:
    hardware = node.hardware
    if hardware is None:
        return (f"{node.gpus} x {node.gpu_type or '?'}", "-", "-", "-")
    return (
        f"{node.gpus} x {node.gpu_type}",
        f"{hardware.link.name} ({hardware.link.ring_gbs(max(2, node.gpus)):g} GB/s)",
        f"{hardware.network.name} ({hardware.network.gbps:g} Gb/s {hardware.network.transport})",
        f"{hardware.host.cpus} CPUs, {hardware.host.memory_gb:g} GB, "
        f"{hardware.host.storage_gbs:g} GB/s storage",
    )


def _table(racks: dict[str, list[NodeModel]]) -> Table:
    columns = (
        Column("RACK"),
        Column("NODES", right=True),
        Column("GPUS"),
        Column("LINK"),
        Column("NETWORK"),
        Column("HOST", flexible=True),
    )
    rows = [
        [rack, str(count), *kind]
        for rack, nodes in racks.items()
        for kind, count in Counter(_kind(node) for node in nodes).items()
    ]
    return Table(columns, rows)


def picture(model: ClusterModel) -> str:
    """Draw racks as columns of nodes under their leaf switches, with the spine above."""
    racks = list(_racks(model).items())
    shown = racks[:RACKS_MAX]
    width = max(12, *(len(name) + 2 for name, _ in shown))
    lines = [
        f"{'spine':^{width * len(shown)}}".rstrip(),
        "".join(f"{'|':^{width}}" for _ in shown).rstrip(),
        "".join(f"{'[' + name[: width - 2] + ']':^{width}}" for name, _ in shown).rstrip(),
    ]
    tallest = min(BOXES_MAX, max(len(nodes) for _, nodes in shown))
    for row in range(tallest):
        cells = []
        for _, nodes in shown:
            here = nodes[row] if row < len(nodes) else None
            cells.append(f"{_box(here) if here else '':^{width}}")
        lines.append("".join(cells).rstrip())
    more = ["" if len(n) <= tallest else f"+{len(n) - tallest} more" for _, n in shown]
    if any(more):
        lines.append("".join(f"{text:^{width}}" for text in more).rstrip())
    if len(racks) > len(shown):
        lines.append(f"and {len(racks) - len(shown)} more racks")
    return "\n".join(lines)


def _box(node: NodeModel) -> str:
    return "#" * node.gpus if node.gpus <= 8 else f"#x{node.gpus}"


def _fault_lines(model: ClusterModel) -> list[str]:
    faults = model.faults
    lines = []
    if faults.node_mtbf_s is not None:
        lines.append(f"a node crashes every {faults.node_mtbf_s / 86400:.3g} days in the mean")
    if faults.preset is not None:
        days = 1.0 / (faults.preset.node_rate_day * len(model.nodes))
        lines.append(f"faults as {faults.preset.name}: some node every {days:.3g} days")
    if faults.spot is not None:
        lines.append(f"spot nodes are reclaimed every {faults.spot.mean_s / 3600:.3g} h each")
    lines += [f"maintenance: {w.duration_s:g} s at {w.at_s:g} s" for w in faults.windows]
    if faults.script:
        lines.append(f"{len(faults.script)} scripted faults")
    lines += [
        f"pool {pool.rack}: {pool.least} to {pool.most} nodes, {pool.delay_s:g} s to come, "
        f"{pool.price_h:g} an hour{', spot' if pool.spot else ''}"
        for pool in model.pools
    ]
    return ["", *lines] if lines else []


def _view(model: ClusterModel) -> dict[str, Any]:
    return {
        "nodes": len(model.nodes),
        "gpus": model.gpus,
        "racks": {name: len(nodes) for name, nodes in _racks(model).items()},
        "fabric": {
            "nodes_per_leaf": model.fabric.nodes_per_leaf,
            "oversubscription": model.fabric.oversubscription,
        },
        "faults": model.faults.preset.name if model.faults.preset else None,
        "pools": [pool.rack for pool in model.pools],
        "price_h": sum(node.hardware.price_h for node in model.nodes if node.hardware),
    }
