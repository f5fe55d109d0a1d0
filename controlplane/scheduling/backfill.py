"""Planned starts: who waits gets a time and a place, and whoever goes past must not be in the way.

Time is told by the estimates (`run_lengths`): a running gang is expected to end when its estimate has
passed, and one that runs longer when twice, four times, ... that long has passed. `Planner` keeps what is reserved; EASY reserves for the first
blocked gang of a line, conservative back-fill for everyone who waits, up to a number.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf
from typing import NamedTuple

from controlplane.attempt import HOLDING
from controlplane.devices import FreeDevices, lowest, mask_of
from controlplane.events import LEARNS
from controlplane.lines import Shape
from controlplane.model import Slot
from controlplane.run_lengths import ends_when_overdue
from controlplane.scheduling.asking import counts
from controlplane.scheduling.fitting import Fit, fit, has_room
from controlplane.scheduling.gangs import Gang
from controlplane.scheduling.quota_ahead import QuotaAhead, Use, is_limited
from controlplane.scheduling.snapshot import Snapshot
from controlplane.scheduling.timeline import Held, Timeline, masks_of, take_away
from controlplane.scheduling.whole_timeline import WholeTimeline


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
        # The same by when they start; and what is free now and stays free beside the first so many
        # of them, once somebody has asked.
        self._by_start: list[tuple[float, int, Held]] = []
        self._beside: list[FreeDevices | None] = [None]
        # Who starts in this very pass, and where.
        self._starting: dict[str, tuple[Gang, Fit]] = {}
        self._timeline: Timeline | WholeTimeline | None = None
        self._runs_s: dict[str, float] = {}
        self._running: list[tuple[float, str]] | None = None
        # Queue if it has a quota, shape and flavour -> how long the last of these runs, and the earliest start it got.
        self._not_before: dict[tuple[str, Shape, str], tuple[float, float]] = {}

    def runs_s(self, gang: Gang) -> float:
        """How long the gang is planned to run."""
        known = self._runs_s.get(gang.id)
        if known is None:
            job = self._snapshot.job(gang.id)
            known = self._runs_s[gang.id] = self._snapshot.world.estimate(job).planned_s
        return known

    # -- may it go ahead? ----------------------------------------------------------------------

    def fit_now(self, gang: Gang, flavor: str) -> Fit | None:
        """A place where the gang can start now without delaying anyone's planned start."""
        ends_at = self._snapshot.now + self.runs_s(gang)
        view = self.until(ends_at)
        return fit(self._snapshot.world, view, gang, flavor) if has_room(view, gang) else None

    def until(self, ends_at: float) -> FreeDevices:
        """What is free now and stays so until then."""
        return self.beside(bisect_left(self._by_start, (ends_at, -1)))

    def beside(self, count: int) -> FreeDevices:
        """What is free now and stays free beside the first so many that are planned."""
        if count == 0:
            return self._snapshot.free
        view = self._beside[count]
        if view is None:
            known = count - 1
            while known and self._beside[known] is None:
                known -= 1
            view = self._beside[count] = (self._beside[known] or self._snapshot.free).copy()
            for _, _, held in self._by_start[known:count]:
                take_away(self._snapshot, view, held)
        return view

    def must_end_by(self, fits: Callable[[FreeDevices], bool]) -> float:
        """When something that fits so must have ended that starts now, to be in nobody's way.

        Any time will do if that is inf, and none if it is -inf. The longer it runs, the more planned
        starts it must leave alone, so the time is found by halving.
        """
        count = len(self._by_start)
        if fits(self.beside(count)):
            return inf
        low, high = -1, count
        while high - low > 1:
            middle = (low + high) // 2
            if fits(self.beside(middle)):
                low = middle
            else:
                high = middle
        return -inf if low < 0 else self._by_start[low][0]

    def took(self, gang: Gang, fit: Fit) -> None:
        """Somebody starts there now."""
        snapshot = self._snapshot
        self._starting[gang.id] = gang, fit
        if gang.topology is not None and gang.topology.exclusive:
            # More is closed to others than the gang takes.
            self._beside = [None] * len(self._beside)
            self._timeline = None
            return
        if len(self._beside) > 1:
            held = Held(snapshot.now, inf, fit, masks_of(snapshot, fit))
            for view in self._beside:
                if view is not None:
                    take_away(snapshot, view, held)
        if self._timeline is not None:
            self._timeline.add(snapshot.now, snapshot.now + self.runs_s(gang), fit)

    # -- when, then? ---------------------------------------------------------------------------

    def plan(self, gang: Gang, flavors: Iterable[str]) -> Planned | None:
        """Reserves the earliest start there is, or None if the gang cannot start by waiting."""
        limited = is_limited(self._snapshot, gang.queue)
        earliest = self._among_plans if self.planned or limited else self._after_the_running
        starts = [earliest(gang, flavor, self.runs_s(gang)) for flavor in flavors]
        found = min([p for p in starts if p is not None], key=lambda p: p.starts_at, default=None)
        if found is not None:
            self._promise(found)
        return found

    def _promise(self, found: Planned) -> None:
        self.planned.append(found)
        held = Held(found.starts_at, found.ends_at, found.fit, masks_of(self._snapshot, found.fit))
        entry = (found.starts_at, len(self.planned), held)
        index = bisect_left(self._by_start, entry)
        self._by_start.insert(index, entry)
        self._beside.insert(index + 1, None)
        for view in self._beside[index + 2 :]:
            if view is not None:
                take_away(self._snapshot, view, held)
        if self._timeline is not None:
            self._timeline.add(found.starts_at, found.ends_at, found.fit)

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
            free += _devices_max(snapshot.gang(job_id))
        return len(ends) if free >= gang.gpus else None

    def _among_plans(self, gang: Gang, flavor: str, runs_s: float) -> Planned | None:
        """Between, beside and after what is planned already."""
        timeline = self._timeline_for(gang)
        ahead = self._quota_ahead(gang, flavor)
        key, first = (gang.queue if ahead else "", gang.shape, flavor), 0
        known_s, known_at = self._not_before.get(key, (inf, 0.0))
        if known_s <= runs_s:
            # What did not find room before found none because of plans that are still there.
            first = timeline.index(known_at)
        # Quotas change only when somebody starts or ends, which are instants of the timeline.
        allows = None if ahead is None else ahead.allows
        found = timeline.earliest(gang, flavor, runs_s, first, allows)
        if found is None:
            return None
        at, place = found
        self._not_before[key] = runs_s, at
        if not self.planned:
            view = timeline.view(timeline.index(at))
            place = _late_devices(self._snapshot, place, view)
        return Planned(gang.id, at, at + runs_s, place)

    def _quota_ahead(self, gang: Gang, flavor: str) -> QuotaAhead | None:
        """Quotas in the time to come, if the gang's queue has any."""
        if not is_limited(self._snapshot, gang.queue):
            return None
        return QuotaAhead(self._snapshot, gang, flavor, self._uses())

    def _uses(self) -> Iterator[Use]:
        """Who has quota and when: those who run, who start in this pass, and who are planned."""
        snapshot, now = self._snapshot, self._snapshot.now
        for ends_at, job_id in self._running_ends():
            attempt = snapshot.world.jobs[job_id].attempt
            assert attempt is not None
            yield Use(snapshot.gang(job_id), now, ends_at, attempt.flavor, runs=True)
        for gang, place in self._starting.values():
            yield Use(gang, now, now + self.runs_s(gang), place.flavor)
        for planned in self.planned:
            gang = snapshot.gang(planned.job)
            yield Use(gang, planned.starts_at, planned.ends_at, planned.fit.flavor)

    def has_quota_until_done(self, gang: Gang, flavor: str, beside: Sequence[Gang] = ()) -> bool:
        """Whether quotas let it start now, `beside` others that do, and delay no planned start."""
        if not self.planned or not is_limited(self._snapshot, gang.queue):
            return True
        now = self._snapshot.now
        others = [Use(other, now, now + self.runs_s(other), "") for other in beside]
        ahead = QuotaAhead(self._snapshot, gang, flavor, [*self._uses(), *others])
        return ahead.allows_until(now + self.runs_s(gang))

    def _timeline_for(self, gang: Gang) -> Timeline | WholeTimeline:
        """One that knows more than whole devices only where somebody has or wants more."""
        more = bool(gang.parts or gang.pins or self._snapshot.free.shared)
        more = more or counts(self._snapshot.free, gang)
        more = more or any(planned.fit.shares for planned in self.planned)
        timeline = self._timeline
        if timeline is None or (more and isinstance(timeline, WholeTimeline)):
            ends, snapshot = self._ends(), self._snapshot
            if more:
                timeline = Timeline(snapshot, ends, self._leaves)
            else:
                timeline = WholeTimeline(snapshot, ends, self._devices_of)
            for planned in self.planned:
                timeline.add(planned.starts_at, planned.ends_at, planned.fit)
            self._timeline = timeline
        return timeline

    def _devices_of(self, job_id: str) -> Sequence[tuple[int, int]]:
        """What a job leaves when it ends, by node."""
        snapshot = self._snapshot
        starting = self._starting.get(job_id)
        if starting is not None:
            return masks_of(snapshot, starting[1])
        attempt = snapshot.world.jobs[job_id].attempt
        assert attempt is not None
        nodes, found = snapshot.world.nodes, []
        for slot, rank in zip(attempt.placement, attempt.ranks, strict=True):
            if slot.devices and rank.state in HOLDING:
                node = nodes[slot.node]
                found.append((node.ordinal, mask_of(slot.devices) & node.devices))
        return found

    def _ends(self) -> list[tuple[float, str]]:
        """Who runs, by when each is expected to end."""
        running = self._running_ends()
        if not self._starting:
            return running
        now, ends = self._snapshot.now, running.copy()
        for gang, _ in self._starting.values():
            insort(ends, (now + self.runs_s(gang), gang.id))
        return ends

    def _running_ends(self) -> list[tuple[float, str]]:
        """The same of those who ran before this pass; who has outlived its estimate has a later end."""
        if self._running is None:
            world, now = self._snapshot.world, self._snapshot.now
            overdue = bisect_left(world.endings, (now, _LAST_OF_ALL))
            self._running = world.endings
            if overdue and world.rules >= LEARNS:
                self._running = world.endings[overdue:]
                for planned, job_id in world.endings[:overdue]:
                    insort(self._running, (self._later_end(planned, job_id), job_id))
        return self._running

    def _later_end(self, planned: float, job_id: str) -> float:
        world, now = self._snapshot.world, self._snapshot.now
        job = world.jobs[job_id]
        assert job.attempt is not None
        if job_id in world.stopping:
            return now
        return ends_when_overdue(job, planned - job.attempt.placed_at, now)

    def _leaves(self, view: FreeDevices, job_id: str) -> None:
        """In this view the job has ended."""
        snapshot = self._snapshot
        starting = self._starting.get(job_id)
        if starting is not None:
            snapshot.give_back_fit(view, starting[1])
            return
        snapshot.give_back(view, snapshot.world.jobs[job_id])


# Behind every job's id.
_LAST_OF_ALL = chr(0x10FFFF)


def _devices_max(gang: Gang) -> int:
    """As many devices as a gang can have, those of which it has a part and named ones counted in."""
    return gang.gpus + len(gang.parts) + sum([role.gpus or 1 for _, role in gang.pins])


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
