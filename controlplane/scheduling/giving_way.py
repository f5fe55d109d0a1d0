"""Which rules say who gives way: one row for each model of quotas."""

from collections.abc import Callable

from controlplane.scheduling.fair_preemption import fair
from controlplane.scheduling.gangs import Gang
from controlplane.scheduling.preemption import (
    by_priority,
    classic,
    deserved,
    fair_preempt,
    nobody,
)
from controlplane.scheduling.quota import ANY
from controlplane.scheduling.snapshot import Snapshot
from controlplane.scheduling.victims import Eviction
from controlplane.sharing import QuotaModel

_MODELS: dict[QuotaModel, Callable[[Snapshot, Gang, str, bool], Eviction | None]] = {
    QuotaModel.CLASSIC: classic,
    QuotaModel.FAIR: fair,
    QuotaModel.DESERVED: deserved,
    QuotaModel.PROGRESSIVE: nobody,
    QuotaModel.FAIR_PREEMPT: fair_preempt,
    QuotaModel.HOME_AWAY: by_priority,
}


def evict_for(
    snapshot: Snapshot, gang: Gang, flavor: str = ANY, *, by_domain: bool = True
) -> Eviction | None:
    """Victims that let the gang in by the rules of the model, none of them needless, or None.

    Without `by_domain` only the preferred victims are looked at, wherever they are.
    """
    return _MODELS[snapshot.world.policy.model](snapshot, gang, flavor, by_domain)
