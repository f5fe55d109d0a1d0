"""The counters of a GPU, computed from the model. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

from simulator.hardware.gpus import Gpu
from simulator.training.memory import MIB, memory_of
from simulator.training.models import find_model
from simulator.training.pace import Pace
from simulator.training.recipes import Recipe

AMBIENT_C = 32.0
# At full power a data-centre GPU settles about here.
HOT_C = 78.0
# Training draws most of the board's limit, not all of it.
POWER_SHARE = 0.92
# The memory of a framework and its kernels before a model is loaded.
CONTEXT_MIB = 900
# Parts of a language model's iteration in which a GPU waits.
WAITS = ("send_s", "bubble_s", "straggler_s", "data_s")


class Reading(NamedTuple):
    duty: float
    memory_used_mib: int
    temperature_c: float
    power_w: float


def busy(gpu: Gpu | None) -> Reading:
    """Return the reading for a job of fixed duration, which counts as computing all the time."""
    return _reading(gpu, 1.0, CONTEXT_MIB)


def sharing(gpu: Gpu | None, duty: float, memory_mib: int) -> Reading:
    """Return the reading for a rank of fixed duration on a share of a device, which it uses fully."""
    return _reading(gpu, duty, memory_mib)


def together(gpu: Gpu | None, parts: Sequence[Reading]) -> Reading:
    """Return the combined reading of a device; that of an idle one if `parts` is empty."""
    if len(parts) == 1:
        return parts[0]
    duty = min(1.0, sum(part.duty for part in parts))
    return _reading(gpu, duty, sum(part.memory_used_mib for part in parts))


def training(
    gpu: Gpu, how: Pace, recipe: Recipe, step_s: float, ranks: int, *, total_mib: int
) -> Reading:
    """Return the reading for one of `ranks` training ranks, by its compute share and its model."""
    duty = min(1.0, how.compute_s * how.micro_batches / step_s) if step_s > 0 else 0.0
    if how.parts:
        waits = sum(dict(how.parts)[name] for name in WAITS)
        duty = max(0.0, min(1.0, 1.0 - waits / step_s))
    return _reading(gpu, duty, min(int(total_mib * 0.98), memory_mib(recipe, ranks)))


def memory_mib(recipe: Recipe, ranks: int) -> int:
    """Return the memory of the model on each of `ranks` devices; see `training/memory.py`."""
    return int(memory_of(recipe, find_model(recipe.model), ranks).total / MIB)


def _reading(gpu: Gpu | None, duty: float, memory_mib: int) -> Reading:
    if gpu is None:
        return Reading(duty, memory_mib, 0.0, 0.0)
    power = gpu.idle_w + (gpu.power_w * POWER_SHARE - gpu.idle_w) * duty
    heat = AMBIENT_C + (HOT_C - AMBIENT_C) * power / (gpu.power_w * POWER_SHARE)
    return Reading(duty, memory_mib, round(heat, 1), round(power, 1))
