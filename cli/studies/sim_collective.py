"""`muster sim collective`: the time of collectives by algorithm, and what NCCL would choose."""

import re
from collections.abc import Sequence
from typing import Any

import click
import numpy as np

from cli.output.plots import bar, lines
from cli.output.tables import Column, Table, write, write_json
from cli.studies.sim_place import (
    gpu_counts,
    place_of,
    place_options,
    place_view,
    scaled_place,
    time_text,
    wrong,
)
from simulator.collectives import algorithms, nccl
from simulator.hardware.constants import FITTED
from simulator.training.grouped_exchange import hops_s
from simulator.training.placement import Place, nccl_ranks

_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([kmgt]?)(i?)b?", re.IGNORECASE)


class Size(click.ParamType[float]):
    """A number of bytes, such as 400kB, 64MB or 1GiB."""

    name = "size"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if isinstance(value, float):
            return value
        match = _SIZE.fullmatch(str(value).strip())
        if match is None or float(match[1]) <= 0:
            self.fail(f"{value!r} is not a size; write 400kB, 64MB or 1GiB.", param, ctx)
        power = " kmgt".index(match[2].lower() or " ")
        return float(match[1]) * (1024.0 if match[3] else 1000.0) ** power


@click.command()
@click.option(
    "--size", type=Size(), default="100MB", show_default=True, help="Size per rank, such as 100MB."
)
@place_options
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
def collective(
    size: float,
    gpu: str,
    gpus: int,
    nodes: int,
    link: str | None,
    net: str | None,
    transport: str | None,
    as_json: bool,
) -> None:
    """Compute the time of a collective by each algorithm, and the choice of NCCL.

    \b
    Examples:
      muster sim collective --size 64MB --gpu V100 --gpus 8
      muster sim collective --size 1GB --gpu H100 --gpus 64 --nodes 8 \\
          --net "8x400Gb NDR IB"
    """
    if gpus < 2:
        raise wrong("a collective needs at least two GPUs: give --gpus 2 or more")
    place = place_of(gpu, gpus, nodes, link, net, transport)
    chosen = _nccl(np.array([size]), place)
    algorithm = nccl.ALGORITHMS[int(chosen.algorithm[0])]
    protocol = nccl.PROTOCOLS[int(chosen.protocol[0])]
    rows = _rows(size, place)
    seconds = float(chosen.seconds[0])
    if as_json:
        write_json(
            {
                "place": place_view(place),
                "size_bytes": size,
                "nccl": {
                    "seconds": seconds,
                    "latency_s": float(chosen.latency_s[0]),
                    "algorithm": algorithm,
                    "protocol": protocol,
                },
                "formulas_s": dict(rows),
            }
        )
        return
    bus = float(np.asarray(algorithms.bus_bandwidth("all_reduce", size, gpus, max(seconds, 1e-12))))
    click.echo(
        f"all-reduce of {size:,.0f} bytes, {gpus} x {place.gpu.name} on {nodes} node{'s' * (nodes > 1)}\n"
    )
    click.echo(
        f"NCCL: {time_text(seconds)} by {algorithm}, {protocol}; bus bandwidth "
        f"{bus / 1e9:.1f} GB/s, {time_text(float(chosen.latency_s[0]))} of it latency\n"
    )
    columns = (Column("COLLECTIVE"), Column("TIME", right=True), Column("", flexible=True))
    longest = max(value for _, value in rows)
    table = [[name, time_text(value), bar(value / longest)] for name, value in rows]
    write(Table(columns, table))
    counts = [n for n in gpu_counts(gpus) if n > 1]
    if len(counts) > 1:
        times = [
            1e3 * float(_nccl(np.array([size]), scaled_place(place, n, place.per_node)).seconds[0])
            for n in counts
        ]
        click.echo()
        click.echo(lines(counts, {"NCCL all-reduce": times}, title="time, ms", x_title="GPUs"))


def _nccl(sizes: "np.ndarray[Any, np.dtype[np.float64]]", place: Place) -> nccl.Chosen:
    inside, across = place.intra_gbs(), place.net_gbs(FITTED)
    who = nccl_ranks(place, intra_gbs=inside, net_gbs=across, sizes=len(sizes))
    costs = nccl.Costs(FITTED.nccl_launch_us, FITTED.nccl_hop_factor)
    return nccl.all_reduce(sizes, who, costs)


def _rows(size: float, place: Place) -> Sequence[tuple[str, float]]:
    """Return (algorithm, seconds) by the textbook formulas over the slowest link on the path."""
    slowest = min(place.intra_gbs(), place.net_gbs(FITTED)) * 1e9
    near, far = hops_s(place, FITTED)
    alpha = far if place.nodes > 1 else near
    n = float(place.ranks)
    rows = [
        (f"all-reduce, {name}", float(np.asarray(formula(size, n, alpha, 1.0 / slowest))))
        for name, formula in algorithms.ALL_REDUCE.items()
    ]
    if place.nodes > 1 and place.per_node > 1:
        inside, across = algorithms.hierarchical(
            size,
            float(place.per_node),
            float(place.nodes),
            (near, far),
            (1e-9 / place.intra_gbs(), 1e-9 / place.net_gbs(FITTED)),
        )
        rows.append(("all-reduce, hierarchical", float(np.asarray(inside + across))))
        betas = (1e-9 / place.intra_gbs(), place.per_node * 1e-9 / place.net_gbs(FITTED))
        torus = algorithms.torus_2d(size, float(place.per_node), float(place.nodes), alpha, betas)
        rows.append(("all-reduce, 2D torus", float(np.asarray(torus))))
    rows += [
        (name, float(np.asarray(formula(size, n, alpha, 1.0 / slowest))))
        for name, formula in algorithms.OTHERS.items()
    ]
    return rows
