"""Who gives way to whom, by the quota model.

Each model makes a list of candidates in order, and says when the preemptor may be let in; the rest
is `victims.Search`. The rules of the first two are Kueue's, with one difference: a victim is spared
again only if the rule by which the others were taken still holds without it. (Sparing regardless is
how fair sharing there can preempt for ever, kueue#14543.)
"""

from collections.abc import Callable, Sequence

from controlplane.attained import attained_step
from controlplane.job import attained_gpu_s
from controlplane.model import Discipline, Preempt, QuotaModel, Reclaim, WithinQueue
from controlplane.scheduling.gangs import Gang
from controlplane.scheduling.quota import ANY, Branch, QuotaTree, share, split
from controlplane.scheduling.shares import fair_shares
from controlplane.scheduling.snapshot import Snapshot
from controlplane.scheduling.victims import (
    Allowed,
    Eviction,
    Search,
    Victim,
    in_order,
    running,
    step_of,
)

_LOWER = Preempt(within_queue=WithinQueue.LOWER)


def evict_for(snapshot: Snapshot, gang: Gang, flavor: str = ANY) -> Eviction | None:
    """The fewest victims that let the gang in by the rules of the model, or None."""
    return _MODELS[snapshot.world.policy.model](snapshot, gang, flavor)


def rules_for(snapshot: Snapshot, queue: str) -> Preempt:
    rules = snapshot.preempt(queue)
    if snapshot.world.policy.model is QuotaModel.DESERVED and rules == Preempt():
        return _LOWER
    return rules


def _own(snapshot: Snapshot, gang: Gang) -> list[Victim]:
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


def _others(snapshot: Snapshot, gang: Gang, tree: QuotaTree) -> list[Victim]:
    """Running gangs of other queues of the same tree that reclaim may take."""
    reclaim = rules_for(snapshot, gang.queue).reclaim
    branch = tree.branches[gang.queue]
    if reclaim is Reclaim.NEVER or branch.parent is None:
        return []
    found = []
    for name in _same_tree(tree, branch):
        if name != gang.queue and _is_over(tree.branches[name], branch):
            found += [
                victim
                for victim in running(snapshot, name)
                if reclaim is Reclaim.ANY or victim.priority < gang.priority
            ]
    return found


def _same_tree(tree: QuotaTree, branch: Branch) -> list[str]:
    root = branch.root()
    if not root.below:
        todo = [root]
        while todo:
            here = todo.pop()
            root.below.append(here.name)
            todo += here.children
        root.below.sort()
    return root.below


def _is_over(victim: Branch, preemptor: Branch) -> bool:
    """Whether the victim's queue, and all above it up to where the ways meet, borrow."""
    if not victim.borrows:
        return False
    met = split(victim, preemptor)
    if met is None:
        return False
    branch: Branch | None = victim
    while branch is not None:
        if not branch.borrows:
            return False
        if branch is met[0]:
            return True
        branch = branch.parent
    return True


# ---------------------------------------------------------------- nominal quota, classic


def classic(snapshot: Snapshot, gang: Gang, flavor: str) -> Eviction | None:
    tree = snapshot.coming_tree(flavor)
    own = _own(snapshot, gang)
    rules = rules_for(snapshot, gang.queue)
    branch = tree.branches[gang.queue]
    is_under = branch.used < branch.subtree
    reclaims = rules.borrow_below is not None or is_under
    others = _others(snapshot, gang, tree) if reclaims else []
    if not others:
        return Search(snapshot, gang, flavor, _fits(gang)).fewest(in_order(snapshot, own))
    if rules.borrow_below is not None:
        below = min(gang.priority, rules.borrow_below + 1)
        if not is_under:
            others = [victim for victim in others if victim.priority < below]
        everyone = _still_over(tree, gang, in_order(snapshot, [*own, *others], gang.queue))
        return Search(snapshot, gang, flavor, _fits(gang, below=below)).fewest(everyone)
    if is_under:
        everyone = _still_over(tree, gang, in_order(snapshot, [*own, *others], gang.queue))
        search = Search(snapshot, gang, flavor, _fits(gang, borrows=False))
        found = search.fewest(everyone)
        if found is not None:
            return found
    return Search(snapshot, gang, flavor, _fits(gang)).fewest(in_order(snapshot, own))


def _fits(gang: Gang, *, borrows: bool = True, below: int | None = None) -> Allowed:
    """Whether the gang fits the quota; above the threshold only without borrowing."""

    def is_allowed(tree: QuotaTree, victims: Sequence[Victim]) -> bool:
        may_borrow = borrows and not (
            below is not None
            and any(v.queue != gang.queue and v.priority >= below for v in victims)
        )
        if not may_borrow and tree.borrowing_with(gang.queue, gang.milli):
            return False
        return _has_quota(tree, gang)

    return is_allowed


def _has_quota(tree: QuotaTree, gang: Gang) -> bool:
    return gang.milli <= tree.available(gang.queue) and gang.milli <= tree.below_ceiling(gang.queue)


def _still_over(tree: QuotaTree, gang: Gang, victims: list[Victim]) -> list[Victim]:
    """Those whose queue still borrows when those before them are gone."""
    branch = tree.branches[gang.queue]
    found: list[Victim] = []
    for victim in victims:
        if victim.queue == gang.queue or _is_over(tree.branches[victim.queue], branch):
            found.append(victim)
            tree.remove(victim.queue, victim.milli)
    for victim in reversed(found):
        tree.add(victim.queue, victim.milli)
    return found


# ---------------------------------------------------------------- fair shares of what is borrowed


def fair(snapshot: Snapshot, gang: Gang, flavor: str) -> Eviction | None:
    tree = snapshot.coming_tree(flavor)
    pool = [*_own(snapshot, gang), *_others(snapshot, gang, tree)]
    lines: dict[str, list[Victim]] = {}
    for victim in in_order(snapshot, pool, gang.queue):
        lines.setdefault(victim.queue, []).append(victim)
    order, rules = _fair_order(snapshot, tree, gang, lines)
    before = {id(victim): rule for victim, rule in zip(order, rules, strict=True)}

    def is_fair(tree: QuotaTree, victims: Sequence[Victim]) -> bool:
        return all(_still_fair(tree, gang, v, before.get(id(v), 0.0)) for v in victims)

    # The walk itself kept the rule; whoever is spared must leave it kept.
    search = Search(snapshot, gang, flavor, lambda t, _: _has_quota(t, gang), may_spare=is_fair)
    return search.fewest(order)


def _still_fair(tree: QuotaTree, gang: Gang, victim: Victim, before: float) -> bool:
    """The rule by which the victim was taken, on what is left: see `_fair_order`."""
    met = split(tree.branches[gang.queue], tree.branches[victim.queue])
    if met is None:
        return True
    mine = share(met[0], gang.milli)
    return mine <= share(met[1]) or mine < before


def _fair_order(
    snapshot: Snapshot, tree: QuotaTree, gang: Gang, lines: dict[str, list[Victim]]
) -> tuple[list[Victim], list[float]]:
    """Candidates as the strategies take them, each with its queue's share before it goes."""
    order: list[Victim] = []
    shares_before: list[float] = []
    strategies = snapshot.world.policy.strategies
    tree.add(gang.queue, gang.milli)
    left = {queue: list(line) for queue, line in lines.items()}
    refused: dict[str, list[Victim]] = {}
    for strategy in strategies:
        while left:
            queue = _heaviest(tree, gang, left)
            if queue is None:
                break
            if queue == gang.queue:
                _pick(tree, left, queue, 0, order)
                shares_before.append(float("inf"))
                continue
            met = split(tree.branches[gang.queue], tree.branches[queue])
            assert met is not None
            mine, theirs = share(met[0]), share(met[1])
            index = _first_fair(tree, strategy, left[queue], met[1], mine, theirs)
            if index is None:
                refused.setdefault(queue, []).extend(left.pop(queue))
                continue
            refused.setdefault(queue, []).extend(left[queue][:index])
            _pick(tree, left, queue, index, order)
            shares_before.append(theirs)
        left, refused = {q: line for q, line in refused.items() if line}, {}
    for victim in order:
        tree.add(victim.queue, victim.milli)
    tree.remove(gang.queue, gang.milli)
    return order, shares_before


def _pick(
    tree: QuotaTree, left: dict[str, list[Victim]], queue: str, index: int, order: list[Victim]
) -> None:
    victim = left[queue][index]
    left[queue] = left[queue][index + 1 :]
    if not left[queue]:
        del left[queue]
    tree.remove(queue, victim.milli)
    order.append(victim)


def _heaviest(tree: QuotaTree, gang: Gang, left: dict[str, list[Victim]]) -> str | None:
    """The queue with the largest share among those that borrow; its own when there is no other."""
    own = tree.branches[gang.queue]
    best: tuple[float, str] | None = None
    for queue in left:
        branch = tree.branches[queue]
        if queue == gang.queue or not _is_over(branch, own):
            continue
        met = split(own, branch)
        assert met is not None
        offer = (-share(met[1]), queue)
        best = offer if best is None else min(best, offer)
    if gang.queue in left and (best is None or share(own) > -best[0]):
        return gang.queue
    return None if best is None else best[1]


def _first_fair(
    tree: QuotaTree,
    strategy: str,
    line: Sequence[Victim],
    branch: Branch,
    mine: float,
    theirs: float,
) -> int | None:
    if strategy == "initial":
        return 0 if mine < theirs else None
    for index, victim in enumerate(line):
        tree.remove(victim.queue, victim.milli)
        after = share(branch)
        tree.add(victim.queue, victim.milli)
        if mine <= after:
            return index
    return None


# ---------------------------------------------------------------- shares of the whole cluster


def deserved(snapshot: Snapshot, gang: Gang, flavor: str) -> Eviction | None:
    """From who has more than its share of the cluster, for who stays within its own."""
    found = _from_the_rich(snapshot, gang, flavor)
    if found is not None:
        return found
    own = in_order(snapshot, _own(snapshot, gang))
    return Search(snapshot, gang, flavor, _below_ceiling(gang)).fewest(own)


def fair_preempt(snapshot: Snapshot, gang: Gang, flavor: str) -> Eviction | None:
    return deserved(snapshot, gang, flavor)


def candidates_over_share(snapshot: Snapshot, gang: Gang, flavor: str) -> list[Victim]:
    """Who has more than its share and may have to give, in order; empty if the gang may not ask."""
    tree = snapshot.coming_tree(flavor)
    fair_milli = fair_shares(snapshot, tree, gang)
    own = tree.branches[gang.queue]
    pool = []
    for name in sorted(tree.branches):
        # It may ask where, with the gang, its side stays within its share up to where they meet.
        if name != gang.queue and name in snapshot.queues:
            mine = _between(own, tree.branches[name])
            if all(b.used_below + gang.milli <= fair_milli[b.name] for b in mine):
                pool += running(snapshot, name)
    used = {name: branch.used_below for name, branch in tree.branches.items()}
    order: list[Victim] = []
    left = in_order(snapshot, pool)
    # First from those who then still have their share, then from those who had more than it.
    for may_fall_below in (False, True):
        rest = []
        for victim in left:
            above = _between(tree.branches[victim.queue], own)
            over = [used[b.name] - fair_milli[b.name] for b in above]
            if all(o > 0 and (may_fall_below or o >= victim.milli) for o in over):
                order.append(victim)
                for branch in tree.branches[victim.queue].path():
                    used[branch.name] -= victim.milli
            else:
                rest.append(victim)
        left = rest
    return order


def _between(victim: Branch, preemptor: Branch) -> list[Branch]:
    """The victim's queue and what is above it, up to where the ways meet."""
    met = split(victim, preemptor)
    path = victim.path()
    return path if met is None else path[path.index(met[0]) :]


def _from_the_rich(snapshot: Snapshot, gang: Gang, flavor: str) -> Eviction | None:
    order = candidates_over_share(snapshot, gang, flavor)
    return Search(snapshot, gang, flavor, _below_ceiling(gang)).fewest(order)


def _below_ceiling(gang: Gang) -> Allowed:
    return lambda tree, _: gang.milli <= tree.below_ceiling(gang.queue)


# ---------------------------------------------------------------- priority alone, guests first


def by_priority(snapshot: Snapshot, gang: Gang, flavor: str) -> Eviction | None:
    pool = [
        victim
        for queue in sorted(snapshot.queues)
        for victim in running(snapshot, queue)
        if victim.priority < gang.priority
    ]
    order = in_order(snapshot, pool)
    return Search(snapshot, gang, flavor, _below_ceiling(gang)).fewest(order)


def nobody(snapshot: Snapshot, gang: Gang, flavor: str) -> Eviction | None:
    own = in_order(snapshot, _own(snapshot, gang))
    return Search(snapshot, gang, flavor, _below_ceiling(gang)).fewest(own)


_MODELS: dict[QuotaModel, Callable[[Snapshot, Gang, str], Eviction | None]] = {
    QuotaModel.CLASSIC: classic,
    QuotaModel.FAIR: fair,
    QuotaModel.DESERVED: deserved,
    QuotaModel.PROGRESSIVE: nobody,
    QuotaModel.FAIR_PREEMPT: fair_preempt,
    QuotaModel.HOME_AWAY: by_priority,
}
