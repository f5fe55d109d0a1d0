"""Reservations of backfill: planned starts of blocked gangs, which gangs behind them must not delay.

EASY backfill reserves a start for the first blocked gang of a queue, conservative backfill for every waiting gang up to
the policy's limit (Mu'alem and Feitelson, 2001). A reservation is the earliest time, and a place, at which the gang fits
once enough running gangs have ended. When they end is estimated (`state/run_lengths.py`): a running gang ends when its
estimate has passed, and if it runs longer, when twice, four times, ... its estimate has passed.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf
from typing import NamedTuple

from controlplane.model.cluster import Slot
from controlplane.model.phases import WITH_DEVICES
from controlplane.scheduling.backfill.bitset_timeline import BitsetTimeline
from controlplane.scheduling.backfill.timeline import Reservation, Timeline, masks_of, take_away
from controlplane.scheduling.gang import Gang
from controlplane.scheduling.placement.fit import Fit, fit, has_room
from controlplane.scheduling.placement.vector_packing import is_constrained
from controlplane.scheduling.quota.projection import QuotaAhead, Use, is_limited
from controlplane.scheduling.snapshot import Snapshot
from controlplane.state.devices import FreeDevices, FreeDevicesView, lowest, mask_of
from controlplane.state.queue_order import Shape
from controlplane.state.run_lengths import ends_when_overdue


class Planned(NamedTuple):
    """A reservation: a start at a time and a place."""

    job: str
    starts_at: float
    ends_at: float
    fit: Fit


class Planner:
    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self.planned: list[Planned] = []
        # Reservations by start; and what is free now and stays free when the first N of them get their
        # places, computed on demand.
        self._by_start: list[tuple[float, int, Reservation]] = []
        self._free_after_plans: list[FreeDevices | None] = [None]
        # The gangs that start in this pass, and where.
        self._starting: dict[str, tuple[Gang, Fit]] = {}
        self._timeline: Timeline | BitsetTimeline | None = None
        self._runs_s: dict[str, float] = {}
        self._running: Sequence[tuple[float, str]] | None = None
        # Queue (if it has a quota), shape and flavour -> planned length and start of the last such reservation.
        self._not_before: dict[tuple[str, Shape, str], tuple[float, float]] = {}

    def runs_s(self, gang: Gang) -> float:
        """How long the gang is planned to run."""
        known = self._runs_s.get(gang.id)
        if known is None:
            job = self._snapshot.job(gang.id)
            known = self._runs_s[gang.id] = self._snapshot.cluster.estimate(job).planned_s
        return known

    # -- starts now that delay no reservation --------------------------------------------------

    def fit_now(self, gang: Gang, flavor: str) -> Fit | None:
        """A place where the gang can start now without delaying a planned start; None if there is none."""
        ends_at = self._snapshot.now + self.runs_s(gang)
        view = self.until(ends_at)
        return fit(self._snapshot.cluster, view, gang, flavor) if has_room(view, gang) else None

    def until(self, ends_at: float) -> FreeDevices:
        """What is free now and stays free until `ends_at`."""
        return self.free_after_plans(bisect_left(self._by_start, (ends_at, -1)))

    def free_after_plans(self, count: int) -> FreeDevices:
        """What is free now and stays free when the first `count` planned starts get their places."""
        if count == 0:
            return self._snapshot.free
        view = self._free_after_plans[count]
        if view is None:
            known = count - 1
            while known and self._free_after_plans[known] is None:
                known -= 1
            view = self._free_after_plans[count] = (
                self._free_after_plans[known] or self._snapshot.free
            ).copy()
            for _, _, reserved in self._by_start[known:count]:
                take_away(self._snapshot, view, reserved)
        return view

    def must_end_by(self, fits: Callable[[FreeDevicesView], bool]) -> float:
        """The time by which a start now, with a place that `fits` accepts, must end to delay no reservation.

        inf if it may run for ever, -inf if it cannot start at all. The longer a run, the more reservations
        it must leave alone, so the time is computed by bisection.
        """
        count = len(self._by_start)
        if fits(self.free_after_plans(count)):
            return inf
        low, high = -1, count
        while high - low > 1:
            middle = (low + high) // 2
            if fits(self.free_after_plans(middle)):
                low = middle
            else:
                high = middle
        return -inf if low < 0 else self._by_start[low][0]

    def add_start(self, gang: Gang, fit: Fit) -> None:
        """A gang starts at `fit` now."""
        snapshot = self._snapshot
        self._starting[gang.id] = gang, fit
        if gang.topology is not None and gang.topology.exclusive:
            # The whole domain is closed, not only the gang's devices.
            self._free_after_plans = [None] * len(self._free_after_plans)
            self._timeline = None
            return
        if len(self._free_after_plans) > 1:
            reserved = Reservation(snapshot.now, inf, fit, masks_of(snapshot, fit))
            for view in self._free_after_plans:
                if view is not None:
                    take_away(snapshot, view, reserved)
        if self._timeline is not None:
            self._timeline.add(snapshot.now, snapshot.now + self.runs_s(gang), fit)

    # -- reservations --------------------------------------------------------------------------

    def plan(self, gang: Gang, flavors: Iterable[str]) -> Planned | None:
        """Reserve the earliest start; None if no end of a running gang lets this gang start."""
        limited = is_limited(self._snapshot, gang.queue)
        earliest = self._among_plans if self.planned or limited else self._after_the_running
        starts = [earliest(gang, flavor, self.runs_s(gang)) for flavor in flavors]
        planned = min((p for p in starts if p is not None), key=lambda p: p.starts_at, default=None)
        if planned is not None:
            self._promise(planned)
        return planned

    def _promise(self, planned: Planned) -> None:
        self.planned.append(planned)
        reserved = Reservation(
            planned.starts_at, planned.ends_at, planned.fit, masks_of(self._snapshot, planned.fit)
        )
        entry = (planned.starts_at, len(self.planned), reserved)
        index = bisect_left(self._by_start, entry)
        self._by_start.insert(index, entry)
        self._free_after_plans.insert(index + 1, None)
        for view in self._free_after_plans[index + 2 :]:
            if view is not None:
                take_away(self._snapshot, view, reserved)
        if self._timeline is not None:
            self._timeline.add(planned.starts_at, planned.ends_at, planned.fit)

    def _after_the_running(self, gang: Gang, flavor: str, runs_s: float) -> Planned | None:
        """Without earlier reservations: the time at which enough running gangs have ended.

        Gangs that end at the same instant release their devices together, and of all places that are free then
        the one is taken that leaves most devices free before.
        """
        snapshot = self._snapshot
        cluster, now = snapshot.cluster, snapshot.now
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
            place = fit(cluster, view, gang, flavor) if has_room(view, gang) else None
            if place is not None:
                place = _late_devices(snapshot, place, view)
                return Planned(gang.id, at, at + runs_s, place)
            if enough == len(ends):
                return None
            enough += 1

    def _enough_by_count(
        self, gang: Gang, free: int, ends: Sequence[tuple[float, str]]
    ) -> int | None:
        """How many running gangs must have ended before enough devices are free, wherever they are."""
        snapshot = self._snapshot
        for index, (_, job_id) in enumerate(ends):
            if free >= gang.gpus:
                return index
            free += _devices_max(snapshot.gang(job_id))
        return len(ends) if free >= gang.gpus else None

    def _among_plans(self, gang: Gang, flavor: str, runs_s: float) -> Planned | None:
        """The earliest start among the reservations there are."""
        timeline = self._timeline_for(gang)
        ahead = self._quota_ahead(gang, flavor)
        key, first = (gang.queue if ahead else "", gang.shape, flavor), 0
        known_s, known_at = self._not_before.get(key, (inf, 0.0))
        if known_s <= runs_s:
            # An equal gang got no earlier start, because of reservations that are still there.
            first = timeline.index(known_at)
        # Usage changes only when a gang starts or ends, and these are instants of the timeline.
        allows = None if ahead is None else ahead.allows
        start = timeline.earliest(gang, flavor, runs_s, first, allows)
        if start is None:
            return None
        at, place = start
        self._not_before[key] = runs_s, at
        if not self.planned:
            view = timeline.view(timeline.index(at))
            place = _late_devices(self._snapshot, place, view)
        return Planned(gang.id, at, at + runs_s, place)

    def _quota_ahead(self, gang: Gang, flavor: str) -> QuotaAhead | None:
        """The projection of quotas over time, if the gang's queue has any."""
        if not is_limited(self._snapshot, gang.queue):
            return None
        return QuotaAhead(self._snapshot, gang, flavor, self._uses())

    def _uses(self) -> Iterator[Use]:
        """Which gangs use quota, and when: running ones, those that start in this pass, and planned ones."""
        snapshot, now = self._snapshot, self._snapshot.now
        for ends_at, job_id in self._running_ends():
            attempt = snapshot.cluster.jobs[job_id].attempt
            assert attempt is not None
            yield Use(snapshot.gang(job_id), now, ends_at, attempt.flavor, runs=True)
        for gang, place in self._starting.values():
            yield Use(gang, now, now + self.runs_s(gang), place.flavor)
        for planned in self.planned:
            gang = snapshot.gang(planned.job)
            yield Use(gang, planned.starts_at, planned.ends_at, planned.fit.flavor)

    def has_quota_until_done(self, gang: Gang, flavor: str, beside: Sequence[Gang] = ()) -> bool:
        """Whether quotas admit a start now, in addition to `beside`, without delaying a planned start."""
        if not self.planned or not is_limited(self._snapshot, gang.queue):
            return True
        now = self._snapshot.now
        others = [Use(other, now, now + self.runs_s(other), "") for other in beside]
        ahead = QuotaAhead(self._snapshot, gang, flavor, [*self._uses(), *others])
        return ahead.allows_until(now + self.runs_s(gang))

    def _timeline_for(self, gang: Gang) -> Timeline | BitsetTimeline:
        """A bitset timeline, or the general one if shares or other resources are involved."""
        more = bool(gang.parts or gang.pins or self._snapshot.free.shared)
        more = more or is_constrained(self._snapshot.free, gang)
        more = more or any(planned.fit.shares for planned in self.planned)
        timeline = self._timeline
        if timeline is None or (more and isinstance(timeline, BitsetTimeline)):
            ends, snapshot = self._ends(), self._snapshot
            if more:
                timeline = Timeline(snapshot, ends, self._leaves)
            else:
                timeline = BitsetTimeline(snapshot, ends, self._devices_of)
            for planned in self.planned:
                timeline.add(planned.starts_at, planned.ends_at, planned.fit)
            self._timeline = timeline
        return timeline

    def _devices_of(self, job_id: str) -> Sequence[tuple[int, int]]:
        """The devices that a job releases when it ends, by node."""
        snapshot = self._snapshot
        starting = self._starting.get(job_id)
        if starting is not None:
            return masks_of(snapshot, starting[1])
        attempt = snapshot.cluster.jobs[job_id].attempt
        assert attempt is not None
        nodes, devices = snapshot.cluster.nodes, []
        for slot, rank in zip(attempt.placement, attempt.ranks, strict=True):
            if slot.devices and rank.state in WITH_DEVICES:
                node = nodes[slot.node]
                devices.append((node.ordinal, mask_of(slot.devices) & node.devices))
        return devices

    def _ends(self) -> Sequence[tuple[float, str]]:
        """The gangs that run or start in this pass, by planned end."""
        running = self._running_ends()
        if not self._starting:
            return running
        now, ends = self._snapshot.now, list(running)
        for gang, _ in self._starting.values():
            insort(ends, (now + self.runs_s(gang), gang.id))
        return ends

    def _running_ends(self) -> Sequence[tuple[float, str]]:
        """The gangs that ran before this pass, by planned end; overdue gangs have a later end."""
        if self._running is None:
            cluster, now = self._snapshot.cluster, self._snapshot.now
            self._running = running = cluster.planned_ends
            overdue = bisect_left(running, (now, _LAST_OF_ALL))
            if overdue:
                ends = list(running[overdue:])
                for planned, job_id in running[:overdue]:
                    insort(ends, (self._later_end(planned, job_id), job_id))
                self._running = ends
        return self._running

    def _later_end(self, planned: float, job_id: str) -> float:
        cluster, now = self._snapshot.cluster, self._snapshot.now
        job = cluster.jobs[job_id]
        assert job.attempt is not None
        if job_id in cluster.stopping:
            return now
        return ends_when_overdue(job, planned - job.attempt.placed_at, now)

    def _leaves(self, view: FreeDevices, job_id: str) -> None:
        """Release in `view` what the job holds: it has ended."""
        snapshot = self._snapshot
        starting = self._starting.get(job_id)
        if starting is not None:
            snapshot.release_fit(view, starting[1])
            return
        snapshot.release_ranks(view, snapshot.cluster.jobs[job_id])


# Sorts behind every job id.
_LAST_OF_ALL = chr(0x10FFFF)


def _devices_max(gang: Gang) -> int:
    """How many devices the gang needs at most, shares and named devices included."""
    return gang.gpus + len(gang.parts) + sum(role.gpus or 1 for _, role in gang.pins)


def _late_devices(snapshot: Snapshot, place: Fit, view: FreeDevicesView) -> Fit:
    """The same nodes, with devices that are not free before the start as far as possible.

    That leaves the devices that are free now to gangs that can start now.
    """
    if place.shares:
        return place
    nodes, free, taken, slots = snapshot.cluster.nodes, snapshot.free, dict[int, int](), []
    for slot in place.placement:
        ordinal = nodes[slot.node].ordinal
        left = view.masks[ordinal] & ~taken.get(ordinal, 0)
        late = left & ~free.masks[ordinal]
        wanted = len(slot.devices)
        devices = lowest(late, min(wanted, late.bit_count()))
        if len(devices) < wanted:
            devices += lowest(left & ~late, wanted - len(devices))
        taken[ordinal] = taken.get(ordinal, 0) | mask_of(devices)
        slots.append(Slot(slot.node, tuple(sorted(devices))))
    return place._replace(placement=tuple(slots))
