"""What will be free from each instant on at which that changes, by estimates; parts of devices, too.

Views are worked out as far into the future as somebody looks, and kept while plans are added.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import NamedTuple

from controlplane.devices import FreeDevices, mask_of
from controlplane.scheduling.fitting import Fit, fit, has_room
from controlplane.scheduling.gangs import Gang
from controlplane.scheduling.snapshot import Snapshot
from controlplane.scheduling.taking import hold_what_is_there

Leaves = Callable[[FreeDevices, str], None]


class Held(NamedTuple):
    """A place that is taken from one time to another."""

    starts_at: float
    ends_at: float
    fit: Fit
    # The devices by node, where they are whole ones.
    masks: tuple[tuple[int, int], ...]


class Timeline:
    def __init__(
        self, snapshot: Snapshot, ends: Sequence[tuple[float, str]], leaves: Leaves
    ) -> None:
        self._snapshot = snapshot
        self._ends = ends
        self._leaves = leaves
        self.held: list[Held] = []
        now = snapshot.now
        self.times = sorted({now, *(max(at, now) for at, _ in ends)})
        self._views: list[FreeDevices] = []
        # As far as views were worked out: what those leave who run, and how many of them have left.
        self._base = snapshot.free.copy()
        self._left = 0

    def add(self, starts_at: float, ends_at: float, fit: Fit) -> None:
        """From here on this place is taken for this time."""
        self._instant(starts_at)
        self._instant(ends_at)
        held = Held(starts_at, ends_at, fit, masks_of(self._snapshot, fit))
        self.held.append(held)
        first, last = bisect_left(self.times, starts_at), bisect_left(self.times, ends_at)
        for view in self._views[first:last]:
            take_away(self._snapshot, view, held)

    def _instant(self, at: float) -> None:
        """One more time at which something changes."""
        index = bisect_left(self.times, at)
        if index < len(self.times) and self.times[index] == at:
            return
        self.times.insert(index, at)
        if index < len(self._views):
            self._views.insert(index, self._views[index - 1].copy())

    def view(self, index: int) -> FreeDevices:
        """What is free from this instant on, until the next."""
        while index >= len(self._views):
            self._look_further()
        return self._views[index]

    def _look_further(self) -> None:
        at, ends = self.times[len(self._views)], self._ends
        while self._left < len(ends) and ends[self._left][0] <= at:
            self._leaves(self._base, ends[self._left][1])
            self._left += 1
        view = self._base.copy()
        for held in self.held:
            if held.starts_at <= at < held.ends_at:
                take_away(self._snapshot, view, held)
        self._views.append(view)

    def within(self, index: int, until: float) -> FreeDevices:
        """What is free from this instant on and stays free until a time.

        Who runs only ever leaves, so it is what is free at first without what is taken meanwhile.
        """
        at, view, copied = self.times[index], self.view(index), False
        for held in self.held:
            if at < held.starts_at < until:
                if not copied:
                    view, copied = view.copy(), True
                take_away(self._snapshot, view, held)
        return view

    def earliest(
        self,
        gang: Gang,
        flavor: str,
        runs_s: float,
        first: int,
        allows: Callable[[float], bool] | None = None,
    ) -> tuple[float, Fit] | None:
        """The first instant from this one on at which the gang can start, and where.

        `allows` says of an instant whether quotas let it run from then on until the next.
        """
        for index in range(first, len(self.times)):
            at = self.times[index]
            last = max(index + 1, bisect_left(self.times, at + runs_s))
            if allows is not None and not all(map(allows, self.times[index:last])):
                continue
            if has_room(self.view(index), gang):
                found = fit(self._snapshot.world, self.within(index, at + runs_s), gang, flavor)
                if found is not None:
                    return at, found
        return None

    def index(self, at: float) -> int:
        """The last instant that is not after this time."""
        return max(0, bisect_right(self.times, at) - 1)


def masks_of(snapshot: Snapshot, fit: Fit) -> tuple[tuple[int, int], ...]:
    """The devices of a place by node; nothing if it has parts of devices."""
    if fit.shares:
        return ()
    nodes, masks = snapshot.world.nodes, dict[int, int]()
    for slot in fit.placement:
        if slot.devices:
            ordinal = nodes[slot.node].ordinal
            masks[ordinal] = masks.get(ordinal, 0) | mask_of(slot.devices)
    return tuple(masks.items())


def take_away(snapshot: Snapshot, view: FreeDevices, held: Held) -> None:
    """Takes a place in a view, as far as it is free there."""
    if held.fit.shares or held.fit.amounts:
        hold_what_is_there(snapshot.world, view, held.fit)
        return
    for ordinal, mask in held.masks:
        there = mask & view.masks[ordinal]
        if there:
            view.hold(ordinal, there)
