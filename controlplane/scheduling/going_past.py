"""Who stands behind a head that waits, and goes ahead because that delays no planned start.

Of those that fit in the same places only the first is looked at, and those that run too long to go
past are not looked at at all: a line tells them apart by shape and by length. Nothing is planned
while nobody behind could start anyway.
"""

import heapq
from bisect import bisect_right
from collections.abc import Callable, Container
from math import inf

from controlplane.devices import FreeDevices
from controlplane.lines import Alike, Waiting
from controlplane.scheduling.asking import counts
from controlplane.scheduling.backfill import Planner
from controlplane.scheduling.fitting import Fit, could_fit
from controlplane.scheduling.gangs import Gang
from controlplane.scheduling.groups import Groups
from controlplane.scheduling.holding import Holder
from controlplane.scheduling.quota_gate import QuotaGate
from controlplane.scheduling.snapshot import Snapshot
from controlplane.scheduling.start_limit import STARTS_LIMITED, StartLimit
from controlplane.sharing import Discipline

# The next of its shape that may go past: its place, its index, and all of its shape.
Offer = tuple[Waiting, int, Alike]
# A queue, the head that waits there, and the place of that in its line.
Waits = tuple[str, Gang, Waiting]


class GoingPast:
    """`start` starts a gang; `seen` are those that were looked at before their turn."""

    def __init__(
        self,
        snapshot: Snapshot,
        planner: Planner,
        gate: QuotaGate,
        groups: Callable[[], Groups],
        holder: Holder,
        start: Callable[[Gang, Fit], bool],
        seen: Container[str],
        limit: StartLimit,
    ) -> None:
        self._snapshot = snapshot
        self._planner = planner
        self._gate = gate
        self._groups = groups
        self._holder = holder
        self._start = start
        self._seen = seen
        self._starts_limit = limit
        # For each shape, when it must have ended, and how much had been decided when that was asked.
        self._limits: dict[Alike, tuple[int, float]] = {}
        # How many starts and plans were made here: what fits is asked again after each.
        self._decided = 0
        # The line that is gone through, and who of it is yet to be told why it waits, in order.
        self._line = snapshot.line("")
        self._untold: list[Waiting] = []

    def run(self, waits: list[Waits]) -> None:
        telling = self._holder.tells
        offers = {queue: self._offers(queue, head, place) for queue, head, place in waits}
        if any(offers.values()) or self._holder.tells_everyone:
            for _, head, _ in waits:
                if head.id not in self._snapshot.decided:
                    self._plan(head)
        elif not telling:
            return
        for queue, head, place in waits:
            self._line = self._snapshot.line(queue)
            self._untold = self._not_yet_told(place) if telling else []
            looks = bool(offers[queue]) or self._holder.tells_everyone
            if looks and self._plans_for_all(queue):
                place = self._plan_in_order(offers[queue], place)
                offers[queue] = self._offers(queue, head, place)
            self._go_past(offers[queue])
            self._tell_before(None)

    def _plans_for_all(self, queue: str) -> bool:
        return self._snapshot.world.discipline(queue) is Discipline.CONSERVATIVE_BACKFILL

    def _plan(self, gang: Gang) -> None:
        self._planner.plan(gang, self._gate.flavors(gang))
        self._decided += 1

    # -- who could start at all ----------------------------------------------------------------

    def _offers(self, queue: str, head: Gang, after: Waiting) -> list[Offer]:
        """The first behind that place of each shape that has room now."""
        offers: list[Offer] = []
        snapshot = self._snapshot
        free = snapshot.free
        room = free.total
        for shape, alike in snapshot.line(queue).by_shape.items():
            if alike.gpus > room or shape == head.shape:
                continue
            index = bisect_right(alike.order, after)
            if index == len(alike.order):
                continue
            gang = snapshot.gang(alike.order[index].job)
            if is_grouped(gang) or self._fits(gang, free):
                offers.append((alike.order[index], index, alike))
        heapq.heapify(offers)
        return offers

    def _fits(self, gang: Gang, view: FreeDevices) -> bool:
        world, gate = self._snapshot.world, self._gate
        return any(
            not gate.code(gang, flavor) and could_fit(world, view, gang, flavor)
            for flavor in gate.flavors(gang)
        )

    # -- one after the other -------------------------------------------------------------------

    def _go_past(self, offers: list[Offer]) -> None:
        """Who goes past what is planned, in the order of the line."""
        while offers:
            place, index, alike = heapq.heappop(offers)
            gang = self._snapshot.gang(place.job)
            self._tell_before(place)
            limit = self._try(gang, alike)
            if limit == -inf:
                continue
            # What may go past only ever becomes less, so nobody is looked at twice.
            following = alike.next(index + 1, self._length_max(limit))
            if following is not None:
                heapq.heappush(offers, (alike.order[following], following, alike))

    def _try(self, gang: Gang, alike: Alike) -> float:
        """Starts the gang if it may go past; when the next of its shape must have ended then."""
        if gang.id in self._seen or gang.id in self._snapshot.decided:
            return self._must_end_by(gang, alike)
        if not self._starts_limit.is_open:
            self._starts_limit.leave_over()
            return -inf
        if is_grouped(gang):
            code = self._start_group(gang)
            if code:
                self._holder.hold(gang, code, self._starts_limit)
            return -inf if code else inf
        limit = self._must_end_by(gang, alike)
        if self._snapshot.now + self._planner.runs_s(gang) <= limit and self._start_past(gang):
            return self._must_end_by(gang, alike)
        return limit

    def _length_max(self, limit: float) -> float:
        """Rounding must not hide one that just fits; whoever is found is asked exactly."""
        return limit if limit == inf else (limit - self._snapshot.now) * (1 + 1e-12) + 1e-9

    def _must_end_by(self, gang: Gang, alike: Alike) -> float:
        if is_grouped(gang):
            return inf
        known = self._limits.get(alike)
        if known is None or known[0] != self._decided:
            limit = self._planner.must_end_by(lambda view: self._fits(gang, view))
            known = self._limits[alike] = self._decided, limit
        return known[1]

    def _start_past(self, gang: Gang) -> bool:
        for flavor in self._gate.flavors(gang):
            if not self._gate.code(gang, flavor) and self._planner.has_quota_until_done(
                gang, flavor
            ):
                found = self._planner.fit_now(gang, flavor)
                if found is not None:
                    return self._starts(gang, found)
        return False

    def _starts(self, gang: Gang, found: Fit) -> bool:
        self._decided += 1
        room = self._snapshot.free.total
        self._start(gang, found)
        if self._holder.tells:
            self._tell_again(gang, room)
        return True

    def _start_group(self, gang: Gang) -> str:
        """All gangs of the group go past together, or none of them; then the code of the reason."""
        groups, planner = self._groups(), self._planner
        members, code = groups.of(gang)
        if code:
            return code
        ends_at = self._snapshot.now + max(map(planner.runs_s, members))
        for index, member in enumerate(members):
            if not planner.has_quota_until_done(member, "", members[:index]):
                return "group_incomplete_capacity"
        fits = groups.fit_all(members, self._gate, planner.until(ends_at))
        if fits is None:
            return "group_incomplete_capacity"
        if not self._starts_limit.admits(len(fits)):
            self._starts_limit.leave_over()
            return STARTS_LIMITED
        for member, found in fits:
            self._starts(member, found)
        return ""

    # -- a plan for everyone -------------------------------------------------------------------

    def _plan_in_order(self, offers: list[Offer], after: Waiting) -> Waiting:
        """Gives those behind, who cannot start, planned starts: as many as the policy allows.

        It ends early where nobody is left who could start. Returns the last place looked at.
        """
        planner, most, line = self._planner, self._snapshot.world.policy.planned_max, self._line
        hopeful = {alike: alike.order[-1] for _, _, alike in offers}
        for place in line.order[bisect_right(line.order, after) :]:
            if len(planner.planned) >= most:
                break
            if not self._holder.tells_everyone and place > max(hopeful.values(), default=after):
                break
            after = place
            gang = self._snapshot.gang(place.job)
            if gang.id in self._seen or gang.id in self._snapshot.decided:
                continue
            self._tell_before(place)
            alike = line.by_shape[gang.shape]
            if alike in hopeful and self._try(gang, alike) == -inf:
                del hopeful[alike]
            if gang.id not in self._snapshot.decided:
                self._plan(gang)
        return after

    # -- reasons: whoever stays behind lacks room, or would be in the way of a plan -------------

    def _not_yet_told(self, after: Waiting) -> list[Waiting]:
        """Those behind that place who do not know yet why they wait, in order."""
        line, room = self._line, self._snapshot.free.total
        if self._holder.tells_everyone:
            return line.order[bisect_right(line.order, after) :]
        found: list[Waiting] = []
        for alike in line.by_shape.values():
            gang = self._snapshot.gang(alike.order[0].job)
            found += [p for p in alike.untold(self._code(gang, room)) if p > after]
        return sorted(found)

    def _tell_before(self, place: Waiting | None) -> None:
        """Tells those before that place, or all, what holds as of now."""
        untold, done = self._untold, 0
        if not untold:
            return
        room = self._snapshot.free.total
        for done, waiting in enumerate(untold, 1):
            if place is not None and waiting >= place:
                done -= 1
                break
            if waiting.job not in self._snapshot.decided and waiting.job not in self._seen:
                gang = self._snapshot.gang(waiting.job)
                if not is_grouped(gang):
                    self._holder.hold(gang, self._code(gang, room), self._starts_limit)
        del untold[:done]

    def _tell_again(self, starts: Gang, room: int) -> None:
        """After a start some who had room have none; if they wait behind, that is news to them."""
        world, left = self._snapshot.world, self._snapshot.free.total
        place = world.place_in_line(self._snapshot.job(starts.id))
        news = set(self._untold)
        for alike in self._line.by_shape.values():
            gang = self._snapshot.gang(alike.order[0].job)
            code = self._code(gang, left)
            # What was left of other things than devices before nobody knows any more.
            if gang.amounts or code != self._code(gang, room):
                news.update(p for p in alike.untold(code) if p > place)
        if len(news) > len(self._untold):
            self._untold = sorted(news)

    def _code(self, gang: Gang, room: int) -> str:
        """Whether it lacks room, with so many devices free, or would be in somebody's way."""
        free = self._snapshot.free
        if gang.gpus > room or (counts(free, gang) and self._lacks_room(gang, free)):
            return "insufficient_capacity"
        if self._starts_limit.leaves_over:
            return STARTS_LIMITED
        return "would_delay_planned_start"

    def _lacks_room(self, gang: Gang, free: FreeDevices) -> bool:
        world, flavors = self._snapshot.world, self._gate.flavors(gang)
        return not any(could_fit(world, free, gang, flavor) for flavor in flavors)


def is_grouped(gang: Gang) -> bool:
    return bool(gang.asks.group or gang.asks.members_missing)
