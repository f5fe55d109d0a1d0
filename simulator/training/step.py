"""The time of one step of a gang, and its parts."""

from typing import NamedTuple

from simulator.training.plans import Plan
from simulator.training.stragglers import SIGMA, slowest_on_nodes

# The backward pass does twice the work of the forward pass.
BACKWARD_SHARE = 2.0 / 3.0
# The relative error at which `compute_from` stops.
EXACT = 1e-12


class Step(NamedTuple):
    """Seconds; the parts add up to `total_s`."""

    total_s: float
    compute_s: float
    straggler_s: float
    exchange_s: float
    input_s: float
    # How long the exchange would take by itself, hidden or not.
    exchange_busy_s: float


def straggling(ranks: int, nodes: int, micro_batches: int = 1) -> float:
    """Return how much longer the slowest rank computes than the mean, as a share.

    Both ranks and nodes differ.
    """
    return SIGMA * slowest_on_nodes(ranks, nodes, micro_batches)


def step(
    compute_s: float,
    plan: Plan,
    lag: float,
    *,
    micro_batches: int = 1,
    share: float = 1.0,
    input_s: float = 0.0,
    hand_s: float = 0.0,
) -> Step:
    """Return one step: `micro_batches` of `compute_s` each, and the exposed part of the exchange.

    `lag` is the result of `straggling`; `share` is the gang's share of its bandwidth between nodes;
    `input_s` is how long the input pipeline takes for the samples of one step, and `hand_s` how
    long the GPUs wait until they are copied.
    """
    slow = 1.0 + lag
    compute = compute_s * micro_batches * slow
    s_per_byte = plan.s_per_byte(share)
    busy = plan.exposure.busy_s(s_per_byte) + (plan.fetch_net_s + plan.tail_net_s) / share
    tail = plan.tail_s + plan.tail_net_s / share
    if plan.overlap:
        backward = BACKWARD_SHARE * compute_s * slow
        forward = compute_s * slow - backward
        fetch = max(0.0, plan.fetch_net_s / share - forward)
        late = max(0.0, plan.exposure.end_s(backward, s_per_byte) - backward)
        exposed = fetch + late + tail
    else:
        exposed = plan.exposure.busy_s(s_per_byte) + plan.fetch_net_s / share + tail
    trained = compute + exposed + hand_s
    stall = max(0.0, input_s - trained) + hand_s
    return Step(
        total_s=compute + exposed + stall,
        compute_s=compute_s * micro_batches,
        straggler_s=compute - compute_s * micro_batches,
        exchange_s=exposed,
        input_s=stall,
        exchange_busy_s=busy + plan.tail_s,
    )


def compute_from(
    measured_s: float,
    plan: Plan,
    lag: float,
    *,
    micro_batches: int = 1,
    input_s: float = 0.0,
    hand_s: float = 0.0,
) -> float:
    """Return the compute time of one micro-batch with which a step takes `measured_s` seconds.

    The time of a step is piecewise linear and increasing in it, so this inverts `step` by regula
    falsi in the manner of the Illinois rule: the value at the end that stays is halved, so that both
    ends converge.
    """

    def beyond(compute_s: float) -> float:
        taken = step(
            compute_s, plan, lag, micro_batches=micro_batches, input_s=input_s, hand_s=hand_s
        )
        return taken.total_s - measured_s

    low, high = 0.0, measured_s / micro_batches
    middle = high
    under, over = beyond(low), beyond(high)
    if under >= 0.0 or over <= 0.0:
        return low if under >= 0.0 else high
    for _ in range(60):
        middle = (low * over - high * under) / (over - under)
        excess = beyond(middle)
        if abs(excess) <= EXACT * measured_s:
            return middle
        if excess > 0.0:
            high, over, under = middle, excess, 0.5 * under
        else:
            low, under, over = middle, excess, 0.5 * over
    return middle
