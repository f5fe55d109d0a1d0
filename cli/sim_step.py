"""`muster sim step`: how long a step of training takes, where the time goes, and how it scales."""

from dataclasses import replace
from typing import Any

import click

from cli.plots import bar, lines
from cli.sim_place import (
    gpu_counts,
    place_of,
    place_options,
    place_view,
    scaled_place,
    told_time,
    wrong,
)
from cli.tables import write_json
from simulator.training.pace import BadRecipe, Pace, Recipe, pace
from simulator.training.placement import Place
from simulator.training.plans import SCHEMES


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
@click.option("--no-prefetch", is_flag=True, help="GPUs wait until real data is copied to them.")
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
    no_prefetch: bool,
    tensor: int,
    pipeline: int,
    global_batch: int,
    as_json: bool,
) -> None:
    """Say how long a training step takes, where the time goes, and how it scales.

    \b
    Examples:
      muster sim step --model resnet50 --gpu P100 --gpus 64 --nodes 8 --net 25GbE
      muster sim step --model gpt_175b --gpu A100-80 --gpus 512 --nodes 64 \\
          --net "8x200Gb HDR IB" --tensor 8 --pipeline 16 \\
          --global-batch 1536 --precision fp16
    """
    if no_prefetch and not real_data:
        raise click.UsageError("--no-prefetch is about --real-data; without it nothing is copied.")
    place = place_of(gpu, gpus, nodes, link, net, transport)
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
            prefetch=not no_prefetch,
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
        raise wrong(str(bad)) from None
    if as_json:
        write_json({"place": place_view(place), "schemes": _views(found, recipes, place)})
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
    counts = [n for n in gpu_counts(place.ranks) if n >= smallest and n % smallest == 0]
    curves: dict[str, list[float]] = {name: [] for name in recipes}
    for count in counts:
        there = scaled_place(place, count, place.per_node)
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
            f"{name}: {told_time(taken.total_s)} a step, {rate:,.0f} {one.unit}/s, "
            f"{efficiency:.1f} % efficient"
        )
        for part, seconds in _breakdown(one):
            share = seconds / taken.total_s
            click.echo(f"  {part:<24} {told_time(seconds):>9}  {100 * share:5.1f} %  {bar(share)}")
        if not one.parts and place.ranks > 1:
            click.echo(f"  (the exchange alone takes {told_time(taken.exchange_busy_s)})")


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
