"""Who gives way by fair shares of what is borrowed: Kueue's rules, with one difference.

A victim is spared again only if the rule by which the others were taken still holds without it. (Sparing
regardless is how fair sharing there can preempt for ever, kueue#14543.) A share is the largest part that a
queue has of anything, not of GPUs alone.

Priority inside a queue may raise its share, and fair shares may take from a higher priority for a lower one;
so both together can go round in circles. Therefore a gang is evicted for the sake of equal shares among those
who borrow only so often in its life. Whoever stays within its own quota takes that back however often.
"""

from collections.abc import Sequence
from math import inf

from controlplane.model import Cause
from controlplane.scheduling.gangs import Gang
from controlplane.scheduling.preemption import from_others, own_victims
from controlplane.scheduling.quota import QuotaTree
from controlplane.scheduling.quotas import Quotas, Share, is_over
from controlplane.scheduling.snapshot import Snapshot
from controlplane.scheduling.victim_domains import fewest_victims
from controlplane.scheduling.victims import (
    Eviction,
    Search,
    Victim,
    in_order,
    no_doubles,
    ranks_given_by,
)

# So often a gang may have been evicted and still be evicted for one that borrows as well.
EVICTED_FOR_SHARES_MAX = 3

_NONE: Share = (0.0, 0.0)
_ALL: Share = (inf, inf)
# The candidates of each queue, in order.
Lines = dict[str, list[Victim]]


def fair(snapshot: Snapshot, gang: Gang, flavor: str, by_domain: bool) -> Eviction | None:
    quotas = Quotas(snapshot, gang, flavor)
    lacking = quotas.lacking()
    others = from_others(snapshot, gang, lacking)
    quotas.enter()
    # Whoever stays within its own has a right to it, whatever others have.
    is_owed = quotas.stays_within_own()
    quotas.leave()
    if not is_owed:
        others = [victim for victim in others if _evicted(victim) < EVICTED_FOR_SHARES_MAX]
    pool = quotas.useful([*own_victims(snapshot, gang), *others], lacking)
    # The share of its queue before each victim of the order that was tried last.
    before: dict[int, Share] = {}

    def admissible(candidates: Sequence[Victim]) -> list[Victim]:
        order, rules = _fair_order(snapshot, quotas, lacking, candidates, is_owed=is_owed)
        before.clear()
        before.update({id(victim): rule for victim, rule in zip(order, rules, strict=True)})
        return order

    def has_quota(_: Sequence[Victim]) -> bool:
        return quotas.has_quota()

    def is_fair(victims: Sequence[Victim]) -> bool:
        return all(_still_fair(quotas, v, before.get(id(v), _NONE)) for v in victims)

    # The walk itself kept the rule; whoever is spared must leave it kept.
    search = Search(snapshot, quotas, flavor, has_quota, may_spare=is_fair)
    candidates = in_order(snapshot, pool, gang.queue)
    return fewest_victims(search, candidates, admissible, by_domain=by_domain)


def _evicted(victim: Victim) -> int:
    return sum(restart.cause is Cause.PREEMPTION for restart in victim.job.restarts)


def _still_fair(quotas: Quotas, victim: Victim, before: Share) -> bool:
    """The rule by which the victim was taken, on what is left: see `_fair_order`."""
    met = quotas.meet(victim.queue)
    if met is None:
        return True
    mine = quotas.share_with(met[0])
    return mine <= quotas.share(met[1]) or mine < before


def _fair_order(
    snapshot: Snapshot,
    quotas: Quotas,
    lacking: Sequence[QuotaTree],
    candidates: Sequence[Victim],
    *,
    is_owed: bool,
) -> tuple[list[Victim], list[Share]]:
    """Candidates as the strategies take them, each with its queue's share before it goes."""
    order: list[Victim] = []
    shares_before: list[Share] = []
    quotas.enter()
    left: Lines = {}
    for victim in candidates:
        left.setdefault(victim.queue, []).append(victim)
    refused: Lines = {}
    place = {id(victim): index for index, victim in enumerate(candidates)}
    for number, strategy in enumerate(snapshot.world.policy.strategies):
        while left:
            queue = _heaviest(quotas, lacking, left, place)
            if queue is None:
                break
            if queue == quotas.queue:
                _pick(quotas, left, queue, 0, order)
                shares_before.append(_ALL)
                continue
            met = quotas.meet(queue)
            assert met is not None
            mine, theirs = quotas.share(met[0]), quotas.share(met[1])
            index = _first_fair(quotas, strategy, left[queue], met[1], mine, theirs)
            if is_owed:
                index, theirs = 0, _ALL
            if index is None:
                refused.setdefault(queue, []).extend(left.pop(queue))
                continue
            refused.setdefault(queue, []).extend(left[queue][:index])
            _pick(quotas, left, queue, index, order)
            shares_before.append(theirs)
            if number:
                # A second rule is applied once to each queue.
                left.pop(queue, None)
        left, refused = {q: line for q, line in refused.items() if line}, {}
    quotas.add(no_doubles(order))
    quotas.leave()
    return order, shares_before


def _pick(quotas: Quotas, left: Lines, queue: str, index: int, order: list[Victim]) -> None:
    victim = left[queue][index]
    left[queue] = left[queue][index + 1 :]
    if not left[queue]:
        del left[queue]
    # A gang that goes whole takes the place of the ranks that it would have given.
    quotas.add(ranks_given_by(victim, order))
    quotas.remove([victim])
    order.append(victim)


def _heaviest(
    quotas: Quotas, lacking: Sequence[QuotaTree], left: Lines, place: dict[int, int]
) -> str | None:
    """The queue with the largest share among those that borrow, and its own, level by level down.

    Of equal ones the one whose first candidate comes first.
    """
    offers = [
        (quotas.way_down(queue), place[id(line[0])], queue)
        for queue, line in left.items()
        if queue == quotas.queue or is_over(lacking, queue, quotas.queue)
    ]
    return min(offers)[2] if offers else None


def _first_fair(
    quotas: Quotas, strategy: str, line: Sequence[Victim], branch: str, mine: Share, theirs: Share
) -> int | None:
    if strategy == "initial":
        return 0 if mine < theirs else None
    for index, victim in enumerate(line):
        quotas.remove([victim])
        after = quotas.share(branch)
        quotas.add([victim])
        if mine <= after:
            return index
    return None
