"""`muster sim step`: the time of a training step, its parts, and how it scales."""

from dataclasses import replace
from typing import Any

import click

from cli.output.plots import bar, lines
from cli.output.tables import write_json
from cli.studies.sim_place import (
    gpu_counts,
    place_of,
    place_options,
    place_view,
    scaled_place,
    time_text,
    wrong,
)
from simulator.training.memory import GIB, memory_of
from simulator.training.models import find_model
from simulator.training.pace import Pace, pace
from simulator.training.placement import Place
from simulator.training.plans import SCHEMES, SERVED, Scheme
from simulator.training.recipes import BadRecipe, Recipe, check, is_cut, precision_of

RING = Scheme.ALL_REDUCE
# The schemes that are compared by default.
USUAL_SCHEMES = "ring,ps-node,ps"


@click.command()
@click.option("--model", default="resnet50", show_default=True, help="See docs/simulator.md.")
@place_options
@click.option(
    "--batch", type=click.IntRange(1), help="Samples per GPU. Default: usual for the model."
)
@click.option(
    "--precision", default="", help="fp32, tf32, fp16, bf16, fp8; default: usual for the model."
)
@click.option(
    "--scheme",
    default="",
    help=f"Exchange of gradients; several values are compared: {', '.join(SCHEMES)}. "
    f"{USUAL_SCHEMES} if left; language models that are cut have their own.",
)
@click.option("--compression", default="none", show_default=True, help="none, fp16, 1bit, topk.")
@click.option("--accumulate", type=click.IntRange(1), default=1, help="Micro-batches per step.")
@click.option("--no-overlap", is_flag=True, help="Exchange only after the backward pass.")
@click.option(
    "--servers", type=click.IntRange(1), help="Number of parameter servers. Default: one per node."
)
@click.option(
    "--real-data", is_flag=True, help="Include reading and preparing samples on the hosts."
)
@click.option(
    "--no-prefetch", is_flag=True, help="Let GPUs wait while real data is copied to them."
)
@click.option("--tensor", type=click.IntRange(1), default=1, help="Degree of tensor parallelism.")
@click.option("--pipeline", type=click.IntRange(1), default=1, help="Number of pipeline stages.")
@click.option(
    "--global-batch", type=click.IntRange(0), default=0, help="Global batch of a language model."
)
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
    """Compute the time of a training step, its parts, and how it scales.

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
    recipe = Recipe(
        model=model,
        precision=precision,
        batch=batch or 0,
        compression=compression,
        accumulate=accumulate,
        overlap=not no_overlap,
        real_data=real_data,
        prefetch=not no_prefetch,
        tensor=tensor,
        pipeline=pipeline,
        global_batch=global_batch,
    )
    try:
        recipes = _recipes(recipe, _schemes(scheme), servers, place)
        _check_memory(recipes, place)
        paces = {name: pace(recipe, place) for name, recipe in recipes.items()}
        curves = _curves(recipes, place)
    except BadRecipe as bad:
        raise wrong(f"--{bad.field.replace('_', '-')}: {bad.problem}") from None
    if as_json:
        write_json({"place": place_view(place), "schemes": _views(paces, recipes, place)})
        return
    _show_steps(paces, recipes, place)
    if len(curves[0]) > 1:
        click.echo()
        click.echo(lines(curves[0], curves[1], title="efficiency, %", x_title="GPUs", top=100.0))


def _recipes(
    recipe: Recipe, schemes: list[str], servers: int | None, place: Place
) -> dict[str, Recipe]:
    """Return scheme -> recipe; raise BadRecipe if an option applies to none of the schemes."""
    model = check(recipe, place.ranks)
    if is_cut(recipe, model):
        asked = replace(recipe, servers=servers, scheme=SCHEMES[schemes[0]] if schemes else RING)
        check(asked, place.ranks)
        return {"3d": asked}
    alone = not recipe.overlap or recipe.compression == "1bit"
    names = schemes or (["ring"] if alone and not servers else USUAL_SCHEMES.split(","))
    if servers and not any(SCHEMES[name] in SERVED for name in names):
        raise BadRecipe(
            "servers", f"none of these schemes has parameter servers: {', '.join(names)}"
        )
    return {
        name: replace(
            recipe,
            scheme=SCHEMES[name],
            servers=(servers or place.nodes) if SCHEMES[name] in SERVED else None,
        )
        for name in names
    }


def _check_memory(recipes: dict[str, Recipe], place: Place) -> None:
    for name, recipe in recipes.items():
        needed = memory_of(recipe, check(recipe, place.ranks), place.ranks)
        if needed.total > place.gpu.memory_gb * GIB:
            raise BadRecipe(
                "model",
                f"{recipe.model} ({name}) needs at least {needed.total / GIB:,.1f} GiB on each GPU, "
                f"and a {place.gpu.name} has {place.gpu.memory_gb:g}",
            )


def _schemes(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in SCHEMES:
            raise click.BadParameter(
                f"{name!r} is none of {', '.join(SCHEMES)}.", param_hint="--scheme"
            )
    return list(dict.fromkeys(names))


def _efficiency(result: Pace, recipe: Recipe, place: Place) -> float:
    """Return the efficiency relative to as many GPUs that each work alone.

    For a language model it is relative to the time of its matrix products.
    """
    if result.parts:
        return dict(result.parts)["matrix_s"] / result.step().total_s
    alone = pace(replace(recipe, servers=None, scheme=RING), replace(place, ranks=1, nodes=1))
    return (result.samples / result.step().total_s) / (
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
            served = there.nodes if recipe.servers else None
            scaled = replace(recipe, servers=served, global_batch=whole)
            curves[name].append(100.0 * _efficiency(pace(scaled, there), scaled, there))
    return counts, curves


def _breakdown(pace: Pace) -> list[tuple[str, float]]:
    if pace.parts:
        return [(name.removesuffix("_s").replace("_", " "), value) for name, value in pace.parts]
    taken = pace.step()
    return [
        ("compute", taken.compute_s),
        ("waiting for stragglers", taken.straggler_s),
        ("exchange not hidden", taken.exchange_s),
        ("waiting for input", taken.input_s),
    ]


def _show_steps(paces: dict[str, Pace], recipes: dict[str, Recipe], place: Place) -> None:
    first = next(iter(recipes.values()))
    where = f"{place.ranks} x {place.gpu.name} on {place.nodes} node{'s' * (place.nodes > 1)}"
    inside = f", {place.link.name} inside" if place.per_node > 1 else ""
    net = f", {place.network.name} ({place.network.transport})" if place.nodes > 1 else ""
    precision = precision_of(first, find_model(first.model))
    click.echo(f"{first.model}, {precision}, on {where}{inside}{net}\n")
    for name, one in paces.items():
        taken = one.step()
        rate = one.samples / taken.total_s
        efficiency = 100.0 * _efficiency(one, recipes[name], place)
        click.echo(
            f"{name}: {time_text(taken.total_s)} a step, {rate:,.0f} {one.unit}/s, "
            f"{efficiency:.1f} % efficient"
        )
        for part, seconds in _breakdown(one):
            share = seconds / taken.total_s
            click.echo(f"  {part:<24} {time_text(seconds):>9}  {100 * share:5.1f} %  {bar(share)}")
        if not one.parts and place.ranks > 1:
            click.echo(f"  (the exchange alone takes {time_text(taken.exchange_busy_s)})")


def _views(
    paces: dict[str, Pace], recipes: dict[str, Recipe], place: Place
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
        for name, one in paces.items()
    }
