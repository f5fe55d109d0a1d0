"""The checkpoint interval of a training job, and its cost."""

from typing import NamedTuple


class Checkpointing(NamedTuple):
    """Write a checkpoint after every `interval_s` of work, in a pause of `write_s`."""

    interval_s: float
    write_s: float = 0.0


def pause_share(how: Checkpointing | None) -> float:
    """Return the time spent on writing checkpoints, as a share of the working time."""
    return how.write_s / how.interval_s if how is not None and how.interval_s > 0.0 else 0.0
