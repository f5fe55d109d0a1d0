"""Attained service: the GPU time that a job has used, in tiers of 1, 4, 16, ... GPU-hours.

A discipline that prefers jobs with less attained service compares tiers instead of seconds, so that
jobs of one tier run one after the other instead of preempting each other all the time. Tiresias
(NSDI 2019) introduced this as discretised two-dimensional least attained service.
"""

_FIRST_GPU_S = 3_600.0
TIERS_MAX = 12


def service_tier(gpu_s: float) -> int:
    """The tier of a job that has used `gpu_s` GPU-seconds; 0 is the first."""
    tier, limit = 0, _FIRST_GPU_S
    while gpu_s >= limit and tier < TIERS_MAX:
        tier, limit = tier + 1, limit * 4
    return tier


def gpu_s_at(tier: int) -> float:
    """The GPU-seconds at which a job enters this tier."""
    return 0.0 if tier == 0 else _FIRST_GPU_S * 4 ** (tier - 1)


def next_tier_at(tier: int, *, had_gpu_s: float, gpus: float, at: float) -> float | None:
    """When a gang with `had_gpu_s` GPU-seconds at the time `at` enters the next tier.

    Return None if it never does.
    """
    if not gpus or tier >= TIERS_MAX:
        return None
    return at + max(0.0, gpu_s_at(tier + 1) - had_gpu_s) / gpus
