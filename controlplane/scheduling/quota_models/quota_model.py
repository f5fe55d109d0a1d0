"""What a quota model is.

Queues form trees with quotas. A quota model answers four questions about them; the scheduling pass, the search for the
fewest victims, placement, backfill and reasons are the same for all models:

    order     which of two queues' heads is tried first?
    admits    may this gang use its queue's quota now, or at a later instant?
    victims   which running gangs may be preempted for it?
    explain   which quota is short, and what keeps it from preempting?

A model is a subclass of `QuotaModel` with one instance in `QUOTA_MODELS`. Its methods must be pure: the same arguments
give the same result, since a log is decided again by them. `docs/adding-a-policy.md` adds one.

The registry is here, without the models, because they use modules that look a model up. `built_in.py` fills it when
the package `controlplane.scheduling` is imported.
"""

from typing import TYPE_CHECKING, Any, ClassVar

from controlplane.model.policy import Preempt
from controlplane.model.reasons import Wait, WaitReason
from controlplane.model.registry import Registry
from controlplane.scheduling.gang import Gang
from controlplane.state.queue_order import QueueKey

if TYPE_CHECKING:
    from controlplane.scheduling.preemption.victim_search import Eviction, Victim
    from controlplane.scheduling.quota.demand import Demand
    from controlplane.scheduling.snapshot import Snapshot


class QuotaModel:
    """Base of all models: queues are ordered by priority, only ceilings count, and no gang is preempted."""

    # Under this name a policy refers to it. It is recorded in events: never change it.
    name: ClassVar[str]
    # One line for reports and help texts, in lower case and without a full stop.
    description: ClassVar[str]
    # Whether the model applies even if no queue has a quota. If not, and no queue has more than a ceiling of its own,
    # heads are tried in the order of priority and arrival, and no quota is counted.
    applies_without_quotas: ClassVar[bool] = True
    # Whether a gang may preempt without any preemption rule of the policy or of its queue.
    preempts_by_default: ClassVar[bool] = False
    # What `Preempt()`, the policy's default, means under this model.
    default_preempt: ClassVar[Preempt] = Preempt()
    # Whether a blocked head that may not reclaim keeps its queue's quota from borrowers.
    reserves_for_head: ClassVar[bool] = False
    # The reason of a gang that may preempt in principle, but finds no victims.
    no_victims: ClassVar[WaitReason] = WaitReason.NO_PREEMPTION_CANDIDATES

    def order(self, snapshot: "Snapshot", gang: Gang, place: QueueKey) -> Any:
        """The head with the smallest key is tried first; `place` is the head's place in its own queue.

        All keys must be comparable. They are computed again after each start of the pass.
        """
        return place

    def admits(self, demand: "Demand") -> WaitReason | None:
        """None if the quotas of GPUs allow the gang, else the reason why it waits.

        Quotas of other resources are checked for all models alike.
        """
        return demand.above_ceiling()

    def victims(
        self, snapshot: "Snapshot", gang: Gang, flavor: str, *, by_domain: bool
    ) -> "Eviction | None":
        """Victims that let the gang start, or None.

        Without `by_domain` victims are tried only in order of preference, wherever they run.
        """
        return None

    def reclaim_candidates(self, snapshot: "Snapshot", gang: Gang, flavor: str) -> "list[Victim]":
        """Gangs that may be preempted, in order, while others are moved aside (`Policy.consolidate`)."""
        return []

    def explain(
        self, snapshot: "Snapshot", gang: Gang, flavor: str, code: WaitReason
    ) -> list[Wait]:
        """The quotas of GPUs, other than ceilings, that are too small for the gang now; `code` is why it waits."""
        return []


QUOTA_MODELS: Registry[QuotaModel] = Registry("quota model")
