"""One iteration of a large language model under tensor, pipeline and data parallelism.

A stage computes its layers for one micro-batch after the other. A layer costs matrix products, the
traffic of its activations through device memory (bytes as in Korthikanti et al. 2022: a part that
tensor parallelism does not divide, a part that it does, and attention scores), all-reduces between
the tensor-parallel ranks, and the launch of its kernels. The all-reduces of the forward pass block;
those of the backward pass overlap with the products for the gradients of the weights, as in
Megatron. For every micro-batch, stages send activations and their gradients to the next stage. The
stage with the output layer is the slowest and sets the pace of the pipeline; the idle time of the
other stages is the bubble. Gradients are reduced over the data-parallel replicas at the end, when
the slowest of them is ready (`stragglers.py`). Then every GPU updates its part of the parameters.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from simulator.collectives import nccl
from simulator.hardware.constants import Constants
from simulator.training.placement import Place
from simulator.training.stragglers import SIGMA, slowest

# Bytes of activations per layer for each token and hidden unit: not divided, and divided by tensor
# parallelism; and for each pair of tokens and head.
WHOLE_BYTES = 10.0
DIVIDED_BYTES = 24.0
SCORE_BYTES = 5.0
# All-reduces of a forward pass through a layer.
ALL_REDUCES = 2
# What each all-reduce of the backward pass overlaps with: the gradients of the weights of the
# projection to queries, keys and values, and of the first half of the feed-forward part, as
# multiples of h x h.
OVERLAPPED_SHARES = (3.0, 4.0)
# What Adam in mixed precision reads and writes for each parameter: the gradient is converted to
# single precision and enters the norm (10 bytes); gradient, parameter and both moments are read and
# written (26), and the half-precision parameter is written (2).
UPDATE_BYTES = 38.0


@dataclass(frozen=True, slots=True)
class Llm:
    """The shape of a language model."""

    hidden: int
    layers: int
    heads: int
    sequence: int
    vocabulary: int = 51200

    @property
    def params(self) -> float:
        h = self.hidden
        return self.layers * (12.0 * h * h + 13.0 * h) + (self.vocabulary + self.sequence) * h


@dataclass(frozen=True, slots=True)
class Parallel:
    """How an iteration is divided over GPUs."""

    tensor: int
    pipeline: int
    data: int
    # Sequences in a micro-batch, and in a whole iteration.
    micro_batch: int
    global_batch: int
    # Activations are discarded and computed again in the backward pass.
    recompute: bool = True
    # Attention scores are never written to device memory.
    flash: bool = False
    # The number of separate runs of layers in each stage; more of them shorten the bubble.
    interleave: int = 1
    precision: str = "fp16"

    @property
    def micro_batches(self) -> float:
        """Micro-batches of each replica in one iteration."""
        return self.global_batch / (self.data * self.micro_batch)


class Iteration(NamedTuple):
    """Seconds; the parts add up to `total_s`."""

    total_s: float
    matrix_s: float
    memory_s: float
    tensor_s: float
    launch_s: float
    head_s: float
    # Activations and their gradients on their way between stages.
    send_s: float
    bubble_s: float
    # The wait for the slowest replica.
    straggler_s: float
    data_s: float
    update_s: float
    # Floating-point operations without recomputation.
    model_flops: float


def iteration(llm: Llm, how: Parallel, place: Place, constants: Constants) -> Iteration:
    """Return the time of one iteration and its parts."""
    s, h, b, tp = llm.sequence, llm.hidden, how.micro_batch, how.tensor
    rate = place.gpu.peak_tflops(how.precision) * 1e12 * constants.gemm_share
    memory = place.gpu.memory_gbs * 1e9
    forward = 24.0 * b * s * h * h * (1.0 + s / (6.0 * h)) / tp
    matrix = forward * (4.0 if how.recompute else 3.0) / rate
    scores = 0.0 if how.flash else SCORE_BYTES * llm.heads * s * s * b / tp
    activations = b * s * h * (WHOLE_BYTES + DIVIDED_BYTES / tp) + scores
    # Without a repeated forward pass the traffic is a quarter less.
    passes = constants.activation_passes * (1.0 if how.recompute else 0.75)
    traffic = passes * activations / memory
    forwards = 2 if how.recompute else 1
    once = _tensor_all_reduce_s(2.0 * b * s * h, tp, place, constants)
    overlapped = 2.0 * b * s * h * h / tp / rate
    late = sum(max(0.0, once - share * overlapped) for share in OVERLAPPED_SHARES)
    tensor = forwards * ALL_REDUCES * once + late
    launch = constants.layer_launch_ms * 1e-3 * (1.0 if how.recompute else 0.75)
    per_stage = llm.layers / how.pipeline
    layer = matrix + traffic + tensor + launch
    head = 6.0 * b * s * h * llm.vocabulary / tp / rate
    m = how.micro_batches
    send = _send_s(2.0 * b * s * h, how, place, constants)
    steady = m * (per_stage * layer + head + send)
    bubble = (how.pipeline - 1) * (per_stage * layer + send) / how.interleave
    late_s = SIGMA * slowest(how.data) * (steady + bubble)
    data = _data_s(llm, how, place, constants)
    update = UPDATE_BYTES * llm.params / (tp * how.pipeline) / memory
    model = m * how.data * (3.0 * forward * tp * llm.layers + 6.0 * b * s * h * llm.vocabulary)
    return Iteration(
        total_s=steady + bubble + late_s + data + update,
        matrix_s=m * per_stage * matrix,
        memory_s=m * per_stage * traffic,
        tensor_s=m * per_stage * tensor,
        launch_s=m * per_stage * launch,
        head_s=m * head,
        send_s=m * send,
        bubble_s=bubble,
        straggler_s=late_s,
        data_s=data,
        update_s=update,
        model_flops=model,
    )


def _tensor_all_reduce_s(size: float, tp: int, place: Place, constants: Constants) -> float:
    if tp <= 1:
        return 0.0
    per_node = min(tp, place.per_node)
    nodes = -(-tp // per_node)
    who = nccl.ranks_of(
        ranks=np.array([tp]),
        nodes=nodes,
        intra_gbs=place.link.ring_gbs(per_node) or np.inf,
        net_gbs=place.net_gbs(constants) if nodes > 1 else np.inf,
        generation=nccl.generation_of(place.gpu.generation),
        medium=0 if place.link.is_nvlink else 1,
        ordered=place.network.ordered,
        net_us=place.network.latency_us,
    )
    costs = nccl.Costs(constants.nccl_launch_us, constants.nccl_hop_factor)
    return float(nccl.all_reduce(size, who, costs).seconds[0])


def _send_s(size: float, how: Parallel, place: Place, constants: Constants) -> float:
    """Activations and their gradients to the next stage; each tensor-parallel rank sends a part."""
    if how.pipeline <= 1:
        return 0.0
    inside = place.nodes == 1
    node = place.link.ring_gbs(place.per_node) if inside else place.net_gbs(constants)
    per_gpu = node if inside else node / place.per_node
    return 2.0 * size / how.tensor / (per_gpu * 1e9)


def _data_s(llm: Llm, how: Parallel, place: Place, constants: Constants) -> float:
    """The reduction of half-precision gradients over all NICs of the nodes that hold a stage."""
    if how.data <= 1:
        return 0.0
    across = 2.0 * (how.data - 1) / how.data * 2.0 * llm.params / how.pipeline
    if place.nodes == 1:
        return across / how.tensor / (place.link.ring_gbs(place.per_node) * 1e9)
    stage_gpus = min(place.per_node, how.tensor * how.data)
    return across / (place.net_gbs(constants) * 1e9) * stage_gpus / place.per_node
