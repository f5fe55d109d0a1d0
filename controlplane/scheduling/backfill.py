"""Planned starts: who waits gets a time and a place, and whoever goes past must not be in the way.

Time is told by the estimates: a running gang is expected to end when its estimate has passed, and one
that runs longer to end at any moment. `Planner` keeps what is reserved; EASY reserves for the first
blocked gang of a line, conservative back-fill for everyone who waits, up to a number.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from controlplane.devices import FreeDevices, lowest, mask_of
from controlplane.model import Slot
from controlplane.scheduling.fitting import Fit, fit, has_room
from controlplane.scheduling.gangs import Gang
from controlplane.scheduling.snapshot import Snapshot


class Planned(NamedTuple):
    """A start that has been promised for a time and a place."""

    job: str
    starts_at: float
    ends_at: float
    fit: Fit


class Planner:
    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self.planned: list[Planned] = []
        # What is free now and stays free beside everything planned.
        self._clear: FreeDevices | None = None
        # Who starts in this very pass, and where.
        self._starting: dict[str, Gang] = {}
        self._places: dict[str, Fit] = {}

    def runs_s(self, gang: Gang) -> float:
        said = gang.expected_s
        return self._snapshot.world.policy.estimate_s_default if said is None else said

    # -- may it go ahead? ----------------------------------------------------------------------

    def fit_now(self, gang: Gang, flavor: str) -> Fit | None:
        """A place where the gang can start now without delaying anyone's planned start."""
        snapshot = self._snapshot
        ends_at = snapshot.now + self.runs_s(gang)
        view = snapshot.free
        if any(planned.starts_at < ends_at for planned in self.planned):
            concerned = [p for p in self.planned if p.starts_at < ends_at]
            if len(concerned) == len(self.planned):
                view = self.clear
            else:
                view = snapshot.free.copy()
                for planned in concerned:
                    _take_away(snapshot, view, planned.fit)
        return fit(snapshot.world, view, gang, flavor) if has_room(view, gang) else None

    @property
    def clear(self) -> FreeDevices:
        if self._clear is None:
            self._clear = self._snapshot.free.copy()
            for planned in self.planned:
                _take_away(self._snapshot, self._clear, planned.fit)
        return self._clear

    def took(self, gang: Gang, fit: Fit) -> None:
        """Somebody starts there now."""
        self._starting[gang.id] = gang
        self._places[gang.id] = fit
        if self._clear is not None:
            self._snapshot.hold(self._clear, fit, what_is_there=True)

    # -- when, then? ---------------------------------------------------------------------------

    def plan(self, gang: Gang, flavor: str) -> Planned | None:
        """Reserves the earliest start there is, or None if the gang cannot start by waiting."""
        earliest = self._among_plans if self.planned else self._after_the_running
        found = earliest(gang, flavor, self.runs_s(gang))
        if found is not None:
            self.planned.append(found)
            self._clear = None
        return found

    def _after_the_running(self, gang: Gang, flavor: str, runs_s: float) -> Planned | None:
        """With nobody planned before it: when enough of those who run have ended.

        Who ends at the same instant leaves at the same instant, so of all places that are free then
        the one is taken that leaves most beside it.
        """
        snapshot = self._snapshot
        world, now = snapshot.world, snapshot.now
        ends, view = self._ends(), snapshot.free.copy()
        enough = self._enough_by_count(gang, view.total, ends)
        if enough is None:
            return None
        done = 0
        while True:
            at = now if not enough else max(ends[enough - 1][0], now)
            while enough < len(ends) and ends[enough][0] <= at:
                enough += 1
            for _, job_id in ends[done:enough]:
                self._leaves(view, job_id)
            done = enough
            found = fit(world, view, gang, flavor) if has_room(view, gang) else None
            if found is not None:
                found = _late_devices(snapshot, found, view)
                return Planned(gang.id, at, at + runs_s, found)
            if enough == len(ends):
                return None
            enough += 1

    def _enough_by_count(
        self, gang: Gang, free: int, ends: Sequence[tuple[float, str]]
    ) -> int | None:
        """How many must have ended before there are enough devices, wherever they are."""
        snapshot = self._snapshot
        for index, (_, job_id) in enumerate(ends):
            if free >= gang.gpus:
                return index
            free += snapshot.gang(job_id).gpus
        return len(ends) if free >= gang.gpus else None

    def _among_plans(self, gang: Gang, flavor: str, runs_s: float) -> Planned | None:
        """Between, beside and after what is planned already."""
        times, views = self._views()
        for first, at in enumerate(times):
            view = views[first]
            if not has_room(view, gang):
                continue
            for other in views[first + 1 : bisect_left(times, at + runs_s)]:
                view = _both(view, other)
            found = fit(self._snapshot.world, view, gang, flavor)
            if found is not None:
                return Planned(gang.id, at, at + runs_s, found)
        return None

    def _views(self) -> tuple[list[float], list[FreeDevices]]:
        """What is free from each instant at which that changes."""
        snapshot = self._snapshot
        ends, done = self._ends(), 0
        instants = {snapshot.now, *(max(at, snapshot.now) for at, _ in ends)}
        for planned in self.planned:
            instants |= {planned.starts_at, planned.ends_at}
        times = sorted(instants)
        views, view = [], snapshot.free.copy()
        for at in times:
            while done < len(ends) and ends[done][0] <= at:
                self._leaves(view, ends[done][1])
                done += 1
            here = view.copy()
            for planned in self.planned:
                if planned.starts_at <= at < planned.ends_at:
                    _take_away(snapshot, here, planned.fit)
            views.append(here)
        return times, views

    def _ends(self) -> list[tuple[float, str]]:
        """Who runs, by when each is expected to end."""
        running = self._snapshot.world.endings
        if not self._starting:
            return running
        now = self._snapshot.now
        return sorted([*running, *((now + self.runs_s(g), g.id) for g in self._starting.values())])

    def _leaves(self, view: FreeDevices, job_id: str) -> None:
        """In this view the job has ended."""
        snapshot = self._snapshot
        place = self._places.get(job_id)
        if place is not None:
            snapshot.give_back_fit(view, place)
            return
        attempt = snapshot.world.jobs[job_id].attempt
        assert attempt is not None
        snapshot.give_back(view, attempt)


def _late_devices(snapshot: Snapshot, found: Fit, view: FreeDevices) -> Fit:
    """The same nodes, but of their devices rather those that are not free before.

    So what is free now and not needed then is left to whoever can start now.
    """
    if found.shares:
        return found
    nodes, free, taken, slots = snapshot.world.nodes, snapshot.free, dict[int, int](), []
    for slot in found.placement:
        ordinal = nodes[slot.node].ordinal
        left = view.masks[ordinal] & ~taken.get(ordinal, 0)
        late = left & ~free.masks[ordinal]
        wanted = len(slot.devices)
        devices = lowest(late, min(wanted, late.bit_count()))
        if len(devices) < wanted:
            devices += lowest(left & ~late, wanted - len(devices))
        taken[ordinal] = taken.get(ordinal, 0) | mask_of(devices)
        slots.append(Slot(slot.node, tuple(sorted(devices))))
    return found._replace(placement=tuple(slots))


def _take_away(snapshot: Snapshot, view: FreeDevices, found: Fit) -> None:
    nodes = snapshot.world.nodes
    for slot in found.placement:
        ordinal = nodes[slot.node].ordinal
        view.hold(ordinal, mask_of(slot.devices) & view.masks[ordinal])


def _both(one: FreeDevices, other: FreeDevices) -> FreeDevices:
    """What is free in both."""
    view = one.copy()
    for ordinal, mask in enumerate(one.masks):
        held = mask & ~other.masks[ordinal]
        if held:
            view.hold(ordinal, held)
    return view
