"""What a GPU's counters would show, from what the model knows of it. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

from simulator.hardware.gpus import Gpu
from simulator.training.models import find_model
from simulator.training.pace import GRADIENT_BYTES, Pace, Recipe

AMBIENT_C = 32.0
# At full power a data-centre GPU settles about here.
HOT_C = 78.0
# Training draws most of the board's limit, not all of it.
POWER_SHARE = 0.92
# Weights, gradients and two moments of the optimiser, in single precision.
STATE_BYTES = 16.0
# What a framework and its kernels take before there is a model.
CONTEXT_MIB = 900
MIB = float(2**20)
# Parts of a language model's iteration in which a GPU waits.
WAITS = ("send_s", "bubble_s", "straggler_s", "data_s")


class Reading(NamedTuple):
    duty: float
    memory_used_mib: int
    temperature_c: float
    power_w: float


def busy(gpu: Gpu | None) -> Reading:
    """A job of which only the duration is known: taken to compute all the time."""
    return _reading(gpu, 1.0, CONTEXT_MIB)


def sharing(gpu: Gpu | None, duty: float, memory_mib: int) -> Reading:
    """A rank with a share of a device of which only the duration is known: it uses its share."""
    return _reading(gpu, duty, memory_mib)


def together(gpu: Gpu | None, parts: Sequence[Reading]) -> Reading:
    """What a device shows that these use together; an idle one if there are none."""
    if len(parts) == 1:
        return parts[0]
    duty = min(1.0, sum(part.duty for part in parts))
    return _reading(gpu, duty, sum(part.memory_used_mib for part in parts))


def training(gpu: Gpu, how: Pace, recipe: Recipe, step_s: float, total_mib: int) -> Reading:
    """A rank that trains: the share of a step in which it computes, and what its model takes."""
    duty = min(1.0, how.compute_s * how.micro_batches / step_s) if step_s > 0 else 0.0
    if how.parts:
        waits = sum(dict(how.parts)[name] for name in WAITS)
        duty = max(0.0, min(1.0, 1.0 - waits / step_s))
    return _reading(gpu, duty, min(int(total_mib * 0.98), memory_mib(recipe)))


def memory_mib(recipe: Recipe) -> int:
    """Weights and what goes with them, and activations of one batch."""
    model = find_model(recipe.model)
    shards = recipe.tensor * recipe.pipeline
    state = model.params * STATE_BYTES / shards
    each = GRADIENT_BYTES[recipe.precision]
    # About as many activations as a hundredth of the multiply-adds of the forward pass.
    activations = model.flops / 6.0 / 100.0 * each * (recipe.batch or model.batch) / shards
    return CONTEXT_MIB + int((state + activations) / MIB)


def _reading(gpu: Gpu | None, duty: float, memory_mib: int) -> Reading:
    if gpu is None:
        return Reading(duty, memory_mib, 0.0, 0.0)
    power = gpu.idle_w + (gpu.power_w * POWER_SHARE - gpu.idle_w) * duty
    heat = AMBIENT_C + (HOT_C - AMBIENT_C) * power / (gpu.power_w * POWER_SHARE)
    return Reading(duty, memory_mib, round(heat, 1), round(power, 1))
