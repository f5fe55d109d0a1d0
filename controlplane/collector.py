"""How often Python looks for cycles among what is kept in memory.

Values of the model never form cycles, and there may be hundreds of thousands of them. As Python
comes, it looks through the young objects after every 700 new ones and through all of them again and
again, which is a tenth to a sixth of the time of a busy engine.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

# After how many new objects the young ones are looked through; of how many such rounds every one
# takes in the middle-aged, and of how many of those every one takes in all. What libraries leave
# behind in cycles meanwhile is some megabytes.
SELDOM = (200_000, 20, 100)


@contextmanager
def collecting_seldom() -> Iterator[None]:
    """For a process or a study that keeps a world: cycles are looked for, but not all the time."""
    before = gc.get_threshold()
    gc.set_threshold(*SELDOM)
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def collector_at_rest() -> Iterator[None]:
    """For work that makes no cycles at all, and has an end."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
