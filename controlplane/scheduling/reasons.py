"""Why a gang waits: typed reasons, by tier, with the numbers behind them.

Tiers go from what nobody can help to what solves itself: a gate that is shut, a quota that is used up,
a shape the cluster cannot take now, a topology, fragments, others ahead in the line.
"""

from enum import StrEnum

from msgspec import Struct


class Tier(StrEnum):
    GATE = "gate"
    QUOTA = "quota"
    SHAPE = "shape"
    TOPOLOGY = "topology"
    FRAGMENTATION = "fragmentation"
    AHEAD = "ahead_in_queue"


TIERS = {
    "gang_incomplete": Tier.GATE,
    "group_incomplete": Tier.GATE,
    "group_member_unschedulable": Tier.GATE,
    "group_exceeds_cluster": Tier.SHAPE,
    "pinned_node_absent": Tier.SHAPE,
    "pinned_node_unavailable": Tier.SHAPE,
    "pinned_devices_unavailable": Tier.SHAPE,
    "no_node_takes_work": Tier.SHAPE,
    "gpu_memory_exceeds_device": Tier.SHAPE,
    "rank_exceeds_node": Tier.SHAPE,
    "insufficient_resources": Tier.SHAPE,
    "unknown_topology_level": Tier.TOPOLOGY,
    "queue_limit": Tier.QUOTA,
    "insufficient_quota": Tier.QUOTA,
    "non_preemptible_over_quota": Tier.QUOTA,
    "fair_share": Tier.QUOTA,
    "no_preemption_candidates": Tier.QUOTA,
    "blocked_by_reserved_capacity": Tier.QUOTA,
    "insufficient_capacity": Tier.SHAPE,
    "no_matching_node": Tier.SHAPE,
    "group_incomplete_capacity": Tier.SHAPE,
    "waiting_for_victims": Tier.SHAPE,
    "topology_unsatisfied": Tier.TOPOLOGY,
    "no_exclusive_domain": Tier.TOPOLOGY,
    "fragmented": Tier.FRAGMENTATION,
    "blocked_by_head": Tier.AHEAD,
    "would_delay_planned_start": Tier.AHEAD,
    "starts_limited": Tier.AHEAD,
}


class Reason(Struct, frozen=True, kw_only=True):
    """One reason why a job is not running, with the numbers behind it.

    `by_domain` says for each domain of the topology how many ranks would fit. `helps` says what
    would let the job start. `limit` is the limit that was reached, and `until` the time at which the
    reason ends by itself.
    """

    code: str
    message: str
    tier: str = ""
    needed: int | None = None
    available: int | None = None
    by_domain: dict[str, str] = {}
    helps: str = ""
    limit: int | None = None
    until: float | None = None


def reason(
    code: str,
    message: str,
    *,
    needed: int | None = None,
    available: int | None = None,
    by_domain: dict[str, str] | None = None,
    helps: str = "",
    limit: int | None = None,
    until: float | None = None,
) -> Reason:
    return Reason(
        code=code,
        message=message,
        tier=TIERS[code].value,
        needed=needed,
        available=available,
        by_domain=by_domain or {},
        helps=helps,
        limit=limit,
        until=until,
    )
