"""One pass over the waiting gangs: who starts, who waits for whom to leave, who gives way.

The world is looked at and not changed; the same world at the same time gives the same decisions.
Every gang that is looked at starts whole, or is promised a whole place (`Claim`), or gets nothing. Why
the others wait is worked out only for who asks (`explains`): a pass itself needs to know only that.
"""

from collections.abc import Iterator, Sequence

from controlplane.attained import attained_step, next_step_at
from controlplane.events import GangPlaced
from controlplane.job import CLAIMED, Job
from controlplane.job_life import attained_gpu_s
from controlplane.lines import BY_ATTAINED, PLANS_AHEAD, SKIPS
from controlplane.scheduling.backfill import Planner
from controlplane.scheduling.decisions import (
    Decision,
    GiveUp,
    Replace,
    Start,
    one_for_each_job,
)
from controlplane.scheduling.fitting import Fit, fit, gpus_of
from controlplane.scheduling.gangs import Gang
from controlplane.scheduling.going_past import GoingPast, Waits, is_grouped
from controlplane.scheduling.groups import Groups
from controlplane.scheduling.holding import Explains, Holder
from controlplane.scheduling.making_room import RoomMaker
from controlplane.scheduling.order import Heads
from controlplane.scheduling.protection import safe_until
from controlplane.scheduling.quota_gate import QuotaGate
from controlplane.scheduling.repair import part_of, repair
from controlplane.scheduling.smaller import fewer_replicas, replicas_of
from controlplane.scheduling.snapshot import Snapshot
from controlplane.scheduling.start_limit import STARTS_LIMITED, StartLimit
from controlplane.sharing import Discipline
from controlplane.world import World


def schedule(snapshot: Snapshot) -> list[GangPlaced]:
    """Who starts now, and where, as events. The snapshot is used up by it."""
    return starts(snapshot, decide_pass(snapshot))


def starts(snapshot: Snapshot, decisions: Sequence[Decision]) -> list[GangPlaced]:
    """Those decisions that let somebody start, as events."""
    return [
        placed(snapshot.world, snapshot.job(d.job), d.fit, snapshot.now)
        for d in decisions
        if isinstance(d, Start)
    ]


def decide_pass(snapshot: Snapshot, explains: Explains | None = None) -> list[Decision]:
    """Everything that one pass decides. The snapshot is used up by it."""
    return Pass(snapshot, explains).run()


def placed(world: World, job: Job, found: Fit, now: float) -> GangPlaced:
    discipline = world.discipline(job.spec.queue)
    number, had, step_at = 1, 0.0, None
    if job.attempt is not None:
        number = job.attempt.number + 1
        if discipline in BY_ATTAINED or world.policy.usage_halflife_s is not None:
            had = attained_gpu_s(job)
    if discipline is Discipline.LEAST_ATTAINED:
        step, gpus = attained_step(had), gpus_of(found)
        step_at = next_step_at(step, had_gpu_s=had, gpus=gpus, at=now)
    safe = safe_until(world, job, now)
    where, shares, flavor, _ = found
    return GangPlaced(job.id, number, where, shares, flavor, had, step_at, safe)


class Pass:
    """One pass. `explains` says whose reasons are worked out; of those only who are looked at, or
    `everyone` who waits.
    """

    def __init__(
        self, snapshot: Snapshot, explains: Explains | None = None, *, everyone: bool = True
    ) -> None:
        self.snapshot = snapshot
        self.decisions: list[Decision] = []
        self.gate = QuotaGate(snapshot)
        self.holder = Holder(snapshot, self.gate, self.decisions, explains, everyone)
        self.heads = Heads(snapshot)
        self.limit = StartLimit(snapshot.world, snapshot.now)
        # The first of each queue that waits for a planned start.
        self._waits: dict[str, Waits] = {}
        # Who was looked at before its turn.
        self.seen: dict[str, bool] = {}
        # Most passes ask none of these.
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
        if not self.rooms.make_room(gang, starts_with):
            return False
        if self.snapshot.job(gang.id).held != CLAIMED:
            self.limit.count()
        return True

    def run(self) -> list[Decision]:
        snapshot = self.snapshot
        for job_id in sorted(snapshot.world.crippled):
            self._repair(snapshot.job(job_id))
        for claimant in self._claimants():
            looks = self._look_at if self.limit.is_open else self._keep_claim
            self.seen[claimant.id] = looks(claimant)
        heads = self.heads
        while (gang := heads.next()) is not None:
            known = self.seen.get(gang.id)
            if known is None and gang.id not in snapshot.decided and not self.limit.is_open:
                self.limit.leave_over()
                break
            if self._look_at(gang) if known is None else known:
                heads.move_up()
            elif self.limit.leaves_over:
                break
            elif snapshot.world.discipline(gang.queue) in SKIPS:
                heads.skip()
            else:
                heads.close(gang.id)
        if self._waits:
            self._go_past()
        if self.holder.tells_everyone:
            self.holder.explain_those_behind(
                self.heads.closed, limit=self.limit if self.limit.leaves_over else None
            )
        if snapshot.world.growing:
            # Who may grow into what is left is asked when these decisions are in the world.
            snapshot.outlive_the_world()
        return one_for_each_job(self.decisions)

    def _claimants(self) -> list[Gang]:
        """Those for whom others gave way, before anyone else takes what they left."""
        world = self.snapshot.world
        if not world.claimed:
            return []
        jobs = sorted((world.jobs[i] for i in world.claimed), key=world.place_in_line)
        return [self.snapshot.gang(job.id) for job in jobs]

    def _keep_claim(self, gang: Gang) -> bool:
        """Keeps what was promised to the gang until the next cycle, and makes no other gang leave."""
        self.limit.leave_over()
        found = next(self._fits_now(gang), None) or self._smaller(gang)
        if found is not None:
            self.snapshot.take(*found)
            return True
        return self.rooms.make_room(gang, evicts=False)

    def _fits_now(self, gang: Gang) -> Iterator[tuple[Gang, Fit]]:
        for flavor in self.gate.flavors(gang):
            found = None if self.gate.code(gang, flavor) else self._fit_now(gang, flavor)
            if found is not None:
                yield gang, found

    def _repair(self, job: Job) -> None:
        found = repair(self.snapshot, self.gate, job)
        if isinstance(found, Replace):
            self.snapshot.decided.add(job.id)
            attempt, part = job.attempt, part_of(self.snapshot, job, found.ranks)
            assert attempt is not None
            shares = tuple([attempt.share(rank) for rank in found.ranks]) if attempt.shares else ()
            fit = Fit(found.slots, shares, attempt.flavor, part.amounts)
            self.snapshot.take_more(part, fit)
            self.decisions.append(found)
        elif isinstance(found, GiveUp):
            self.snapshot.evict(job)
            self.decisions.append(found)

    def _look_at(self, gang: Gang) -> bool:
        """Starts or promises it; True if whoever is behind it moves up."""
        if gang.id in self.snapshot.decided:
            return True
        if is_grouped(gang):
            return self._look_at_group(gang)
        blocked = ""
        for flavor in self.gate.flavors(gang):
            code = self.gate.code(gang, flavor)
            found = None if code else self._fit_now(gang, flavor)
            if found is not None:
                return self._start(gang, found)
            blocked = blocked or code or "insufficient_capacity"
        smaller = self._smaller(gang)
        starts_with = 0 if smaller is None else replicas_of(gang, smaller[0])
        evicts = self.snapshot.evicts or self.snapshot.evicted
        if evicts and self._make_room(gang, starts_with):
            return True
        if smaller is not None:
            return self._start(*smaller)
        return self._block(gang, blocked)

    def _fit_now(self, gang: Gang, flavor: str) -> Fit | None:
        if self.snapshot.lacks_devices(gang):
            return None
        return fit(self.snapshot.world, self.snapshot.to_look_at, gang, flavor)

    def _start(self, gang: Gang, found: Fit) -> bool:
        self.snapshot.take(gang, found)
        self.limit.count()
        if self.snapshot.world.plans_ahead:
            self.planner.took(gang, found)
        self.gate.started.append(gang)
        self.decisions.append(Start(gang.id, found))
        return True

    def _smaller(self, gang: Gang) -> tuple[Gang, Fit] | None:
        """An elastic gang with as many replicas as there is room and quota for now."""
        if gang.elastic is None:
            return None
        return fewer_replicas(self.snapshot, gang, self.gate.code, self._fit_now)

    def _block(self, gang: Gang, code: str) -> bool:
        world, queue = self.snapshot.world, gang.queue
        if world.discipline(queue) in PLANS_AHEAD and queue not in self._waits:
            place = world.place_in_line(self.snapshot.job(gang.id))
            self._waits[queue] = queue, gang, place
        # What it keeps for itself is not in its own way.
        self.holder.hold(gang, code)
        self.gate.keep(gang)
        return False

    def _look_at_group(self, gang: Gang) -> bool:
        """All gangs of the group start, or none of them does."""
        members, code = self.groups.of(gang)
        if code:
            return self._block(gang, code)
        fits = self.groups.fit_all(members, self.gate, self.snapshot.free)
        if fits is None:
            return self._block(gang, "group_incomplete_capacity")
        if not self.limit.admits(len(fits)):
            self.limit.leave_over()
            self.holder.hold(gang, STARTS_LIMITED, self.limit)
            return False
        for member, found in fits:
            self._start(member, found)
        return True

    def _go_past(self) -> None:
        """Who stands behind a head that waits goes ahead if that delays no planned start."""
        past = GoingPast(
            self.snapshot,
            self.planner,
            self.gate,
            lambda: self.groups,
            self.holder,
            self._start,
            self.seen,
            self.limit,
        )
        past.run(list(self._waits.values()))
