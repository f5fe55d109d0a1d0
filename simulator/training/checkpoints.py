"""Checkpoints: what writing them costs, how often to, and what a run loses to interruptions."""

from math import exp, sqrt
from typing import NamedTuple

# Half-precision weights, single-precision master weights, and Adam's two moments.
BYTES_PER_PARAM = 14.0


class Checkpointing(NamedTuple):
    """Every `interval_s` of work, at a pause of `write_s`; a restart takes `restart_s`."""

    interval_s: float
    write_s: float = 0.0
    restart_s: float = 0.0


def write_s(params: float, writers: int, writer_gbs: float, *, asynchronous: bool = False) -> float:
    """The pause for one checkpoint; written asynchronously it is only the copy to host memory."""
    size = params * BYTES_PER_PARAM / max(1, writers)
    return size / ((20.0 if asynchronous else writer_gbs) * 1e9)


def best_interval_s(pause_s: float, mtbf_s: float) -> float:
    """Daly's first-order optimum, which is Young's less the pause."""
    return max(pause_s, sqrt(2.0 * pause_s * mtbf_s) - pause_s) if pause_s > 0 else mtbf_s


def expected_s(work_s: float, how: Checkpointing, mtbf_s: float) -> float:
    """How long a run takes in the mean, with interruptions at random, during restarts too."""
    segments = work_s / how.interval_s
    restart = exp(how.restart_s / mtbf_s)
    return mtbf_s * restart * (exp((how.interval_s + how.write_s) / mtbf_s) - 1.0) * segments


def kept_s(progress_s: float, how: Checkpointing | None) -> float:
    """The work that survives an interruption at this progress: up to the last whole checkpoint."""
    if how is None or how.interval_s <= 0.0:
        return 0.0
    return progress_s // how.interval_s * how.interval_s


def pause_share(how: Checkpointing | None) -> float:
    """How much longer a run takes for its checkpoints alone."""
    return how.write_s / how.interval_s if how is not None and how.interval_s > 0.0 else 0.0
