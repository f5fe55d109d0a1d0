"""The cost of a study's cluster: rented nodes by the hour, other GPUs by the GPU-hour.

The nodes of a pool cost from the request until they are returned; a node with a price of its own
costs for the whole study, whether it is up or not; GPUs without a price of their own cost the
study's price of a GPU-hour while they are offered.
"""

from typing import Any

from studies.simulation.run import Run

HOUR = 3600.0


def bill(run: Run, *, price_gpu_hour: float, gpu_seconds_offered: float) -> dict[str, Any]:
    """Return the cost by kind; `total` is the sum."""
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
