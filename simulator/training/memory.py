"""The memory of one device in training: weights, gradients, optimizer state and activations.

The figures are lower bounds of what frameworks use, so that a refused job could not have run:

- **Weights and gradients**: 4 bytes each for a parameter in single precision, 2 each in a lower
  one.
- **Optimizer state**: Adam's two moments, 8 bytes, for transformers; one momentum, 4 bytes, for
  other models. A lower precision keeps a copy in single precision, 4 bytes more. With parameter
  servers, the servers hold this state, and the device does not.
- `fsdp` shards all of these over the ranks and keeps two gathered layers in addition.
- **Activations** of one batch. Convolutional and other networks: the output of every layer twice,
  raw and normalised (ResNet-50: 2 x 11 million for an image). Transformers: 34 bytes for each token
  and hidden unit of a layer in half precision (Korthikanti et al. 2022), without the scores of
  attention, which fused kernels never store.
- **Language models with tensor or pipeline parallelism** discard activations and keep the input of
  every layer, 2 bytes for each token and hidden unit, for as many micro-batches as are in flight in
  the first stage (one for each stage); and the working set of the layer that is recomputed.
- The CUDA context takes 900 MiB, and buffers a twentieth of all the rest.
"""

from typing import NamedTuple

from simulator.training.models import Model
from simulator.training.plans import SERVED, Scheme
from simulator.training.recipes import Recipe, is_cut, precision_of

MIB = float(2**20)
GIB = float(2**30)
# What a framework and its kernels take before a model is loaded.
CONTEXT_BYTES = 900 * MIB
BUFFERS = 0.05
# Bytes of activations for each token and hidden unit of a transformer layer, in half precision.
LAYER_BYTES = 34.0
# The part of them that tensor parallelism does not divide, and the part that it does.
WHOLE_BYTES, DIVIDED_BYTES = 10.0, 24.0
# Outputs of a layer that are kept for the backward pass.
KEPT_OUTPUTS = 2.0
_FULL = frozenset({"fp32", "tf32"})


class Memory(NamedTuple):
    """Bytes on one device."""

    weights: float
    gradients: float
    optimizer: float
    activations: float

    @property
    def total(self) -> float:
        """All bytes, with the CUDA context and buffers."""
        return CONTEXT_BYTES + (1.0 + BUFFERS) * sum(self)


def memory_of(recipe: Recipe, model: Model, ranks: int) -> Memory:
    """Return what each of `ranks` devices holds."""
    if is_cut(recipe, model):
        return _cut(recipe, model, ranks)
    return _data_parallel(recipe, model, ranks)


def _data_parallel(recipe: Recipe, model: Model, ranks: int) -> Memory:
    each = 4.0 if precision_of(recipe, model) in _FULL else 2.0
    copies = 0.0 if each == 4.0 else 4.0
    moments = 8.0 if model.hidden else 4.0
    states = 0.0 if recipe.scheme in SERVED else copies + moments
    params, gathered = float(model.params), 0.0
    if recipe.scheme is Scheme.SHARDED:
        params, gathered = params / ranks, 2.0 * model.params_max * each
    batch = recipe.batch or model.batch
    return Memory(
        weights=params * each + gathered,
        gradients=params * each,
        optimizer=params * states,
        activations=batch * _activations(model) * each,
    )


def _activations(model: Model) -> float:
    """Return the number of values that are kept for one sample."""
    if model.hidden:
        return LAYER_BYTES / 2.0 * model.depth * model.sequence * model.hidden
    return KEPT_OUTPUTS * sum(layer.outputs for layer in model.layers)


def _cut(recipe: Recipe, model: Model, ranks: int) -> Memory:
    tensor, pipeline = recipe.tensor, recipe.pipeline
    data = max(1, ranks // (tensor * pipeline))
    params = model.params / (tensor * pipeline)
    micro = recipe.batch or 1
    tokens = float(micro * model.sequence * model.hidden)
    batches = recipe.global_batch / (data * micro) if recipe.global_batch else pipeline
    under_way = max(1.0, min(float(pipeline), batches))
    kept = 2.0 * tokens * model.depth / pipeline / tensor * under_way
    working = tokens * (WHOLE_BYTES + DIVIDED_BYTES / tensor)
    return Memory(
        weights=2.0 * params,
        gradients=2.0 * params,
        optimizer=12.0 * params,
        activations=kept + working,
    )
