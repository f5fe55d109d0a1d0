"""Attained service is told in steps, so that jobs of one step run one after the other instead of all
a little: 1, 4, 16, ... GPU-hours, as Tiresias does it.
"""

_FIRST_GPU_S = 3_600.0
STEPS_MAX = 12


def attained_step(gpu_s: float) -> int:
    step, limit = 0, _FIRST_GPU_S
    while gpu_s >= limit and step < STEPS_MAX:
        step, limit = step + 1, limit * 4
    return step


def gpu_s_at(step: int) -> float:
    """What a job has had when it comes to this step; there is nothing after the last."""
    return 0.0 if step == 0 else _FIRST_GPU_S * 4 ** (step - 1)


def next_step_at(step: int, *, had_gpu_s: float, gpus: float, at: float) -> float | None:
    """When a gang that has had so much by now comes to the next step; None if it never does."""
    if not gpus or step >= STEPS_MAX:
        return None
    return at + max(0.0, gpu_s_at(step + 1) - had_gpu_s) / gpus
