"""Nominal quota with borrowing, as Kueue's default.

Gangs within nominal quota go before gangs that borrow. Victims are chosen as in Kueue's `classicalPreemptions`: gangs
of the own queue that `within_queue` allows, and gangs of other queues that borrow (`preemption/reclaim.py`). There are
up to two tries. Without borrowing, any candidate may go. With borrowing, the `rest` of `reclaim.Others` must have a
lower priority than the preemptor and at most `borrow_below`; without `borrow_below` none of it may go. A candidate
counts only while its queue still borrows after the candidates before it have gone.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from controlplane.scheduling.gang import Gang
from controlplane.scheduling.preemption.reclaim import any_branch_borrows, others_in_tree
from controlplane.scheduling.preemption.rules import own_victims, rules_for
from controlplane.scheduling.preemption.victim_domains import fewest_victims
from controlplane.scheduling.preemption.victim_search import (
    Allowed,
    Eviction,
    Search,
    Victim,
    in_order,
    no_doubles,
    ranks_given_by,
)
from controlplane.scheduling.quota.gang_quotas import Quotas, is_over, is_under
from controlplane.scheduling.quota.tree import QuotaTree
from controlplane.scheduling.quota_models.nominal import NominalQuota
from controlplane.scheduling.quota_models.weights import usage_by_weight
from controlplane.scheduling.snapshot import Snapshot
from controlplane.state.queue_order import QueueKey

_BELOW_ALL_PRIORITIES = -(1 << 62)


class Classic(NominalQuota):
    name = "quota_classic"
    description = "nominal quota with borrowing; a queue reclaims what it lends, as its preemption rules allow"
    applies_without_quotas = False
    reserves_for_head = True

    def order(self, snapshot: Snapshot, gang: Gang, place: QueueKey) -> Any:
        """Gangs within nominal quota before gangs that borrow.

        Where the policy has a half-life of usage, of equal priorities the queue with less recent usage comes first.
        """
        tree = snapshot.tree()
        borrows = tree.borrowing_with(gang.queue, gang.milli)
        if snapshot.cluster.policy.usage_halflife_s is None:
            return borrows, place
        usage = usage_by_weight(snapshot, tree.branches[gang.queue])
        return borrows, place.priority_key, usage, place

    def victims(
        self, snapshot: Snapshot, gang: Gang, flavor: str, *, by_domain: bool
    ) -> Eviction | None:
        own = own_victims(snapshot, gang)
        if not own and not snapshot.cluster.by_request:
            # This is by far the most frequent answer, and quick to compute where only GPUs count.
            key = snapshot.quota_key(gang.queue, flavor)
            branch = snapshot.future_tree(key).branches[gang.queue]
            if not any_branch_borrows(branch):
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
                # Leave out candidates that a borrowing gang may not preempt.
                below = (
                    _BELOW_ALL_PRIORITIES if rules.borrow_below is None else rules.borrow_below + 1
                )
                rest = [victim for victim in rest if victim.priority < min(gang.priority, below)]
            parts = (others.nearer, rest, own)
            lists = [in_order(snapshot, quotas.useful(part, lacking)) for part in parts]
            # Surplus ranks of elastic gangs go first, from every list.
            candidates = sorted((v for part in lists for v in part), key=lambda v: not v.ranks)
            search = Search(snapshot, quotas, flavor, _has_quota(quotas, borrows=borrows))
            admissible = partial(_still_over, quotas, lacking)
            eviction = fewest_victims(search, candidates, admissible, by_domain=by_domain)
            if eviction is not None:
                return eviction
        return None


def _has_quota(quotas: Quotas, *, borrows: bool) -> Allowed:
    """A condition: whether the gang has quota, with or without borrowing."""

    def is_allowed(_: Sequence[Victim]) -> bool:
        return quotas.has_quota() and (borrows or not quotas.would_borrow())

    return is_allowed


def _still_over(
    quotas: Quotas, lacking: Sequence[QuotaTree], victims: Sequence[Victim]
) -> list[Victim]:
    """The victims whose queue still borrows after those before them have gone."""
    admissible: list[Victim] = []
    for victim in victims:
        # A gang that is evicted whole replaces its ranks that were taken before.
        given = ranks_given_by(victim, admissible)
        quotas.add(given)
        if victim.queue == quotas.queue or is_over(lacking, victim.queue, quotas.queue):
            admissible.append(victim)
            quotas.remove([victim])
        else:
            quotas.remove(given)
    quotas.add(reversed(no_doubles(admissible)))
    return admissible
