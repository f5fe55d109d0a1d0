"""Which gangs a waiting gang may preempt, as far as several quota models have it in common.

A model makes a list of candidates in order of preference, and a condition under which the preemptor may start;
`victim_search.Search` finds the fewest victims. Candidates are gangs of the own queue, by priority as `within_queue`
allows or by the key of a discipline that preempts, and gangs of other queues that borrow.
"""

from collections.abc import Sequence

from controlplane.model.policy import Preempt, Reclaim, WithinQueue
from controlplane.scheduling.gang import Gang
from controlplane.scheduling.preemption.victim_search import (
    Eviction,
    Search,
    Victim,
    in_order,
    running,
)
from controlplane.scheduling.quota.gang_quotas import Quotas, is_over
from controlplane.scheduling.quota.tree import Branch, QuotaTree
from controlplane.scheduling.snapshot import Snapshot


def rules_for(snapshot: Snapshot, queue: str) -> Preempt:
    """The queue's preemption rules; the model's default where there are none."""
    rules = snapshot.preempt(queue)
    return snapshot.cluster.quota_model.default_preempt if rules == Preempt() else rules


def own_victims(snapshot: Snapshot, gang: Gang) -> list[Victim]:
    """Running gangs of the gang's own queue that it may preempt."""
    within = rules_for(snapshot, gang.queue).within_queue
    if snapshot.cluster.discipline(gang.queue).preempts:
        return _victims_by_key(snapshot, gang)
    if within is WithinQueue.NEVER:
        return []
    newer_too = within is WithinQueue.LOWER_OR_NEWER_EQUAL
    waiting = snapshot.job(gang.id)
    place_of = snapshot.cluster.queue_key
    candidates = [
        victim
        for victim in running(snapshot, gang.queue)
        if victim.priority < gang.priority
        or (newer_too and _is_newer_equal(victim, gang, waiting.submitted_position))
    ]
    if not candidates:
        return []
    # A victim that would queue ahead of the gang would only start in its place again.
    place = place_of(waiting)
    return [victim for victim in candidates if place < place_of(victim.job)]


def _victims_by_key(snapshot: Snapshot, gang: Gang) -> list[Victim]:
    """Where the discipline preempts: gangs of lower priority, or with a larger key by now."""
    discipline = snapshot.cluster.discipline(gang.queue)
    own = snapshot.cluster.queue_key(snapshot.job(gang.id))
    victims = []
    for victim in running(snapshot, gang.queue):
        running_key = discipline.running_key(victim.job, snapshot.now)
        # Its place in the queue if it were stopped now.
        place = snapshot.cluster.queue_key(victim.job)._replace(discipline_key=running_key)
        loses = (victim.priority, -running_key) < (gang.priority, -own.discipline_key)
        if own < place and loses:
            victims.append(victim)
    return victims


def _is_newer_equal(victim: Victim, gang: Gang, position: int) -> bool:
    return victim.priority == gang.priority and victim.job.submitted_position > position


def from_others(snapshot: Snapshot, gang: Gang, trees: Sequence[QuotaTree]) -> list[Victim]:
    """Running gangs of other queues of the same tree that the gang may reclaim from.

    `trees` are the quotas in which the gang lacks something.
    """
    reclaim = rules_for(snapshot, gang.queue).reclaim
    branch = trees[0].branches[gang.queue]
    if reclaim is Reclaim.NEVER or branch.parent is None:
        return []
    candidates: list[Victim] = []
    for name in _same_tree(branch):
        if name != gang.queue and is_over(trees, name, gang.queue):
            candidates += [
                victim
                for victim in running(snapshot, name)
                if reclaim is Reclaim.ANY or victim.priority < gang.priority
            ]
    return candidates


def _same_tree(branch: Branch) -> list[str]:
    """The names of all queues in the tree of `branch`, sorted; cached at the root."""
    root = branch.root()
    if not root.below:
        todo = [root]
        while todo:
            here = todo.pop()
            root.below.append(here.name)
            todo += here.children
        root.below.sort()
    return root.below


def victims_of_own_queue(snapshot: Snapshot, gang: Gang, flavor: str) -> Eviction | None:
    """Victims of the gang's own queue that let it start, or None."""
    candidates = in_order(snapshot, own_victims(snapshot, gang))
    return search_below_ceilings(snapshot, gang, flavor).fewest(candidates)


def search_below_ceilings(snapshot: Snapshot, gang: Gang, flavor: str) -> Search:
    """A search in which ceilings and quotas of other resources count, but not quotas of GPUs."""
    quotas = Quotas(snapshot, gang, flavor)

    def is_below_ceiling(_: Sequence[Victim]) -> bool:
        return quotas.is_below_ceiling() and quotas.has_others()

    return Search(snapshot, quotas, flavor, is_below_ceiling)
