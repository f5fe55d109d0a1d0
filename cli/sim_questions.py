"""`muster sim step` and `muster sim collective`: one question, one answer with its reasons."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import click
import numpy as np

from cli.complaints import WRONG_USAGE, Complaint
from cli.plots import bar, lines
from cli.tables import Column, Table, write, write_json
from simulator.collectives import algorithms, nccl
from simulator.constants import FITTED
from simulator.hardware.gpus import find_gpu
from simulator.hardware.hosts import usual_host
from simulator.hardware.links import find_link
from simulator.hardware.names import UnknownHardware
from simulator.hardware.networks import Network, find_network
from simulator.training.exchange import Scheme
from simulator.training.pace import BadRecipe, Pace, Recipe, pace
from simulator.training.placement import Place

F = TypeVar("F", bound=Callable[..., Any])

SCHEMES = {
    "ring": Scheme.ALL_REDUCE,
    "ps": Scheme.PS_GPU,
    "ps-node": Scheme.PS_NODE,
    "ps-split": Scheme.PS_SPLIT,
    "ps-async": Scheme.PS_ASYNC,
    "fsdp": Scheme.SHARDED,
    "mpi": Scheme.MPI,
}
_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([kmgt]?)(i?)b?", re.IGNORECASE)


class Size(click.ParamType[float]):
    """Bytes, such as 400kB, 64MB or 1GiB."""

    name = "size"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if isinstance(value, float):
            return value
        found = _SIZE.fullmatch(str(value).strip())
        if found is None or float(found[1]) <= 0:
            self.fail(f"{value!r} is no size; write 400kB, 64MB or 1GiB.", param, ctx)
        power = " kmgt".index(found[2].lower() or " ")
        return float(found[1]) * (1024.0 if found[3] else 1000.0) ** power


def place_options(command: F) -> F:
    """What says where: GPUs, nodes, links and network."""
    for option in reversed(
        (
            click.option("--gpu", default="A100", show_default=True, help="The GPU, by its name."),
            click.option("--gpus", type=click.IntRange(1, 1_000_000), default=8, show_default=True),
            click.option("--nodes", type=click.IntRange(1, 100_000), default=1, show_default=True),
            click.option(
                "--link", help="Between the GPUs of a node; as usual for the GPU if left."
            ),
            click.option("--net", help="Between nodes: 25GbE, 8x200Gb HDR IB, ..."),
            click.option("--transport", type=click.Choice(["tcp", "tcp_grpc", "rdma"])),
        )
    ):
        command = option(command)
    return command


def _place(
    gpu: str, gpus: int, nodes: int, link: str | None, net: str | None, transport: str | None
) -> Place:
    if nodes > gpus:
        raise _wrong(f"{gpus} GPUs cannot fill {nodes} nodes")
    try:
        found = find_gpu(gpu)
        network = find_network(net, transport=transport) if net else Network()
        if nodes > 1 and net is None:
            network = find_network("100Gb", transport=transport or "rdma")
            click.echo("no --net given: 100 Gb/s RDMA is taken", err=True)
        inside = find_link(link or found.link)
    except UnknownHardware as unknown:
        raise _wrong(str(unknown)) from None
    host = usual_host(found.name, -(-gpus // nodes))
    return Place(found, inside, gpus, nodes, network, host)


def _wrong(message: str) -> Complaint:
    return Complaint(message, exit_code=WRONG_USAGE)


def _scaled(place: Place, ranks: int, per_node: int) -> Place:
    """The same hardware with another number of GPUs."""
    nodes = -(-ranks // per_node)
    return replace(place, ranks=ranks, nodes=nodes)


def _counts(most: int) -> list[int]:
    """Powers of two up to a number, and the number."""
    counts = [2**i for i in range(most.bit_length()) if 2**i < most]
    return [*counts[-7:], most]


# ---------------------------------------------------------------- step


@click.command()
@click.option("--model", default="resnet50", show_default=True, help="See docs/simulator.md.")
@place_options
@click.option("--batch", type=click.IntRange(1), help="Samples of one GPU; as usual if left.")
@click.option("--precision", default="fp32", show_default=True, help="fp32, tf32, fp16, bf16, fp8.")
@click.option(
    "--scheme",
    default="ring,ps-node,ps",
    show_default=True,
    help=f"How gradients are exchanged; several are compared: {', '.join(SCHEMES)}.",
)
@click.option("--compression", default="none", show_default=True, help="none, fp16, 1bit, topk.")
@click.option("--accumulate", type=click.IntRange(1), default=1, help="Micro-batches in a step.")
@click.option("--no-overlap", is_flag=True, help="Exchange only after the backward pass.")
@click.option("--servers", type=click.IntRange(1), help="Parameter servers; one a node if left.")
@click.option("--real-data", is_flag=True, help="Samples are read and prepared by the hosts.")
@click.option("--tensor", type=click.IntRange(1), default=1, help="Tensor-parallel GPUs.")
@click.option("--pipeline", type=click.IntRange(1), default=1, help="Pipeline stages.")
@click.option("--global-batch", type=click.IntRange(0), default=0, help="Of a language model.")
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
def step(
    model: str,
    gpu: str,
    gpus: int,
    nodes: int,
    link: str | None,
    net: str | None,
    transport: str | None,
    batch: int | None,
    precision: str,
    scheme: str,
    compression: str,
    accumulate: int,
    no_overlap: bool,
    servers: int | None,
    real_data: bool,
    tensor: int,
    pipeline: int,
    global_batch: int,
    as_json: bool,
) -> None:
    """Say how long a training step takes, where the time goes, and how it scales.

    \b
    Examples:
      muster sim step --model resnet50 --gpu P100 --link pcie3 --gpus 64 --nodes 8 --net 25GbE
      muster sim step --model gpt_175b --gpu A100-80 --gpus 512 --nodes 64 \\
          --net "8x200Gb HDR IB" --tensor 8 --pipeline 16 --global-batch 1536 --precision fp16
    """
    place = _place(gpu, gpus, nodes, link, net, transport)
    recipes = {
        name: Recipe(
            model=model,
            precision=precision,
            batch=batch or 0,
            scheme=SCHEMES[name],
            compression=compression,
            accumulate=accumulate,
            overlap=not no_overlap,
            servers=servers or place.nodes,
            real_data=real_data,
            tensor=tensor,
            pipeline=pipeline,
            global_batch=global_batch,
        )
        for name in _schemes(scheme)
    }
    if tensor * pipeline > 1:
        recipes = {"3d": next(iter(recipes.values()))}
    try:
        found = {name: pace(recipe, place) for name, recipe in recipes.items()}
        curves = _curves(recipes, place)
    except BadRecipe as bad:
        raise _wrong(str(bad)) from None
    if as_json:
        write_json({"place": _place_view(place), "schemes": _views(found, recipes, place)})
        return
    _tell_steps(found, recipes, place)
    if len(curves[0]) > 1:
        click.echo()
        click.echo(lines(curves[0], curves[1], title="efficiency, %", x_title="GPUs", top=100.0))


def _schemes(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in SCHEMES:
            raise click.BadParameter(
                f"{name!r} is none of {', '.join(SCHEMES)}.", param_hint="--scheme"
            )
    return list(dict.fromkeys(names)) or ["ring"]


def _efficiency(found: Pace, recipe: Recipe, place: Place) -> float:
    """Against as many GPUs that each work alone; a language model, against its matrix products."""
    if found.parts:
        return dict(found.parts)["matrix_s"] / found.step().total_s
    alone = pace(recipe, replace(place, ranks=1, nodes=1))
    return (found.samples / found.step().total_s) / (
        alone.samples / alone.step().total_s * place.ranks
    )


def _curves(recipes: dict[str, Recipe], place: Place) -> tuple[list[int], dict[str, list[float]]]:
    smallest = max(recipe.tensor * recipe.pipeline for recipe in recipes.values())
    counts = [n for n in _counts(place.ranks) if n >= smallest and n % smallest == 0]
    curves: dict[str, list[float]] = {name: [] for name in recipes}
    for count in counts:
        there = _scaled(place, count, place.per_node)
        for name, recipe in recipes.items():
            whole = recipe.global_batch * count // place.ranks
            scaled = replace(recipe, servers=there.nodes, global_batch=whole)
            curves[name].append(100.0 * _efficiency(pace(scaled, there), scaled, there))
    return counts, curves


def _breakdown(found: Pace) -> list[tuple[str, float]]:
    if found.parts:
        return [(name.removesuffix("_s").replace("_", " "), value) for name, value in found.parts]
    taken = found.step()
    return [
        ("compute", taken.compute_s),
        ("waiting for stragglers", taken.straggler_s),
        ("exchange not hidden", taken.exchange_s),
        ("waiting for input", taken.input_s),
    ]


def _tell_steps(found: dict[str, Pace], recipes: dict[str, Recipe], place: Place) -> None:
    first = next(iter(recipes.values()))
    where = f"{place.ranks} x {place.gpu.name} on {place.nodes} node{'s' * (place.nodes > 1)}"
    inside = f", {place.link.name} inside" if place.per_node > 1 else ""
    net = f", {place.network.name} ({place.network.transport})" if place.nodes > 1 else ""
    click.echo(f"{first.model}, {first.precision}, on {where}{inside}{net}\n")
    for name, one in found.items():
        taken = one.step()
        rate = one.samples / taken.total_s
        efficiency = 100.0 * _efficiency(one, recipes[name], place)
        click.echo(
            f"{name}: {_time(taken.total_s)} a step, {rate:,.0f} {one.unit}/s, "
            f"{efficiency:.1f} % efficient"
        )
        for part, seconds in _breakdown(one):
            share = seconds / taken.total_s
            click.echo(f"  {part:<24} {_time(seconds):>9}  {100 * share:5.1f} %  {bar(share)}")
        if not one.parts and place.ranks > 1:
            click.echo(f"  (the exchange alone takes {_time(taken.exchange_busy_s)})")


def _views(
    found: dict[str, Pace], recipes: dict[str, Recipe], place: Place
) -> dict[str, dict[str, Any]]:
    return {
        name: {
            "step_s": one.step().total_s,
            "samples_per_s": one.samples / one.step().total_s,
            "efficiency": _efficiency(one, recipes[name], place),
            "parts_s": dict(_breakdown(one)),
            "exchange_alone_s": one.step().exchange_busy_s,
            "bytes_per_node": one.plan.node_bytes,
        }
        for name, one in found.items()
    }


def _place_view(place: Place) -> dict[str, Any]:
    return {
        "gpu": place.gpu.name,
        "gpus": place.ranks,
        "nodes": place.nodes,
        "link": place.link.name,
        "net": place.network.name,
        "net_gbps": place.network.gbps,
        "transport": place.network.transport,
    }


def _time(seconds: float) -> str:
    for size, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= size:
            return f"{seconds / size:.4g} {unit}"
    return f"{seconds * 1e6:.3g} us"


# ---------------------------------------------------------------- collective


@click.command()
@click.option("--size", type=Size(), default="100MB", show_default=True, help="Bytes of one rank.")
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
    """Say how long collectives take by each algorithm, and what NCCL would choose.

    \b
    Examples:
      muster sim collective --size 64MB --gpu V100 --gpus 8
      muster sim collective --size 1GB --gpu H100 --gpus 64 --nodes 8 --net "8x400Gb NDR IB"
    """
    place = _place(gpu, gpus, nodes, link, net, transport)
    chosen = _nccl(np.array([size]), place)
    algorithm = nccl.ALGORITHMS[int(chosen.algorithm[0])]
    protocol = nccl.PROTOCOLS[int(chosen.protocol[0])]
    rows = _rows(size, place)
    seconds = float(chosen.seconds[0])
    if as_json:
        write_json(
            {
                "place": _place_view(place),
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
    click.echo(f"all-reduce of {size:,.0f} bytes, {gpus} x {place.gpu.name} on {nodes} nodes\n")
    if gpus > 1:
        click.echo(
            f"NCCL: {_time(seconds)} by {algorithm}, {protocol}; bus bandwidth "
            f"{bus / 1e9:.1f} GB/s, {_time(float(chosen.latency_s[0]))} of it latency\n"
        )
    columns = (Column("COLLECTIVE"), Column("TIME", right=True), Column("", flexible=True))
    longest = max(value for _, value in rows)
    table = [[name, _time(value), bar(value / longest)] for name, value in rows]
    write(Table(columns, table))
    counts = [n for n in _counts(gpus) if n > 1]
    if len(counts) > 1:
        times = [
            1e3 * float(_nccl(np.array([size]), _scaled(place, n, place.per_node)).seconds[0])
            for n in counts
        ]
        click.echo()
        click.echo(lines(counts, {"NCCL all-reduce": times}, title="time, ms", x_title="GPUs"))


def _nccl(sizes: "np.ndarray[Any, np.dtype[np.float64]]", place: Place) -> nccl.Chosen:
    known = place.gpu.generation in nccl.GENERATIONS
    who = nccl.ranks_of(
        ranks=np.full(len(sizes), place.ranks),
        nodes=place.nodes,
        intra_gbs=place.intra_gbs(),
        net_gbs=place.net_gbs(FITTED),
        generation=nccl.GENERATIONS.index(place.gpu.generation) if known else 0,
        medium=0 if place.link.is_nvlink or place.per_node == 1 else 1,
        nvls=place.nvls,
        ordered=place.network.ordered,
    )
    costs = nccl.Costs(FITTED.nccl_launch_us, FITTED.nccl_hop_factor)
    return nccl.all_reduce(sizes, who, costs)


def _rows(size: float, place: Place) -> Sequence[tuple[str, float]]:
    """Textbook times over the slowest link on the way."""
    slowest = min(place.intra_gbs(), place.net_gbs(FITTED)) * 1e9
    alpha = (14.0 if place.nodes > 1 else 3.4) * 1e-6 * FITTED.nccl_hop_factor
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
            (3.4e-6, 14e-6),
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
