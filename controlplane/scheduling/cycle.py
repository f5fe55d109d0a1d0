"""One pass over the waiting gangs: who starts, who waits for whom to leave, who gives way.

The world is looked at and not changed; the same world at the same time gives the same decisions.
Every gang that is looked at starts whole, or is promised a whole place (`Claim`), or gets nothing. Why
the others wait is worked out only for who asks (`explains`): a pass itself needs to know only that.
"""

from collections.abc import Callable, Iterator
from functools import cached_property

from controlplane.events import GangPlaced
from controlplane.job import Job
from controlplane.lines import PLANS_AHEAD, SKIPS, Shape, attained_gpu_s
from controlplane.model import Discipline, QuotaModel, Reclaim
from controlplane.scheduling.backfill import Planner
from controlplane.scheduling.consolidation import Consolidation, consolidate
from controlplane.scheduling.decisions import (
    Claim,
    Decision,
    Evict,
    GiveUp,
    Hold,
    Replace,
    Shrink,
    Start,
)
from controlplane.scheduling.explanation import brief, explain, refined
from controlplane.scheduling.fitting import Fit, fit
from controlplane.scheduling.gangs import Gang
from controlplane.scheduling.groups import Groups
from controlplane.scheduling.order import Heads
from controlplane.scheduling.preemption import candidates_over_share, evict_for
from controlplane.scheduling.quota import ANY
from controlplane.scheduling.reasons import Reason
from controlplane.scheduling.repair import repair
from controlplane.scheduling.smaller import fewer_replicas, scaled_gang
from controlplane.scheduling.snapshot import Snapshot
from controlplane.scheduling.victims import Eviction, Victim, no_doubles
from controlplane.world import World

# Whether the reasons of this job, which waits for this, are worth working out.
Explains = Callable[[Job, str], bool]

_SHARED_BY_CLUSTER = (QuotaModel.DESERVED, QuotaModel.FAIR_PREEMPT)


def schedule(snapshot: Snapshot) -> list[GangPlaced]:
    """Who starts now, and where, as events. The snapshot is used up by it."""
    found = decide_pass(snapshot)
    world = snapshot.world
    return [placed(world, snapshot.job(d.job), d.fit) for d in found if isinstance(d, Start)]


def decide_pass(snapshot: Snapshot, explains: Explains | None = None) -> list[Decision]:
    """Everything that one pass decides. The snapshot is used up by it."""
    return Pass(snapshot, explains).run()


def placed(world: World, job: Job, found: Fit) -> GangPlaced:
    if job.attempt is None:
        return GangPlaced(job.id, 1, found.placement, found.shares, found.flavor)
    number, had = job.attempt.number + 1, 0.0
    if _looks_back(world, job):
        had = attained_gpu_s(job)
    return GangPlaced(job.id, number, found.placement, found.shares, found.flavor, had)


def _looks_back(world: World, job: Job) -> bool:
    """Whether it matters here how much a job has had already."""
    least_first = world.discipline(job.spec.queue) is Discipline.LEAST_ATTAINED_FIT
    return least_first or world.policy.usage_halflife_s is not None


class Pass:
    """One pass. `explains` says whose reasons are worked out; of those only who are looked at, or
    `everyone` who waits.
    """

    def __init__(
        self, snapshot: Snapshot, explains: Explains | None = None, *, everyone: bool = True
    ) -> None:
        self.snapshot = snapshot
        self.explains = explains
        self.everyone = everyone
        self.decisions: list[Decision] = []
        self.heads = Heads(snapshot)
        # Queues whose head waits for a planned start, with the head's place in its line.
        self.planning: dict[str, tuple[Gang, str]] = {}
        # Who was looked at before its turn.
        self.seen: dict[str, bool] = {}
        # Why the first of a shape waits, which is why all of its shape do.
        self.codes: dict[tuple[str, Shape], str] = {}
        # What the heads of queues keep from borrowers: (flavour, queue) -> quota.
        self.kept: dict[tuple[str, str], int] = {}

    @cached_property
    def planner(self) -> Planner:
        return Planner(self.snapshot)

    @cached_property
    def groups(self) -> Groups:
        return Groups(self.snapshot)

    def run(self) -> list[Decision]:
        snapshot = self.snapshot
        for job_id in sorted(snapshot.world.crippled):
            self._repair(snapshot.job(job_id))
        for claimant in self._claimants():
            self.seen[claimant.id] = self._look_at(claimant)
        heads = self.heads
        while (gang := heads.next()) is not None:
            known = self.seen.get(gang.id)
            if self._look_at(gang) if known is None else known:
                heads.move_up()
            elif snapshot.world.discipline(gang.queue) in SKIPS:
                heads.skip()
            else:
                heads.close(gang.id)
        for queue, (head, flavor) in self.planning.items():
            self._backfill(queue, head, flavor)
        if self.explains is not None and self.everyone:
            self._explain_those_behind()
        return self.decisions

    def _claimants(self) -> list[Gang]:
        """Those for whom others gave way, before anyone else takes what they left."""
        world = self.snapshot.world
        if not world.claimed:
            return []
        jobs = sorted((world.jobs[i] for i in world.claimed), key=world.place_in_line)
        return [self.snapshot.gang(job.id) for job in jobs]

    def _repair(self, job: Job) -> None:
        found = repair(self.snapshot, job)
        if isinstance(found, Replace):
            self.snapshot.hold(self.snapshot.free, Fit(found.slots))
            self.decisions.append(found)
        elif isinstance(found, GiveUp):
            self.snapshot.evict(job)
            self.decisions.append(found)

    # -- one gang ----------------------------------------------------------------------------

    def _look_at(self, gang: Gang) -> bool:
        """Starts or promises it; True if whoever is behind it moves up."""
        if gang.asks.group or gang.asks.members_missing:
            return self._look_at_group(gang)
        blocked = ""
        for flavor in self._flavors(gang):
            code = self.quota_code(gang, flavor)
            found = None if code else self._fit_now(gang, flavor)
            if found is not None:
                return self._start(gang, found)
            blocked = blocked or code or "insufficient_capacity"
        if gang.elastic is not None and self._start_smaller(gang):
            return True
        if self.snapshot.evicts or self.snapshot.evicted:
            return self._make_room(gang) or self._block(gang, blocked)
        return self._block(gang, blocked)

    def _fit_now(self, gang: Gang, flavor: str) -> Fit | None:
        if self.planning and self.planner.planned:
            return self.planner.fit_now(gang, flavor)
        return fit(self.snapshot.world, self.snapshot.free, gang, flavor)

    def _start(self, gang: Gang, found: Fit) -> bool:
        self.snapshot.take(gang, found)
        if self.snapshot.world.plans_ahead:
            self.planner.took(gang, found)
        self.decisions.append(Start(gang.id, found))
        return True

    def _start_smaller(self, gang: Gang) -> bool:
        """An elastic gang starts with as many replicas as there is room and quota for."""
        found = fewer_replicas(self.snapshot, gang, self.quota_code, self._fit_now)
        if found is None:
            return False
        return self._start(*found)

    def _block(self, gang: Gang, code: str) -> bool:
        discipline = self.snapshot.world.discipline(gang.queue)
        if discipline in PLANS_AHEAD and gang.queue not in self.planning:
            self.planning[gang.queue] = gang, next(self._flavors(gang))
        self._keep_quota(gang)
        self._hold(gang, code)
        if self.explains is not None:
            self.codes[gang.queue, gang.shape] = code
        return False

    def _flavors(self, gang: Gang) -> Iterator[str]:
        """The flavours to try, in order; the empty one where the queue does not tell them apart."""
        flavors = self.snapshot.queues[gang.queue].flavors
        names = gang.asks.flavors or tuple(quota.name for quota in flavors)
        yield from names or (ANY,)

    # -- quota -------------------------------------------------------------------------------

    def quota_code(self, gang: Gang, flavor: str, *, coming: bool = False) -> str:
        """Nothing if the quota allows the gang, else the code of the reason."""
        snapshot, queue = self.snapshot, gang.queue
        if not snapshot.has_quotas:
            ceiling = snapshot.queues[queue].gpus_max
            over = ceiling is not None and snapshot.used(queue) + gang.gpus > ceiling
            return "queue_limit" if over else ""
        tree = snapshot.coming_tree(flavor) if coming else snapshot.tree(flavor)
        if gang.milli > tree.below_ceiling(queue):
            return "queue_limit"
        model = snapshot.world.policy.model
        if model in (QuotaModel.CLASSIC, QuotaModel.FAIR):
            own = self.kept.get((flavor, queue), 0)
            if own:
                tree.remove(queue, own)
            left = tree.available(queue)
            if own:
                tree.add(queue, own)
            if gang.milli > left:
                kept = sum(n for (f, q), n in self.kept.items() if f == flavor and q != queue)
                return "blocked_by_reserved_capacity" if gang.milli <= left + kept else _QUOTA
        elif model is QuotaModel.DESERVED and not gang.preemptible:
            over = self._unpreemptible(queue) + gang.milli > tree.branches[queue].nominal
            return _UNPREEMPTIBLE if over else ""
        return ""

    def _unpreemptible(self, queue: str) -> int:
        """What the queue's running gangs hold that nobody can take from them."""
        snapshot = self.snapshot
        gangs = (snapshot.gang(job_id) for job_id in snapshot.world.holders.get(queue, ()))
        started = (d.job for d in self.decisions if isinstance(d, Start))
        total = sum(gang.milli for gang in gangs if not gang.preemptible)
        return total + sum(
            gang.milli
            for gang in map(snapshot.gang, started)
            if gang.queue == queue and not gang.preemptible
        )

    def _keep_quota(self, gang: Gang) -> None:
        """A head that may not take back what others borrow keeps its queue's own for itself.

        It does so against other queues only. Where it may reclaim, nothing need be kept.
        """
        snapshot = self.snapshot
        if not snapshot.has_quotas or snapshot.world.policy.model is not QuotaModel.CLASSIC:
            return
        flavor = next(self._flavors(gang))
        tree = snapshot.tree(flavor)
        branch = tree.branches[gang.queue]
        key = flavor, gang.queue
        if branch.parent is None or key in self.kept or gang.milli > branch.subtree:
            return
        if snapshot.preempt(gang.queue).reclaim is Reclaim.ANY:
            return
        keeps = gang.milli
        if not tree.borrowing_with(gang.queue, gang.milli):
            keeps = min(keeps, branch.subtree - branch.used)
        elif branch.borrow_max is not None:
            keeps = min(keeps, branch.subtree + branch.borrow_max - branch.used)
        keeps = min(keeps, max(0, tree.available(gang.queue)))
        if keeps > 0:
            self.kept[key] = keeps
            snapshot.reserve_quota(gang.queue, keeps, flavor)

    # -- making room -------------------------------------------------------------------------

    def _make_room(self, gang: Gang) -> bool:
        """Waits for those who are leaving, or makes others leave or move; False if neither helps."""
        snapshot = self.snapshot
        least = scaled_gang(snapshot, gang)
        for flavor in self._flavors(gang):
            if snapshot.coming is not snapshot.free or snapshot.evicted:
                found = self._fit_later(least, flavor)
                if found is not None:
                    snapshot.claim(least, found)
                    self.decisions.append(Claim(gang.id, found))
                    return True
        for flavor in self._flavors(gang):
            if self.quota_code(least, flavor, coming=True) == _UNPREEMPTIBLE:
                # What stands in its way cannot be evicted, so evicting others would help nobody.
                continue
            if snapshot.world.policy.consolidate and not self.quota_code(least, flavor):
                plan = consolidate(snapshot, least, flavor, snapshot.coming)
                if plan is not None:
                    return self._move_aside(least, plan)
            eviction = evict_for(snapshot, least, flavor)
            # Without victims it is not room that is missing, but what its queue may hold.
            if eviction is not None and eviction.victims:
                return self._evict(least, eviction)
            if snapshot.world.policy.consolidate and self._reclaim_and_move(least, flavor):
                return True
        return False

    def _fit_later(self, gang: Gang, flavor: str) -> Fit | None:
        if self.quota_code(gang, flavor, coming=True):
            return None
        return fit(self.snapshot.world, self.snapshot.coming, gang, flavor)

    def _evict(self, gang: Gang, eviction: Eviction) -> bool:
        for victim in eviction.victims:
            self._evict_one(gang, victim)
        self.snapshot.claim(gang, eviction.fit)
        self.decisions.append(Claim(gang.id, eviction.fit))
        return True

    def _evict_one(self, gang: Gang, victim: Victim) -> None:
        snapshot = self.snapshot
        if victim.ranks:
            snapshot.shrink(victim.job, victim.ranks)
            self._shrink(victim, gang.id)
            return
        snapshot.evict(victim.job)
        waiting = snapshot.job(gang.id)
        who = "a job of another namespace"
        if waiting.namespace == victim.job.namespace:
            who = f"{waiting.namespace}/{waiting.name}"
        message = f"gave way to {who}, which needs {gang.gpus} GPUs with priority {gang.priority}"
        self.decisions.append(Evict(victim.job.id, gang.id, message))

    def _shrink(self, victim: Victim, preemptor: str) -> None:
        """One decision for all the ranks that a gang gives back."""
        for index, known in enumerate(self.decisions):
            if isinstance(known, Shrink) and known.job == victim.job.id:
                ranks = tuple(sorted((*known.ranks, *victim.ranks)))
                self.decisions[index] = known._replace(ranks=ranks)
                return
        self.decisions.append(Shrink(victim.job.id, victim.ranks, preemptor))

    def _move_aside(self, gang: Gang, plan: Consolidation) -> bool:
        for move in plan.moves:
            self.snapshot.evict(move.victim.job)
            message = f"moves aside, so that a gang of {gang.gpus} GPUs finds its room in one piece"
            self.decisions.append(Evict(move.victim.job.id, gang.id, message, move.fit))
        self.snapshot.claim(gang, plan.fit)
        self.decisions.append(Claim(gang.id, plan.fit))
        for move in plan.moves:
            # It comes back where it was planned to, before anyone else gets that.
            self.snapshot.claim(move.victim.gang, move.fit)
        return True

    def _reclaim_and_move(self, gang: Gang, flavor: str) -> bool:
        """Takes back what others have beyond their share, and moves who is still in the way."""
        snapshot = self.snapshot
        if snapshot.world.policy.model not in _SHARED_BY_CLUSTER:
            return False
        victims = candidates_over_share(snapshot, gang, flavor)
        for count in range(1, len(victims) + 1):
            view, chosen = snapshot.coming.copy(), no_doubles(victims[:count])
            for victim in chosen:
                snapshot.let_go(view, victim.job, victim.ranks)
            gone = [victim.job.id for victim in chosen]
            plan = consolidate(snapshot, gang, flavor, view, gone)
            if plan is not None:
                for victim in chosen:
                    self._evict_one(gang, victim)
                return self._move_aside(gang, plan)
        return False

    # -- groups of gangs ---------------------------------------------------------------------

    def _look_at_group(self, gang: Gang) -> bool:
        """All gangs of the group start, or none of them does."""
        members, code = self.groups.of(gang)
        if code:
            return self._block(gang, code)
        if gang.id in self.groups.started:
            return True
        fits = self.groups.fit_all(members, self.quota_code)
        if fits is None:
            return self._block(gang, "group_incomplete_capacity")
        for member, found in fits:
            self._start(member, found)
            self.groups.started.add(member.id)
        return True

    # -- planned starts ----------------------------------------------------------------------

    def _backfill(self, queue: str, head: Gang, flavor: str) -> None:
        """Who stands behind a head that waits goes ahead if that delays no planned start."""
        snapshot, planner = self.snapshot, self.planner
        everyone = snapshot.world.discipline(queue) is Discipline.CONSERVATIVE_BACKFILL
        order = snapshot.line(queue).order
        behind = [place[3] for place in order]
        behind = behind[behind.index(head.id) + 1 :]
        planned_max = snapshot.world.policy.planned_max if everyone else 1
        unplanned = [head]
        for job_id in behind:
            if job_id in self.seen:
                continue
            gang = snapshot.gang(job_id)
            if not everyone and gang.gpus > snapshot.free.total:
                self._hold_if_told(gang, "insufficient_capacity")
                continue
            while unplanned:
                planner.plan(unplanned.pop(), flavor)
            if not self._start_past(gang):
                if everyone and len(planner.planned) < planned_max:
                    unplanned.append(gang)
                self._hold_if_told(gang, "would_delay_planned_start")
        if self.explains is not None and unplanned:
            planner.plan(unplanned[0], flavor)

    def _start_past(self, gang: Gang) -> bool:
        for flavor in self._flavors(gang):
            if not self.quota_code(gang, flavor):
                found = self.planner.fit_now(gang, flavor)
                if found is not None:
                    return self._start(gang, found)
        return False

    # -- reasons -----------------------------------------------------------------------------

    def _hold(self, gang: Gang, code: str) -> None:
        explains, snapshot = self.explains, self.snapshot
        if explains is None:
            return
        if not self.everyone:
            code = refined(snapshot, gang, code)
        if explains(snapshot.job(gang.id), code):
            flavor = next(self._flavors(gang))
            if self.everyone:
                reasons = explain(snapshot, gang, code, flavor)
            else:
                reasons = (brief(snapshot, gang, code, flavor),)
            self.decisions.append(Hold(gang.id, reasons))

    def _hold_if_told(self, gang: Gang, code: str) -> None:
        if self.explains is not None:
            self._hold(gang, code)

    def _explain_those_behind(self) -> None:
        """Those whom the pass did not look at wait behind a head, or like the first of their shape."""
        snapshot, explains = self.snapshot, self.explains
        assert explains is not None
        known: dict[str, tuple[Reason, ...]] = {}
        decided = set()
        for decision in self.decisions:
            decided.add(decision.job)
            if isinstance(decision, Hold):
                known[decision.job] = decision.reasons
        for queue in snapshot.queues:
            line = snapshot.line(queue)
            head = self.heads.closed.get(queue)
            for place in line.order:
                job_id = place[3]
                if job_id in decided:
                    continue
                code = "blocked_by_head" if head else "insufficient_capacity"
                if explains(snapshot.job(job_id), code):
                    gang = snapshot.gang(job_id)
                    code = code if head else self._code_of(gang)
                    reasons = explain(snapshot, gang, code, next(self._flavors(gang)), head or "")
                    self.decisions.append(Hold(job_id, reasons))

    def _code_of(self, gang: Gang) -> str:
        known = self.codes.get((gang.queue, gang.shape), "")
        known = known or self.quota_code(gang, next(self._flavors(gang)))
        return known or "insufficient_capacity"


_QUOTA = "insufficient_quota"
_UNPREEMPTIBLE = "non_preemptible_over_quota"
