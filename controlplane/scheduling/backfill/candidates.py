"""Backfill: start gangs behind a blocked head if that delays no planned start.

Candidates are tried in queue order, but only the first of each shape class: if it does not fit, no gang of its shape
does. Gangs that would run into a reservation are skipped without a try, since a shape class is also sorted by planned
length. Reservations are made only if some candidate has room at all.
"""

import heapq
from bisect import bisect_right
from collections.abc import Callable, Container
from math import inf

from controlplane.model.reasons import WaitReason
from controlplane.scheduling.backfill.planner import Planner
from controlplane.scheduling.explain.wait_recorder import WaitReasonRecorder
from controlplane.scheduling.gang import Gang
from controlplane.scheduling.ordering.start_limit import StartLimit
from controlplane.scheduling.placement.coscheduling import Groups
from controlplane.scheduling.placement.fit import Fit, feasible
from controlplane.scheduling.placement.vector_packing import is_constrained
from controlplane.scheduling.quota.gate import QuotaGate
from controlplane.scheduling.snapshot import Snapshot
from controlplane.state.devices import FreeDevicesView
from controlplane.state.queue_order import QueueKey, ShapeClassView

# The next candidate of a shape class: its key, its index, and the class.
Offer = tuple[QueueKey, int, ShapeClassView]
# A queue, its blocked head, and the key of that.
Waits = tuple[str, Gang, QueueKey]


class Backfill:
    """`start` starts a gang; `seen` are the gangs that were tried before their turn."""

    def __init__(
        self,
        snapshot: Snapshot,
        planner: Planner,
        gate: QuotaGate,
        groups: Callable[[], Groups],
        reasons: WaitReasonRecorder,
        start: Callable[[Gang, Fit], bool],
        seen: Container[str],
        limit: StartLimit,
    ) -> None:
        self._snapshot = snapshot
        self._planner = planner
        self._gate = gate
        self._groups = groups
        self._reasons = reasons
        self._start = start
        self._seen = seen
        self._starts_limit = limit
        # Shape class -> the number of changes when it was computed, and the time by which a run must end.
        self._limits: dict[ShapeClassView, tuple[int, float]] = {}
        # How many starts and reservations were made here: after each, what fits may be less.
        self._decided = 0
        # The queue at hand, and its gangs whose wait reason is yet to be recorded, in order.
        self._queue_index = snapshot.queue_index("")
        self._unrecorded: list[QueueKey] = []

    def run(self, waits: list[Waits]) -> None:
        records = self._reasons.records
        offers = {queue: self._offers(queue, head, place) for queue, head, place in waits}
        if any(offers.values()) or self._reasons.explains_all:
            for _, head, _ in waits:
                if head.id not in self._snapshot.decided:
                    self._plan(head)
        elif not records:
            return
        for queue, head, place in waits:
            self._queue_index = self._snapshot.queue_index(queue)
            self._unrecorded = self._with_other_reason(place) if records else []
            plans = bool(offers[queue]) or self._reasons.explains_all
            if plans and self._plans_for_all(queue):
                place = self._plan_in_order(offers[queue], place)
                offers[queue] = self._offers(queue, head, place)
            self._start_candidates(offers[queue])
            self._record_before(None)

    def _plans_for_all(self, queue: str) -> bool:
        return self._snapshot.cluster.discipline(queue).plans_all

    def _plan(self, gang: Gang) -> None:
        self._planner.plan(gang, self._gate.flavors(gang))
        self._decided += 1

    # -- candidates ----------------------------------------------------------------------------

    def _offers(self, queue: str, head: Gang, after: QueueKey) -> list[Offer]:
        """The first gang behind `after` of each shape that has room now."""
        offers: list[Offer] = []
        snapshot = self._snapshot
        free = snapshot.free
        room = free.total
        for shape, same_shape in snapshot.queue_index(queue).by_shape.items():
            if same_shape.gpus > room or shape == head.shape:
                continue
            index = bisect_right(same_shape.order, after)
            if index == len(same_shape.order):
                continue
            gang = snapshot.gang(same_shape.order[index].job)
            if is_grouped(gang) or self._fits(gang, free):
                offers.append((same_shape.order[index], index, same_shape))
        heapq.heapify(offers)
        return offers

    def _fits(self, gang: Gang, view: FreeDevicesView) -> bool:
        cluster, gate = self._snapshot.cluster, self._gate
        return any(
            not gate.code(gang, flavor) and feasible(cluster, view, gang, flavor)
            for flavor in gate.flavors(gang)
        )

    # -- starts --------------------------------------------------------------------------------

    def _start_candidates(self, offers: list[Offer]) -> None:
        """Start candidates in queue order."""
        while offers:
            place, index, same_shape = heapq.heappop(offers)
            gang = self._snapshot.gang(place.job)
            self._record_before(place)
            limit = self._try(gang, same_shape)
            if limit == -inf:
                continue
            # Room only ever shrinks during a pass, so no gang is tried twice.
            following = same_shape.next(index + 1, self._length_max(limit))
            if following is not None:
                heapq.heappush(offers, (same_shape.order[following], following, same_shape))

    def _try(self, gang: Gang, same_shape: ShapeClassView) -> float:
        """Start the gang if it delays no reservation; return the time by which the next of its shape must end."""
        if gang.id in self._seen or gang.id in self._snapshot.decided:
            return self._must_end_by(gang, same_shape)
        if not self._starts_limit.is_open:
            self._starts_limit.leave_over()
            return -inf
        if is_grouped(gang):
            code = self._start_group(gang)
            if code:
                self._reasons.record(gang, code, self._starts_limit)
            return -inf if code else inf
        limit = self._must_end_by(gang, same_shape)
        if self._snapshot.now + self._planner.runs_s(gang) <= limit and self._start_if_it_fits(
            gang
        ):
            return self._must_end_by(gang, same_shape)
        return limit

    def _length_max(self, limit: float) -> float:
        """With a margin for rounding: each candidate is then tested exactly."""
        return limit if limit == inf else (limit - self._snapshot.now) * (1 + 1e-12) + 1e-9

    def _must_end_by(self, gang: Gang, same_shape: ShapeClassView) -> float:
        if is_grouped(gang):
            return inf
        known = self._limits.get(same_shape)
        if known is None or known[0] != self._decided:
            limit = self._planner.must_end_by(lambda view: self._fits(gang, view))
            known = self._limits[same_shape] = self._decided, limit
        return known[1]

    def _start_if_it_fits(self, gang: Gang) -> bool:
        for flavor in self._gate.flavors(gang):
            if not self._gate.code(gang, flavor) and self._planner.has_quota_until_done(
                gang, flavor
            ):
                place = self._planner.fit_now(gang, flavor)
                if place is not None:
                    return self._starts(gang, place)
        return False

    def _starts(self, gang: Gang, place: Fit) -> bool:
        self._decided += 1
        room = self._snapshot.free.total
        self._start(gang, place)
        if self._reasons.records:
            self._record_changed(gang, room)
        return True

    def _start_group(self, gang: Gang) -> WaitReason | None:
        """Start all gangs of the group, or none of them and return the reason."""
        groups, planner = self._groups(), self._planner
        members, code = groups.of(gang)
        if code:
            return code
        ends_at = self._snapshot.now + max(map(planner.runs_s, members))
        for index, member in enumerate(members):
            if not planner.has_quota_until_done(member, "", members[:index]):
                return WaitReason.GROUP_INCOMPLETE_CAPACITY
        fits = groups.fit_all(members, self._gate, planner.until(ends_at))
        if fits is None:
            return WaitReason.GROUP_INCOMPLETE_CAPACITY
        if not self._starts_limit.admits(len(fits)):
            self._starts_limit.leave_over()
            return WaitReason.STARTS_LIMITED
        for member, place in fits:
            self._starts(member, place)
        return None

    # -- conservative backfill -----------------------------------------------------------------

    def _plan_in_order(self, offers: list[Offer], after: QueueKey) -> QueueKey:
        """Reserve starts for the gangs behind that cannot start, as many as the policy allows.

        Ends early if no candidate is left. Returns the key of the last gang that was tried.
        """
        planner, most, queue_index = (
            self._planner,
            self._snapshot.cluster.policy.planned_max,
            self._queue_index,
        )
        startable = {same_shape: same_shape.order[-1] for _, _, same_shape in offers}
        for place in queue_index.order[bisect_right(queue_index.order, after) :]:
            if len(planner.planned) >= most:
                break
            if not self._reasons.explains_all and place > max(startable.values(), default=after):
                break
            after = place
            gang = self._snapshot.gang(place.job)
            if gang.id in self._seen or gang.id in self._snapshot.decided:
                continue
            self._record_before(place)
            same_shape = queue_index.by_shape[gang.shape]
            if same_shape in startable and self._try(gang, same_shape) == -inf:
                del startable[same_shape]
            if gang.id not in self._snapshot.decided:
                self._plan(gang)
        return after

    # -- wait reasons: a gang that stays lacks room, or would delay a reservation ---------------

    def _with_other_reason(self, after: QueueKey) -> list[QueueKey]:
        """The gangs behind `after` whose recorded wait reason is another one, in order."""
        queue_index, room = self._queue_index, self._snapshot.free.total
        if self._reasons.explains_all:
            return list(queue_index.order[bisect_right(queue_index.order, after) :])
        keys: list[QueueKey] = []
        for same_shape in queue_index.by_shape.values():
            gang = self._snapshot.gang(same_shape.order[0].job)
            keys += [p for p in same_shape.without_reason(self._code(gang, room)) if p > after]
        return sorted(keys)

    def _record_before(self, place: QueueKey | None) -> None:
        """Record the present wait reasons of the gangs before `place`, or of all."""
        unrecorded, done = self._unrecorded, 0
        if not unrecorded:
            return
        room = self._snapshot.free.total
        for done, waiting in enumerate(unrecorded, 1):
            if place is not None and waiting >= place:
                done -= 1
                break
            if waiting.job not in self._snapshot.decided and waiting.job not in self._seen:
                gang = self._snapshot.gang(waiting.job)
                if not is_grouped(gang):
                    self._reasons.record(gang, self._code(gang, room), self._starts_limit)
        del unrecorded[:done]

    def _record_changed(self, starts: Gang, room: int) -> None:
        """After a start some gangs behind it no longer have room: their wait reasons change."""
        cluster, left = self._snapshot.cluster, self._snapshot.free.total
        place = cluster.queue_key(self._snapshot.job(starts.id))
        changed = set(self._unrecorded)
        for same_shape in self._queue_index.by_shape.values():
            gang = self._snapshot.gang(same_shape.order[0].job)
            code = self._code(gang, left)
            # What was left of other resources before the start is not known any more.
            if gang.amounts or code != self._code(gang, room):
                changed.update(p for p in same_shape.without_reason(code) if p > place)
        if len(changed) > len(self._unrecorded):
            self._unrecorded = sorted(changed)

    def _code(self, gang: Gang, room: int) -> WaitReason:
        """The wait reason: it lacks room with `room` devices free, or would delay a reservation."""
        free = self._snapshot.free
        if gang.gpus > room or (is_constrained(free, gang) and self._lacks_room(gang, free)):
            return WaitReason.INSUFFICIENT_CAPACITY
        if self._starts_limit.leaves_over:
            return WaitReason.STARTS_LIMITED
        return WaitReason.WOULD_DELAY_PLANNED_START

    def _lacks_room(self, gang: Gang, free: FreeDevicesView) -> bool:
        cluster, flavors = self._snapshot.cluster, self._gate.flavors(gang)
        return not any(feasible(cluster, free, gang, flavor) for flavor in flavors)


def is_grouped(gang: Gang) -> bool:
    return bool(gang.asks.group or gang.asks.members_missing)
