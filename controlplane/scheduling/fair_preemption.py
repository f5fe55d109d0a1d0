"""Who gives way by fair shares of what is borrowed: Kueue's rules, with one difference.

A victim is spared again only if the rule by which the others were taken still holds without it. (Sparing
regardless is how fair sharing there can preempt for ever, kueue#14543.) A share is the largest part that a
queue has of anything, not of GPUs alone.
"""

from collections.abc import Sequence

from controlplane.scheduling.gangs import Gang
from controlplane.scheduling.preemption import from_others, own_victims
from controlplane.scheduling.quota import QuotaTree
from controlplane.scheduling.quotas import Quotas, is_over
from controlplane.scheduling.snapshot import Snapshot
from controlplane.scheduling.victims import Eviction, Search, Victim, in_order

# The candidates of each queue, in order.
Lines = dict[str, list[Victim]]


def fair(snapshot: Snapshot, gang: Gang, flavor: str) -> Eviction | None:
    quotas = Quotas(snapshot, gang, flavor)
    lacking = quotas.lacking()
    pool = [*own_victims(snapshot, gang), *from_others(snapshot, gang, lacking)]
    lines: Lines = {}
    for victim in in_order(snapshot, pool, gang.queue):
        lines.setdefault(victim.queue, []).append(victim)
    order, rules = _fair_order(snapshot, quotas, lacking, lines)
    before = {id(victim): rule for victim, rule in zip(order, rules, strict=True)}

    def has_quota(_: Sequence[Victim]) -> bool:
        return quotas.has_quota()

    def is_fair(victims: Sequence[Victim]) -> bool:
        return all(_still_fair(quotas, v, before.get(id(v), 0.0)) for v in victims)

    # The walk itself kept the rule; whoever is spared must leave it kept.
    search = Search(snapshot, quotas, flavor, has_quota, may_spare=is_fair)
    return search.fewest(order)


def _still_fair(quotas: Quotas, victim: Victim, before: float) -> bool:
    """The rule by which the victim was taken, on what is left: see `_fair_order`."""
    met = quotas.meet(victim.queue)
    if met is None:
        return True
    mine = quotas.share_with(met[0])
    return mine <= quotas.share(met[1]) or mine < before


def _fair_order(
    snapshot: Snapshot, quotas: Quotas, lacking: Sequence[QuotaTree], lines: Lines
) -> tuple[list[Victim], list[float]]:
    """Candidates as the strategies take them, each with its queue's share before it goes."""
    order: list[Victim] = []
    shares_before: list[float] = []
    quotas.enter()
    left = {queue: list(line) for queue, line in lines.items()}
    refused: Lines = {}
    for strategy in snapshot.world.policy.strategies:
        while left:
            queue = _heaviest(quotas, lacking, left)
            if queue is None:
                break
            if queue == quotas.queue:
                _pick(quotas, left, queue, 0, order)
                shares_before.append(float("inf"))
                continue
            met = quotas.meet(queue)
            assert met is not None
            mine, theirs = quotas.share(met[0]), quotas.share(met[1])
            index = _first_fair(quotas, strategy, left[queue], met[1], mine, theirs)
            if index is None:
                refused.setdefault(queue, []).extend(left.pop(queue))
                continue
            refused.setdefault(queue, []).extend(left[queue][:index])
            _pick(quotas, left, queue, index, order)
            shares_before.append(theirs)
        left, refused = {q: line for q, line in refused.items() if line}, {}
    quotas.add(order)
    quotas.leave()
    return order, shares_before


def _pick(quotas: Quotas, left: Lines, queue: str, index: int, order: list[Victim]) -> None:
    victim = left[queue][index]
    left[queue] = left[queue][index + 1 :]
    if not left[queue]:
        del left[queue]
    quotas.remove([victim])
    order.append(victim)


def _heaviest(quotas: Quotas, lacking: Sequence[QuotaTree], left: Lines) -> str | None:
    """The queue with the largest share among those that borrow; its own when there is no other."""
    best: tuple[float, str] | None = None
    for queue in left:
        if queue == quotas.queue or not is_over(lacking, queue, quotas.queue):
            continue
        met = quotas.meet(queue)
        assert met is not None
        offer = (-quotas.share(met[1]), queue)
        best = offer if best is None else min(best, offer)
    if quotas.queue in left and (best is None or quotas.share(quotas.queue) > -best[0]):
        return quotas.queue
    return None if best is None else best[1]


def _first_fair(
    quotas: Quotas, strategy: str, line: Sequence[Victim], branch: str, mine: float, theirs: float
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
