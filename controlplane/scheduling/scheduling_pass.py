"""One scheduling pass: a pure function from a snapshot to decisions.

1. Running gangs that lost ranks get other devices, or give up (`elastic/repair.py`).
2. Gangs that other gangs were preempted for take the places they have claimed.
3. The heads of the queues are tried in the order of the quota model (`ordering/heads.py`). A head starts if its queue
   has quota (`quota/gate.py`) and it fits (`placement/fit.py`); an elastic gang may start smaller; else it may preempt
   (`preemption/make_room.py`) and claim the place. A head that gets nothing blocks its queue, is skipped, or becomes a
   planned start, as the discipline says.
4. Behind planned starts, gangs are backfilled that delay none of them (`backfill/candidates.py`).
5. Wait reasons of gangs that were not tried are recorded, if asked for.
6. Running gangs that want more ranks get what is left (`elastic/grow.py`).

A gang starts whole, claims a whole place, or gets nothing. The same state at the same time gives the same decisions.
"""

from collections.abc import Iterator

from controlplane.disciplines.discipline import OnBlocked
from controlplane.lifecycle.job import Job
from controlplane.model.reasons import WaitReason
from controlplane.scheduling.backfill.candidates import Backfill, Waits, is_grouped
from controlplane.scheduling.backfill.planner import Planner
from controlplane.scheduling.decisions import (
    GiveUp,
    Replace,
    SchedulingDecision,
    Start,
    one_for_each_job,
)
from controlplane.scheduling.elastic.grow import grow
from controlplane.scheduling.elastic.repair import part_of, repair
from controlplane.scheduling.elastic.shrink import largest_fitting_size, replicas_of
from controlplane.scheduling.explain.wait_recorder import Explains, WaitReasonRecorder
from controlplane.scheduling.gang import Gang
from controlplane.scheduling.ordering.heads import Heads
from controlplane.scheduling.ordering.start_limit import StartLimit
from controlplane.scheduling.placement.coscheduling import Groups
from controlplane.scheduling.placement.fit import Fit, fit
from controlplane.scheduling.preemption.make_room import RoomMaker
from controlplane.scheduling.quota.gate import QuotaGate
from controlplane.scheduling.snapshot import Snapshot


class Pass:
    """One pass. `explains` selects the gangs whose wait reasons are worked out: among the gangs that the pass
    tries, or among all that wait if `explain_all` is set.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        explains: Explains | None = None,
        *,
        explain_all: bool = True,
        evicts: bool = True,
    ) -> None:
        """Unless it `evicts`, gangs wait for devices that are being freed, and preempt none."""
        self.snapshot = snapshot
        self._evicts = evicts
        self.decisions: list[SchedulingDecision] = []
        self.gate = QuotaGate(snapshot)
        self.reasons = WaitReasonRecorder(
            snapshot, self.gate, self.decisions, explains, explain_all
        )
        self.heads = Heads(snapshot)
        self.limit = StartLimit(snapshot.cluster, snapshot.now)
        # Queue -> its first gang that waits for a planned start.
        self._waits: dict[str, Waits] = {}
        # Gangs that were tried before their turn, and whether the next of the queue moves up.
        self.seen: dict[str, bool] = {}
        # Made on first use: most passes need none of these.
        self._planner: Planner | None = None
        self._groups: Groups | None = None
        self._rooms: RoomMaker | None = None

    @property
    def planner(self) -> Planner:
        if self._planner is None:
            self._planner = Planner(self.snapshot)
        return self._planner

    @property
    def groups(self) -> Groups:
        if self._groups is None:
            self._groups = Groups(self.snapshot)
        return self._groups

    @property
    def rooms(self) -> RoomMaker:
        if self._rooms is None:
            self._rooms = RoomMaker(self.snapshot, self.gate, self.decisions)
        return self._rooms

    def _make_room(self, gang: Gang, starts_with: int) -> bool:
        if not self.rooms.make_room(gang, starts_with, evicts=self._evicts):
            return False
        if self.snapshot.job(gang.id).wait_reason is not WaitReason.WAITING_FOR_VICTIMS:
            self.limit.count()
        return True

    def run(self) -> list[SchedulingDecision]:
        snapshot = self.snapshot
        for job_id in sorted(snapshot.cluster.degraded):
            self._repair(snapshot.job(job_id))
        for claimant in self._claimants():
            handle = self._try_to_start if self.limit.is_open else self._keep_claim
            self.seen[claimant.id] = handle(claimant)
        heads = self.heads
        while (gang := heads.next()) is not None:
            known = self.seen.get(gang.id)
            if known is None and gang.id not in snapshot.decided and not self.limit.is_open:
                self.limit.leave_over()
                break
            if self._try_to_start(gang) if known is None else known:
                heads.move_up()
            elif self.limit.leaves_over:
                break
            elif snapshot.cluster.discipline(gang.queue).on_blocked is OnBlocked.SKIP:
                heads.skip()
            else:
                heads.close(gang.id)
        if self._waits:
            self._backfill()
        if self.reasons.explains_all:
            self.reasons.explain_those_behind(
                self.heads.closed, limit=self.limit if self.limit.leaves_over else None
            )
        if snapshot.cluster.growing:
            self.decisions += grow(snapshot, self.decisions, self.gate.started)
        return one_for_each_job(self.decisions)

    def _claimants(self) -> list[Gang]:
        """The gangs with a claim: they come first, before another gang takes what was released for them."""
        cluster = self.snapshot.cluster
        if not cluster.claimed:
            return []
        jobs = sorted((cluster.jobs[i] for i in cluster.claimed), key=cluster.queue_key)
        return [self.snapshot.gang(job.id) for job in jobs]

    def _keep_claim(self, gang: Gang) -> bool:
        """Keep the gang's claim until the next cycle, without preempting any other gang."""
        self.limit.leave_over()
        start = next(self._fits_now(gang), None) or self._smaller(gang)
        if start is not None:
            self.snapshot.start(*start)
            return True
        return self.rooms.make_room(gang, evicts=False)

    def _fits_now(self, gang: Gang) -> Iterator[tuple[Gang, Fit]]:
        for flavor in self.gate.flavors(gang):
            place = None if self.gate.code(gang, flavor) else self._fit_now(gang, flavor)
            if place is not None:
                yield gang, place

    def _repair(self, job: Job) -> None:
        decision = repair(self.snapshot, self.gate, job)
        if isinstance(decision, Replace):
            self.snapshot.decided.add(job.id)
            attempt, part = job.attempt, part_of(self.snapshot, job, decision.ranks)
            assert attempt is not None
            shares = tuple(attempt.share(rank) for rank in decision.ranks) if attempt.shares else ()
            fit = Fit(decision.slots, shares, attempt.flavor, part.amounts)
            self.snapshot.add_ranks(part, fit)
            self.decisions.append(decision)
        elif isinstance(decision, GiveUp):
            self.snapshot.evict(job)
            self.decisions.append(decision)

    def _try_to_start(self, gang: Gang) -> bool:
        """Start the gang or claim a place for it; return whether the next gang of its queue moves up."""
        if gang.id in self.snapshot.decided:
            return True
        if is_grouped(gang):
            return self._try_group(gang)
        blocked: WaitReason | None = None
        for flavor in self.gate.flavors(gang):
            code = self.gate.code(gang, flavor)
            place = None if code else self._fit_now(gang, flavor)
            if place is not None:
                return self._start(gang, place)
            blocked = blocked or code or WaitReason.INSUFFICIENT_CAPACITY
        smaller = self._smaller(gang)
        starts_with = 0 if smaller is None else replicas_of(gang, smaller[0])
        evicts = self.snapshot.preempts or self.snapshot.evicted
        if evicts and self._make_room(gang, starts_with):
            return True
        if smaller is not None:
            return self._start(*smaller)
        assert blocked is not None
        return self._block(gang, blocked)

    def _fit_now(self, gang: Gang, flavor: str) -> Fit | None:
        if self.snapshot.lacks_devices(gang):
            return None
        return fit(self.snapshot.cluster, self.snapshot.free_readonly, gang, flavor)

    def _start(self, gang: Gang, place: Fit) -> bool:
        self.snapshot.start(gang, place)
        self.limit.count()
        if self.snapshot.cluster.plans_ahead:
            self.planner.add_start(gang, place)
        self.gate.started.append(gang)
        self.decisions.append(Start(gang.id, place))
        return True

    def _smaller(self, gang: Gang) -> tuple[Gang, Fit] | None:
        """An elastic gang with the most replicas that fit and have quota now; None if it is not elastic."""
        if gang.elastic is None:
            return None
        return largest_fitting_size(self.snapshot, gang, self.gate.code, self._fit_now)

    def _block(self, gang: Gang, code: WaitReason) -> bool:
        cluster, queue = self.snapshot.cluster, gang.queue
        plans = cluster.discipline(queue).on_blocked is OnBlocked.BACKFILL
        if plans and queue not in self._waits:
            place = cluster.queue_key(self.snapshot.job(gang.id))
            self._waits[queue] = queue, gang, place
        # Recorded before `keep`: what the gang keeps for itself must not count against it.
        self.reasons.record(gang, code)
        self.gate.keep(gang)
        return False

    def _try_group(self, gang: Gang) -> bool:
        """Start all gangs of the group, or none of them."""
        members, code = self.groups.of(gang)
        if code is not None:
            return self._block(gang, code)
        fits = self.groups.fit_all(members, self.gate, self.snapshot.free)
        if fits is None:
            return self._block(gang, WaitReason.GROUP_INCOMPLETE_CAPACITY)
        if not self.limit.admits(len(fits)):
            self.limit.leave_over()
            self.reasons.record(gang, WaitReason.STARTS_LIMITED, self.limit)
            return False
        for member, place in fits:
            self._start(member, place)
        return True

    def _backfill(self) -> None:
        """Start gangs behind planned starts that delay none of them."""
        backfill = Backfill(
            self.snapshot,
            self.planner,
            self.gate,
            lambda: self.groups,
            self.reasons,
            self._start,
            self.seen,
            self.limit,
        )
        backfill.run(list(self._waits.values()))
