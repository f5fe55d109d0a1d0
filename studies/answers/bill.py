"""What a study's cluster cost: rented nodes by the hour, the rest by the GPU-hour.

A pool's nodes are paid from when they are asked for until they are given back; a node with a price
of its own for the whole study, whether it is up or not; GPUs without a price of their own at the
study's price of a GPU-hour, while they are offered.
"""

from typing import Any

from studies.run import Run

HOUR = 3600.0


def bill(run: Run, *, price_gpu_hour: float, gpu_seconds_offered: float) -> dict[str, Any]:
    """By what it was spent for; `total` is all of it."""
    model, spanned_s = run.cluster.model, run.ended_at - float(run.trace.submit[0])
    pooled = {pool.rack for pool in model.pools}
    priced = [
        (node.gpus, node.hardware.price_h)
        for node in model.nodes
        if node.rack not in pooled and node.hardware is not None and node.hardware.price_h > 0.0
    ]
    nodes = sum(price for _, price in priced) * spanned_s / HOUR
    priced_gpu_s = sum(gpus for gpus, _ in priced) * spanned_s
    others_gpu_s = max(0.0, gpu_seconds_offered - priced_gpu_s - sum(run.pooled_gpu_s.values()))
    by_the_gpu = others_gpu_s / HOUR * price_gpu_hour
    pools = {rack: round(cost, 2) for rack, cost in sorted(run.spent.items())}
    return {
        "gpu_hours": round(by_the_gpu, 2),
        "nodes": round(nodes, 2),
        "pools": pools,
        "total": round(by_the_gpu + nodes + sum(run.spent.values()), 2),
    }
