"""Free devices over time, shares and other resources included: the general timeline of backfill.

An instant is a time at which something changes: a running gang is planned to end, or a reservation starts or ends. For
each instant there is a copy of the free devices, made as far into the future as a search goes and kept while reservations
are added. `bitset_timeline.py` answers the same questions faster for whole devices.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import NamedTuple

from controlplane.scheduling.gang import Gang
from controlplane.scheduling.placement.allocation import allocate_available
from controlplane.scheduling.placement.fit import Fit, fit, has_room
from controlplane.scheduling.snapshot import Snapshot
from controlplane.state.devices import FreeDevices, mask_of

Leaves = Callable[[FreeDevices, str], None]


class Reservation(NamedTuple):
    """A place that is reserved from one time to another."""

    starts_at: float
    ends_at: float
    fit: Fit
    # The devices by node, if they are whole devices.
    masks: tuple[tuple[int, int], ...]


class Timeline:
    def __init__(
        self, snapshot: Snapshot, ends: Sequence[tuple[float, str]], leaves: Leaves
    ) -> None:
        self._snapshot = snapshot
        self._ends = ends
        self._leaves = leaves
        self.reservations: list[Reservation] = []
        now = snapshot.now
        self.times = sorted({now, *(max(at, now) for at, _ in ends)})
        self._views: list[FreeDevices] = []
        # As far as copies were made: free devices without reservations, and how many gangs have ended.
        self._base = snapshot.free.copy()
        self._left = 0

    def add(self, starts_at: float, ends_at: float, fit: Fit) -> None:
        """Reserve a place from `starts_at` to `ends_at`."""
        self._instant(starts_at)
        self._instant(ends_at)
        reserved = Reservation(starts_at, ends_at, fit, masks_of(self._snapshot, fit))
        self.reservations.append(reserved)
        first, last = bisect_left(self.times, starts_at), bisect_left(self.times, ends_at)
        for view in self._views[first:last]:
            take_away(self._snapshot, view, reserved)

    def _instant(self, at: float) -> None:
        """Insert an instant, unless it is there."""
        index = bisect_left(self.times, at)
        if index < len(self.times) and self.times[index] == at:
            return
        self.times.insert(index, at)
        if index < len(self._views):
            self._views.insert(index, self._views[index - 1].copy())

    def view(self, index: int) -> FreeDevices:
        """What is free from this instant on, until the next."""
        while index >= len(self._views):
            self._extend()
        return self._views[index]

    def _extend(self) -> None:
        at, ends = self.times[len(self._views)], self._ends
        while self._left < len(ends) and ends[self._left][0] <= at:
            self._leaves(self._base, ends[self._left][1])
            self._left += 1
        view = self._base.copy()
        for reserved in self.reservations:
            if reserved.starts_at <= at < reserved.ends_at:
                take_away(self._snapshot, view, reserved)
        self._views.append(view)

    def within(self, index: int, until: float) -> FreeDevices:
        """What is free at an instant and stays free until a time.

        Running gangs only release devices, so this is what is free at first without what is reserved meanwhile.
        """
        at, view, copied = self.times[index], self.view(index), False
        for reserved in self.reservations:
            if at < reserved.starts_at < until:
                if not copied:
                    view, copied = view.copy(), True
                take_away(self._snapshot, view, reserved)
        return view

    def earliest(
        self,
        gang: Gang,
        flavor: str,
        runs_s: float,
        first: int,
        allows: Callable[[float], bool] | None = None,
    ) -> tuple[float, Fit] | None:
        """The first instant from index `first` on at which the gang can start, and where; None if there is none.

        `allows` returns whether quotas admit the gang from an instant until the next.
        """
        for index in range(first, len(self.times)):
            at = self.times[index]
            last = max(index + 1, bisect_left(self.times, at + runs_s))
            if allows is not None and not all(map(allows, self.times[index:last])):
                continue
            if has_room(self.view(index), gang):
                place = fit(self._snapshot.cluster, self.within(index, at + runs_s), gang, flavor)
                if place is not None:
                    return at, place
        return None

    def index(self, at: float) -> int:
        """The last instant that is not after this time."""
        return max(0, bisect_right(self.times, at) - 1)


def masks_of(snapshot: Snapshot, fit: Fit) -> tuple[tuple[int, int], ...]:
    """The devices of a place by node; empty if it has shares of devices."""
    if fit.shares:
        return ()
    nodes, masks = snapshot.cluster.nodes, dict[int, int]()
    for slot in fit.placement:
        if slot.devices:
            ordinal = nodes[slot.node].ordinal
            masks[ordinal] = masks.get(ordinal, 0) | mask_of(slot.devices)
    return tuple(masks.items())


def take_away(snapshot: Snapshot, view: FreeDevices, reserved: Reservation) -> None:
    """Allocate a place in `view`, as far as it is free there."""
    if reserved.fit.shares or reserved.fit.amounts:
        allocate_available(snapshot.cluster, view, reserved.fit)
        return
    for ordinal, mask in reserved.masks:
        there = mask & view.masks[ordinal]
        if there:
            view.allocate(ordinal, there)
