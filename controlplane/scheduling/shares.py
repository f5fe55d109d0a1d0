"""How much of the cluster each queue may call its own.

`deserved_plus_weight`: what a queue asks for up to its quota, then the rest of the cluster by the
queues' ranks, and within a rank by weight; level by level down the tree. `fair_preempt`: by weight
among the queues that have or want anything.
"""

from collections.abc import Callable, Mapping, Sequence

from controlplane.devices import WHOLE
from controlplane.scheduling.gangs import Gang
from controlplane.scheduling.quota import Branch, QuotaTree
from controlplane.scheduling.snapshot import Snapshot
from controlplane.sharing import QuotaModel

_SplitUp = Callable[[Sequence[Branch], float, Mapping[str, int]], dict[Branch, float]]


def fair_shares(snapshot: Snapshot, tree: QuotaTree, gang: Gang) -> dict[str, int]:
    """Queue -> thousandths of GPUs that are its fair share now."""
    capacity = capacity_milli(snapshot)
    wanted = _wanted(snapshot, tree)
    found: dict[str, int] = {}
    roots = [b for b in tree.branches.values() if b.parent is None]
    split_up = _by_weight if _is_by_weight(snapshot) else _by_deserved
    _descend(roots, capacity, wanted, found, split_up)
    return found


def _is_by_weight(snapshot: Snapshot) -> bool:
    return snapshot.world.policy.model is QuotaModel.FAIR_PREEMPT


def capacity_milli(snapshot: Snapshot) -> int:
    """All devices of nodes that take work."""
    world = snapshot.world
    found = world.about_nodes.get("capacity")
    if found is None:
        found = sum(node.info.gpus for node in world.nodes.values() if node.takes_work) * WHOLE
        world.about_nodes["capacity"] = found
    return int(found)


def _wanted(snapshot: Snapshot, tree: QuotaTree) -> dict[str, int]:
    """What each queue holds and waits for, and all below it."""
    wanted: dict[str, int] = dict.fromkeys(tree.branches, 0)
    for name in snapshot.queues:
        branch = tree.branches[name]
        inner = sum(child.used_below for child in branch.children)
        own = branch.used_below - inner
        own += sum(snapshot.gang(place.job).milli for place in snapshot.line(name).order)
        for above in branch.path():
            wanted[above.name] += own
    return wanted


def _descend(
    siblings: Sequence[Branch],
    pool: float,
    wanted: Mapping[str, int],
    found: dict[str, int],
    split_up: _SplitUp,
) -> None:
    for branch, milli in split_up(siblings, pool, wanted).items():
        found[branch.name] = int(milli + 1e-6)
        if branch.children:
            _descend(branch.children, milli, wanted, found, split_up)


def _most(branch: Branch, wanted: Mapping[str, int]) -> float:
    return min(wanted[branch.name], branch.ceiling)


def _by_deserved(
    siblings: Sequence[Branch], pool: float, wanted: Mapping[str, int]
) -> dict[Branch, float]:
    given: dict[Branch, float] = {}
    for branch in siblings:
        given[branch] = min(_most(branch, wanted), branch.nominal)
    left = pool - sum(given.values())
    for rank in sorted({branch.rank for branch in siblings}, reverse=True):
        left = _pour([b for b in siblings if b.rank == rank], left, wanted, given)
    return given


def _by_weight(
    siblings: Sequence[Branch], pool: float, wanted: Mapping[str, int]
) -> dict[Branch, float]:
    """Everyone's part, whether it can use all of it or not."""
    active = [branch for branch in siblings if wanted[branch.name]]
    weights = sum(branch.weight for branch in active)
    return {
        branch: (pool * branch.weight / weights if branch in active and weights else 0.0)
        for branch in siblings
    }


def _pour(
    siblings: Sequence[Branch],
    left: float,
    wanted: Mapping[str, int],
    given: dict[Branch, float],
) -> float:
    """Gives what is left by weight to who still wants some; what remains is returned.

    In whole devices, since nobody can use a share of one; those that are left over go one by one to
    whoever is furthest from its part.
    """
    thirsty = [b for b in siblings if _most(b, wanted) > given[b] and b.weight > 0]
    while left > 1e-6 and thirsty:
        unit = left / sum(branch.weight for branch in thirsty)
        parts = {b: min(unit * b.weight, _most(b, wanted) - given[b]) for b in thirsty}
        whole = {b: _whole(part, _most(b, wanted) - given[b]) for b, part in parts.items()}
        if not any(whole.values()):
            # Not one whole device for anybody.
            for branch in sorted(thirsty, key=lambda b: (-parts[b], b.name)):
                more = min(WHOLE, left, _most(branch, wanted) - given[branch])
                given[branch] += more
                left -= more
            return left
        for branch, more in whole.items():
            given[branch] += more
            left -= more
        thirsty = [b for b in thirsty if _most(b, wanted) - given[b] > 1e-6]
    return left


def _whole(part: float, wish: float) -> float:
    """Whole devices of a part; a wish that is met, to the last part of a device."""
    return part if part >= wish - 1e-6 else (part + 1e-6) // WHOLE * WHOLE
