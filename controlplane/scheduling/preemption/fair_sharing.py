"""Preemption by fair shares of borrowed quota: Kueue's fair sharing, with two differences.

The share of a branch is what it uses beyond its own quota, as a part of the quota of its parent,
divided by its weight; of several resources the largest share counts (dominant resource share). The
search follows Kueue's `fairPreemptions`:

1. Candidates are gangs of queues that borrow, and gangs of the preemptor's own queue that it may
   preempt. The queue with the largest share is asked next, level by level down the tree.
2. The preemptor's branch and the victim's branch are compared below their common ancestor, with the
   preemptor counted in. Under the strategy `final` a victim goes if the preemptor's share is then
   at most the victim's share without the victim; under `initial` if it is smaller than the victim's
   share before. The strategies of the policy are applied in their order; the second one takes at
   most one gang from each queue.
3. A gang that stays within its own quota takes back lent quota whatever the shares are.
4. Victims that turn out to be needless are spared (`victim_search.py`).

The differences from Kueue: a victim is spared only if the rule by which the others were taken still
holds without it (sparing regardless is how fair sharing there can preempt for ever, kueue#14543);
and a gang is evicted for equal shares among borrowers at most EVICTED_FOR_SHARES_MAX times in its
life. Priority inside a queue may raise the queue's share, and fair shares may take from a higher
priority for a lower one, so both together could otherwise preempt in circles.
"""

from collections.abc import Sequence
from math import inf

from controlplane.model.failures import Cause
from controlplane.scheduling.gang import Gang
from controlplane.scheduling.preemption.rules import from_others, own_victims
from controlplane.scheduling.preemption.victim_domains import fewest_victims
from controlplane.scheduling.preemption.victim_search import (
    Eviction,
    Search,
    Victim,
    in_order,
    no_doubles,
    ranks_given_by,
)
from controlplane.scheduling.quota.gang_quotas import Quotas, Share, is_over
from controlplane.scheduling.quota.tree import QuotaTree
from controlplane.scheduling.snapshot import Snapshot

# A gang that was evicted this often is not evicted for one that borrows as well.
EVICTED_FOR_SHARES_MAX = 3

_NONE: Share = (0.0, 0.0)
_ALL: Share = (inf, inf)
# The candidates of each queue, in order.
CandidatesByQueue = dict[str, list[Victim]]


def victims_by_share(
    snapshot: Snapshot, gang: Gang, flavor: str, *, by_domain: bool
) -> Eviction | None:
    """Victims by fair shares, or None."""
    quotas = Quotas(snapshot, gang, flavor)
    lacking = quotas.lacking()
    others = from_others(snapshot, gang, lacking)
    quotas.enter()
    # A gang that stays within its queue's own quota has a right to it, whatever the shares are.
    is_owed = quotas.stays_within_own()
    quotas.leave()
    if not is_owed:
        others = [victim for victim in others if _evicted(victim) < EVICTED_FOR_SHARES_MAX]
    pool = quotas.useful([*own_victims(snapshot, gang), *others], lacking)
    # The share of its queue before each victim, in the order that was tried last.
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

    # The order obeys the rule; it must still hold after a victim is spared.
    search = Search(snapshot, quotas, flavor, has_quota, may_spare=is_fair)
    candidates = in_order(snapshot, pool, gang.queue)
    return fewest_victims(search, candidates, admissible, by_domain=by_domain)


def _evicted(victim: Victim) -> int:
    """How often the victim was preempted before."""
    return sum(restart.cause is Cause.PREEMPTION for restart in victim.job.restarts)


def _still_fair(quotas: Quotas, victim: Victim, before: Share) -> bool:
    """Whether the rule by which the victim was taken holds for what is left; see `_fair_order`."""
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
    """Candidates in the order of the strategies, each with its branch's share before its eviction."""
    order: list[Victim] = []
    shares_before: list[Share] = []
    quotas.enter()
    left: CandidatesByQueue = {}
    for victim in candidates:
        left.setdefault(victim.queue, []).append(victim)
    refused: CandidatesByQueue = {}
    place = {id(victim): index for index, victim in enumerate(candidates)}
    for number, strategy in enumerate(snapshot.cluster.policy.strategies):
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
                # The second strategy is applied once to each queue.
                left.pop(queue, None)
        left, refused = {q: victims for q, victims in refused.items() if victims}, {}
    quotas.add(no_doubles(order))
    quotas.leave()
    return order, shares_before


def _pick(
    quotas: Quotas, left: CandidatesByQueue, queue: str, index: int, order: list[Victim]
) -> None:
    victim = left[queue][index]
    left[queue] = left[queue][index + 1 :]
    if not left[queue]:
        del left[queue]
    # A gang that is evicted whole replaces its ranks that were taken before.
    quotas.add(ranks_given_by(victim, order))
    quotas.remove([victim])
    order.append(victim)


def _heaviest(
    quotas: Quotas, lacking: Sequence[QuotaTree], left: CandidatesByQueue, place: dict[int, int]
) -> str | None:
    """The queue with the largest share, level by level down the tree; None if there is none.

    Only queues that borrow and the preemptor's own queue count. Of equal shares the queue whose
    first candidate is most preferred wins.
    """
    offers = [
        (quotas.way_down(queue), place[id(victims[0])], queue)
        for queue, victims in left.items()
        if queue == quotas.queue or is_over(lacking, queue, quotas.queue)
    ]
    return min(offers)[2] if offers else None


def _first_fair(
    quotas: Quotas,
    strategy: str,
    victims: Sequence[Victim],
    branch: str,
    mine: Share,
    theirs: Share,
) -> int | None:
    """The index of the first gang in `line` that the strategy takes, or None."""
    if strategy == "initial":
        return 0 if mine < theirs else None
    for index, victim in enumerate(victims):
        quotas.remove([victim])
        after = quotas.share(branch)
        quotas.add([victim])
        if mine <= after:
            return index
    return None
