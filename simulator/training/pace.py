"""The pace of a gang: how long its steps take at its place, and its load on the links.

`pace` combines a recipe with a place. The result computes with a few multiplications how long a
step takes with a given share of the bandwidth between nodes, so it can be called whenever other
gangs on a link come or go.
"""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from simulator.collectives.compression import COMPRESSIONS, encode_s, wire_bytes
from simulator.collectives.parameter_server import asynchronous
from simulator.hardware.constants import FITTED, Constants
from simulator.training.checkpoints import pause_share
from simulator.training.exchange import HOROVOD_CYCLE_S, plan
from simulator.training.input_pipeline import hand_over_s, input_rates
from simulator.training.llm import Llm, Parallel, iteration
from simulator.training.models import Model, samples_per_s
from simulator.training.placement import Place
from simulator.training.plans import Gradients, Plan, Scheme, Software
from simulator.training.recipes import GRADIENT_BYTES, Recipe, check, is_cut, precision_of
from simulator.training.served_exchange import servers_of
from simulator.training.step import Step, step, straggling


@dataclass(frozen=True, slots=True)
class Pace:
    """The pace of a recipe at a place."""

    compute_s: float
    plan: Plan
    lag: float
    micro_batches: int = 1
    input_s: float = 0.0
    # Seconds that GPUs wait until a batch is copied to them.
    hand_s: float = 0.0
    # Samples of one step, over the whole gang.
    samples: float = 0.0
    unit: str = "samples"
    # The mean overhead of a step: checkpoints as a share of it, evaluation in seconds.
    pause_share: float = 0.0
    evaluation_s: float = 0.0
    # The parts of a language model's iteration; its exchange is one of them.
    parts: tuple[tuple[str, float], ...] = ()

    def step(self, share: float = 1.0) -> Step:
        """Return one step with a share of the bandwidth between nodes."""
        return step(
            self.compute_s,
            self.plan,
            self.lag,
            micro_batches=self.micro_batches,
            share=share,
            input_s=self.input_s,
            hand_s=self.hand_s,
        )

    def step_s(self, share: float = 1.0) -> float:
        """Return the mean seconds of one step, with its part of checkpoints and evaluation."""
        return (self.step(share).total_s + self.evaluation_s) * (1.0 + self.pause_share)


@lru_cache(maxsize=4096)
def pace(recipe: Recipe, place: Place, constants: Constants = FITTED) -> Pace:
    """Return the pace of a recipe at a place; raise BadRecipe if the recipe cannot run there."""
    model = check(recipe, place.ranks)
    if is_cut(recipe, model):
        return _language_model(recipe, model, place, constants)
    return _data_parallel(recipe, model, place, constants)


def gradients(model: Model, bytes_per_param: float) -> Gradients:
    """Return bytes and share of the backward pass of each layer's gradient, last layer first."""
    work = sum(layer.macs for layer in model.layers)
    return tuple(
        (layer.params * bytes_per_param, layer.macs / work) for layer in reversed(model.layers)
    )


def _data_parallel(recipe: Recipe, model: Model, place: Place, constants: Constants) -> Pace:
    batch = recipe.batch or model.batch
    compute = recipe.compute_s
    if compute is None:
        compute = batch / samples_per_s(model, place.gpu, precision_of(recipe, model), batch)
    how = COMPRESSIONS[recipe.compression]
    each = GRADIENT_BYTES[precision_of(recipe, model)] if recipe.compression == "none" else 4.0
    scheme = Scheme.ONE_BIT if recipe.compression == "1bit" else recipe.scheme
    wire = each * (1.0 if scheme is Scheme.ONE_BIT else wire_bytes(1.0, how, place.ranks))
    exchange = plan(
        place,
        gradients(model, wire),
        scheme,
        constants,
        Software(
            overlap=recipe.overlap,
            cycle_s=HOROVOD_CYCLE_S if recipe.horovod else 0.0,
            servers=recipe.servers,
        ),
        model.params_max * wire,
    )
    packed = 0.0
    if place.ranks > 1 and scheme is not Scheme.ONE_BIT:
        packed = encode_s(model.params * 4.0, how, place.gpu.memory_gbs * 1e9)
    fed = handed = 0.0
    if recipe.real_data:
        node = input_rates(model, place.host, place.per_node, cached=recipe.cached).rate
        fed = batch * recipe.accumulate * place.per_node / node
        if not recipe.prefetch:
            handed = hand_over_s(model, batch * recipe.accumulate, pinned=False)
    lag = straggling(place.ranks, place.nodes, recipe.accumulate)
    if scheme is Scheme.PS_ASYNC and place.crosses_network:
        # Each client works at its own pace, so no rank waits for the slowest.
        lag = 0.0
        taken = _asynchronous_s(recipe, model, place, compute, wire, constants)
        exchange = replace(exchange, tail_s=taken - compute)
    return Pace(
        compute_s=compute + packed / recipe.accumulate,
        plan=exchange,
        lag=lag,
        micro_batches=recipe.accumulate,
        input_s=fed,
        hand_s=handed,
        samples=float(batch * recipe.accumulate * place.ranks),
        unit=model.unit,
        pause_share=pause_share(recipe.checkpoint),
        evaluation_s=_evaluation_s(recipe),
    )


def _asynchronous_s(
    recipe: Recipe, model: Model, place: Place, compute: float, wire: float, constants: Constants
) -> float:
    """Return the mean seconds of one client's step, with its wait at the most loaded server."""
    software = Software(servers=recipe.servers)
    who = servers_of(place, place.ranks, constants, software, every_gpu=True)
    pace = asynchronous(model.params * wire, who, model.params_max * wire, compute)
    return float(place.ranks / np.asarray(pace.steps_per_s))


def _evaluation_s(recipe: Recipe) -> float:
    return recipe.evaluate_s / recipe.evaluate_steps if recipe.evaluate_steps > 0 else 0.0


def _language_model(recipe: Recipe, model: Model, place: Place, constants: Constants) -> Pace:
    data = place.ranks // (recipe.tensor * recipe.pipeline)
    micro = recipe.batch or 1
    whole = recipe.global_batch or data * micro * max(1, 4 * recipe.pipeline)
    llm = Llm(
        model.hidden, model.depth, max(1, model.hidden // 128), model.sequence, model.vocabulary
    )
    how = Parallel(
        recipe.tensor,
        recipe.pipeline,
        data,
        micro,
        whole,
        precision=precision_of(recipe, model),
    )
    taken = iteration(llm, how, place, constants)
    # Only gradients between nodes are counted; what the pipeline sends is little in comparison.
    across = 2.0 * (data - 1) / data * 2.0 * llm.params / recipe.pipeline if data > 1 else 0.0
    many = place.nodes > 1
    exchange = plan(place, (), Scheme.NONE, constants)
    if many and across > 0.0:
        exchange = Plan(
            exchange.exposure,
            tail_net_s=taken.data_s,
            node_bytes=across,
        )
    rest = taken.total_s - (taken.data_s if many and across > 0.0 else 0.0)
    return Pace(
        compute_s=rest,
        plan=exchange,
        lag=0.0,
        samples=float(whole),
        unit=model.unit,
        pause_share=pause_share(recipe.checkpoint),
        evaluation_s=_evaluation_s(recipe),
        parts=tuple(
            (name, getattr(taken, name))
            for name in (
                "matrix_s",
                "memory_s",
                "tensor_s",
                "launch_s",
                "head_s",
                "send_s",
                "bubble_s",
                "straggler_s",
                "data_s",
                "update_s",
            )
        ),
    )
