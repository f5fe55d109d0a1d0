"""The futures of a fork on one axis of time: what happened, the control, and the one with the change.

Each future is indexed as the live log is (`studies/history`), beginning with the state at the fork,
so that the same charts show all of them.
"""

from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path

import numpy as np
from msgspec import Struct, json

from controlplane.log.replay import open_snapshot
from controlplane.model import events as e
from controlplane.ports import StateSnapshot
from studies.fork.changes import Change, commands_of, faults_with, nodes_with
from studies.fork.fork import Forked, run_branches
from studies.fork.past import Origin
from studies.fork.sentences import sentences
from studies.history.index import HistoryIndex
from studies.history.marks import MarkKind
from studies.history.views import (
    Lanes,
    Marks,
    Timeline,
    Usage,
    marks_view,
    timeline_view,
    usage_view,
)
from studies.whatif.grid import Progress

BINS = 120
MARKS_MAX = 300
BARS_MAX = 3_000
# Reading the past, running the control and the change, and comparing them.
STEPS = 4


class Future(Struct, frozen=True, kw_only=True):
    """One future of a fork: its charts from the fork to the end."""

    usage: Usage
    marks: Marks
    timeline: Timeline


class ForkResult(Struct, frozen=True, kw_only=True):
    """What a fork shows. `sentences` are the differences that matter, the most important first.

    `actual` is what really happened, as far as the log goes; `control` is the model without the
    change, and `is_exact` says whether it repeats the log event for event; `changed` is the model with
    the change.
    """

    forked: Forked
    sentences: list[str]
    is_exact: bool
    actual: Future
    control: Future
    changed: Future


class ForkQuestion(Struct, frozen=True, kw_only=True):
    """A fork to run in the background."""

    origin: Origin
    change: Change
    gpu_hour_price: float = 2.0

    def check(self) -> None:
        """Raise ForkError if the change cannot be made at the fork."""
        world = open_snapshot(self.origin.snapshot).world
        commands_of(self.change, world)
        nodes_with(self.change, world)
        faults_with(self.change, self.origin.faults, world)

    def conduct(self, folder: Path, on_progress: Callable[[Progress], None]) -> None:
        """Run the fork and write `result.json` to `folder`."""
        origin = self.origin
        on_progress(Progress(1, STEPS))
        done = iter(range(2, STEPS + 1))
        branches = run_branches(
            origin,
            self.change,
            None,
            self.gpu_hour_price,
            on_branch=lambda: on_progress(Progress(next(done), STEPS)),
        )
        result = ForkResult(
            forked=branches.forked,
            sentences=sentences(branches.forked),
            is_exact=branches.forked.error.is_exact,
            actual=future(origin, origin.real),
            control=future(origin, branches.control.events),
            changed=future(origin, branches.changed.events),
        )
        (folder / "result.json").write_bytes(json.encode(result))
        on_progress(Progress(STEPS, STEPS))


def future(origin: Origin, events: Sequence[e.Recorded]) -> Future:
    """Return the charts of `events`, which follow the state at the fork."""
    index = indexed(origin.snapshot, origin.at, events)
    begin, end = origin.at, max(origin.until, origin.at + 1e-3)
    cuts = np.linspace(begin, end, BINS + 1)
    return Future(
        usage=usage_view(index, cuts, with_queues=True),
        marks=marks_view(index, cuts, tuple(MarkKind), MARKS_MAX),
        timeline=timeline_view(
            index, begin=begin, end=end, now=end, lanes=Lanes.JOBS, limit=BARS_MAX
        ),
    )


def indexed(past: StateSnapshot, at: float, events: Sequence[e.Recorded]) -> HistoryIndex:
    """Return the history of `events` after the state in `past`, as it was at the time `at`."""
    world = open_snapshot(past).world
    index = HistoryIndex()
    index.begin(world, at)
    for _, batch in groupby(events, key=lambda recorded: recorded.at):
        together = list(batch)
        for recorded in together:
            world.apply(recorded)
        index.observe(together, world)
    return index
