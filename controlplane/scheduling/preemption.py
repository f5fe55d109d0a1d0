"""Who gives way to whom, by the quota model; `fair_preemption` has another one.

Each model makes a list of candidates in order, and says when the preemptor may be let in; the rest
is `victims.Search`.
"""

from collections.abc import Mapping, Sequence
from functools import partial

from controlplane.attained import attained_step
from controlplane.job_life import attained_gpu_s
from controlplane.scheduling.gangs import Gang
from controlplane.scheduling.quota import Branch, QuotaTree, split
from controlplane.scheduling.quotas import Quotas, is_over, is_under
from controlplane.scheduling.reclaim import others_in_tree, somebody_is_over
from controlplane.scheduling.shares import fair_shares
from controlplane.scheduling.snapshot import Snapshot
from controlplane.scheduling.victim_domains import fewest_victims
from controlplane.scheduling.victims import (
    Allowed,
    Eviction,
    Search,
    Victim,
    in_order,
    no_doubles,
    ranks_given_by,
    running,
    step_of,
)
from controlplane.sharing import Discipline, Preempt, QuotaModel, Reclaim, WithinQueue

_LOWER = Preempt(within_queue=WithinQueue.LOWER)


def rules_for(snapshot: Snapshot, queue: str) -> Preempt:
    rules = snapshot.preempt(queue)
    if snapshot.world.policy.model is QuotaModel.DESERVED and rules == Preempt():
        return _LOWER
    return rules


def own_victims(snapshot: Snapshot, gang: Gang) -> list[Victim]:
    """Running gangs of its own queue to which the gang is preferred."""
    within = rules_for(snapshot, gang.queue).within_queue
    if snapshot.world.discipline(gang.queue) is Discipline.LEAST_ATTAINED:
        return _had_more(snapshot, gang)
    if within is WithinQueue.NEVER:
        return []
    newer_too = within is WithinQueue.LOWER_OR_NEWER_EQUAL
    waiting = snapshot.job(gang.id)
    place_of = snapshot.world.place_in_line
    found = [
        victim
        for victim in running(snapshot, gang.queue)
        if victim.priority < gang.priority
        or (newer_too and _is_newer_equal(victim, gang, waiting.submitted_as))
    ]
    if not found:
        return found
    # Whoever would stand ahead of it in the line again would only start again in its place.
    place = place_of(waiting)
    return [victim for victim in found if place < place_of(victim.job)]


def _had_more(snapshot: Snapshot, gang: Gang) -> list[Victim]:
    """Where who had least goes first: those of lower priority, or who by now are a step further.

    Steps only ever grow, so nobody gets its place back from the one that took it by the same rule.
    """
    waiting, now = snapshot.job(gang.id), snapshot.now
    mine = attained_step(attained_gpu_s(waiting))
    place = snapshot.world.place_in_line(waiting)
    found = []
    for victim in running(snapshot, gang.queue):
        step = step_of(victim, now)
        first, _, queued_as, name = snapshot.world.place_in_line(victim.job)
        # As it would stand in the line if it were stopped now.
        stands_behind = place < (first, step, queued_as, name)
        if stands_behind and (victim.priority, -step) < (gang.priority, -mine):
            found.append(victim)
    return found


def _is_newer_equal(victim: Victim, gang: Gang, came: int) -> bool:
    return victim.priority == gang.priority and victim.job.submitted_as > came


def from_others(snapshot: Snapshot, gang: Gang, trees: Sequence[QuotaTree]) -> list[Victim]:
    """Running gangs of other queues of the same tree that reclaim may take.

    `trees` are the quotas in which the gang lacks something.
    """
    reclaim = rules_for(snapshot, gang.queue).reclaim
    branch = trees[0].branches[gang.queue]
    if reclaim is Reclaim.NEVER or branch.parent is None:
        return []
    found = []
    for name in _same_tree(branch):
        if name != gang.queue and is_over(trees, name, gang.queue):
            found += [
                victim
                for victim in running(snapshot, name)
                if reclaim is Reclaim.ANY or victim.priority < gang.priority
            ]
    return found


def _same_tree(branch: Branch) -> list[str]:
    root = branch.root()
    if not root.below:
        todo = [root]
        while todo:
            here = todo.pop()
            root.below.append(here.name)
            todo += here.children
        root.below.sort()
    return root.below


# ---------------------------------------------------------------- nominal quota, classic


def classic(snapshot: Snapshot, gang: Gang, flavor: str, by_domain: bool) -> Eviction | None:
    own = own_victims(snapshot, gang)
    if not own and not snapshot.world.by_request:
        # By far the most frequent answer, and quick to find out where GPUs are all that counts.
        key = snapshot.quota_key(gang.queue, flavor)
        branch = snapshot.coming_tree(key).branches[gang.queue]
        if not somebody_is_over(branch):
            return None
    quotas = Quotas(snapshot, gang, flavor)
    lacking, rules = quotas.lacking(), rules_for(snapshot, gang.queue)
    others = others_in_tree(snapshot, gang, quotas, lacking, rules.reclaim)
    if not own and not others.all:
        return None
    if not others.all or (rules.borrow_below is None and not is_under(lacking, gang.queue)):
        attempts = [True]
    elif rules.borrow_below is None and not others.nearer:
        attempts = [False, True]
    else:
        attempts = [True, False]
    for borrows in attempts:
        rest = others.rest
        if borrows:
            # Whoever may not be asked by one that borrows.
            below = _NOBODY if rules.borrow_below is None else rules.borrow_below + 1
            rest = [victim for victim in rest if victim.priority < min(gang.priority, below)]
        parts = (others.nearer, rest, own)
        lists = [in_order(snapshot, quotas.useful(part, lacking)) for part in parts]
        # What elastic gangs can do without goes first, of whichever list.
        everyone = sorted([v for part in lists for v in part], key=lambda v: not v.ranks)
        search = Search(snapshot, quotas, flavor, _fits(quotas, borrows=borrows))
        admissible = partial(_still_over, quotas, lacking)
        found = fewest_victims(search, everyone, admissible, by_domain=by_domain)
        if found is not None:
            return found
    return None


_NOBODY = -(1 << 62)


def _fits(quotas: Quotas, *, borrows: bool) -> Allowed:
    """Whether the gang fits the quotas, by borrowing or without."""

    def is_allowed(_: Sequence[Victim]) -> bool:
        return quotas.has_quota() and (borrows or not quotas.would_borrow())

    return is_allowed


def _still_over(
    quotas: Quotas, lacking: Sequence[QuotaTree], victims: Sequence[Victim]
) -> list[Victim]:
    """Those whose queue still borrows when those before them are gone."""
    found: list[Victim] = []
    for victim in victims:
        # A gang that goes whole takes the place of the ranks that it would have given.
        given = ranks_given_by(victim, found)
        quotas.add(given)
        if victim.queue == quotas.queue or is_over(lacking, victim.queue, quotas.queue):
            found.append(victim)
            quotas.remove([victim])
        else:
            quotas.remove(given)
    quotas.add(reversed(no_doubles(found)))
    return found


# ---------------------------------------------------------------- shares of the whole cluster


def deserved(snapshot: Snapshot, gang: Gang, flavor: str, by_domain: bool) -> Eviction | None:
    """From who has more than its share of the cluster, for who stays within its own."""
    found = _from_the_rich(snapshot, gang, flavor, by_domain)
    if found is not None:
        return found
    own = in_order(snapshot, own_victims(snapshot, gang))
    return _search(snapshot, gang, flavor).fewest(own)


def fair_preempt(snapshot: Snapshot, gang: Gang, flavor: str, by_domain: bool) -> Eviction | None:
    return deserved(snapshot, gang, flavor, by_domain)


class OverShare:
    """Who has more than its fair share of the cluster and may have to give some to a gang."""

    def __init__(self, snapshot: Snapshot, gang: Gang, flavor: str) -> None:
        self._gang = gang
        self._tree = tree = snapshot.coming_tree(snapshot.quota_key(gang.queue, flavor))
        self.fair_milli = fair_shares(snapshot, tree, gang)
        self._names = sorted(n for n in tree.branches if n != gang.queue and n in snapshot.queues)
        # Everyone of another queue that the gang may ask if those beside it give enough.
        self.pool: list[Victim] = []
        if self._may_ask(self._names, self._used()):
            everyone = [victim for name in self._names for victim in running(snapshot, name)]
            self.pool = in_order(snapshot, everyone)

    def _used(self) -> dict[str, int]:
        return {name: branch.used_below for name, branch in self._tree.branches.items()}

    def _may_ask(self, names: Sequence[str], used: Mapping[str, int]) -> list[str]:
        """Where, with the gang, its side stays within its share up to where the ways meet."""
        branches, milli = self._tree.branches, self._gang.milli
        own = branches[self._gang.queue]
        return [
            name
            for name in names
            if all(
                used[b.name] + milli <= self.fair_milli[b.name]
                for b in _between(own, branches[name])
            )
        ]

    def admissible(self, victims: Sequence[Victim]) -> list[Victim]:
        """Those of the victims that have to give, in the order in which they do."""
        used, names, order = self._used(), self._names, list[Victim]()
        own = self._tree.branches[self._gang.queue]
        while True:
            # What those beside it give may be what lets it ask further away.
            may_ask = self._may_ask(names, used)
            if not may_ask:
                return order
            names = [name for name in names if name not in may_ask]
            asked = set(may_ask)
            left = [victim for victim in victims if victim.queue in asked]
            _take_from_the_rich(left, own, self._tree, used, self.fair_milli, order)


def candidates_over_share(snapshot: Snapshot, gang: Gang, flavor: str) -> list[Victim]:
    """Who has more than its share and may have to give, in order; empty if the gang may not ask."""
    over = OverShare(snapshot, gang, flavor)
    return over.admissible(over.pool)


def _take_from_the_rich(
    left: list[Victim],
    own: Branch,
    tree: QuotaTree,
    used: dict[str, int],
    fair_milli: Mapping[str, int],
    order: list[Victim],
) -> None:
    """First from those who then still have their share, then from those who had more than it."""
    for may_fall_below in (False, True):
        rest = []
        for victim in left:
            above = _between(tree.branches[victim.queue], own)
            over = [used[b.name] - fair_milli[b.name] for b in above]
            # A gang that goes whole takes the place of the ranks that it would have given.
            given = sum(other.milli for other in ranks_given_by(victim, order))
            if all(o + given > 0 and (may_fall_below or o >= victim.milli - given) for o in over):
                order.append(victim)
                for branch in tree.branches[victim.queue].path():
                    used[branch.name] -= victim.milli - given
            else:
                rest.append(victim)
        left = rest


def _between(victim: Branch, preemptor: Branch) -> list[Branch]:
    """The victim's queue and what is above it, up to where the ways meet."""
    met = split(victim, preemptor)
    path = victim.path()
    return path if met is None else path[path.index(met[0]) :]


def _from_the_rich(snapshot: Snapshot, gang: Gang, flavor: str, by_domain: bool) -> Eviction | None:
    over = OverShare(snapshot, gang, flavor)
    if not over.pool:
        return None
    search = _search(snapshot, gang, flavor)
    tree, is_below_ceiling = search.quotas.gpus, search.is_allowed
    fair_milli = over.fair_milli
    own = tree.branches[gang.queue]

    def is_within_share(victims: Sequence[Victim]) -> bool:
        """With just these gone, its side stays within its share up to each of them."""
        asked = {victim.queue for victim in victims}
        return is_below_ceiling(victims) and all(
            branch.used_below + gang.milli <= fair_milli[branch.name]
            for name in asked
            for branch in _between(own, tree.branches[name])
        )

    search.is_allowed = is_within_share
    return fewest_victims(search, over.pool, over.admissible, by_domain=by_domain)


def _search(snapshot: Snapshot, gang: Gang, flavor: str) -> Search:
    """Of quotas of GPUs only ceilings count here."""
    quotas = Quotas(snapshot, gang, flavor)

    def is_below_ceiling(_: Sequence[Victim]) -> bool:
        return quotas.is_below_ceiling() and quotas.has_others()

    return Search(snapshot, quotas, flavor, is_below_ceiling)


# ---------------------------------------------------------------- priority alone, guests first


def by_priority(snapshot: Snapshot, gang: Gang, flavor: str, by_domain: bool) -> Eviction | None:
    pool = [
        victim
        for queue in sorted(snapshot.queues)
        for victim in running(snapshot, queue)
        if victim.priority < gang.priority
    ]
    order = in_order(snapshot, pool)
    return _search(snapshot, gang, flavor).fewest(order)


def nobody(snapshot: Snapshot, gang: Gang, flavor: str, by_domain: bool) -> Eviction | None:
    own = in_order(snapshot, own_victims(snapshot, gang))
    return _search(snapshot, gang, flavor).fewest(own)
