"""Whether what a log names is installed: disciplines and quota models may come from other packages."""

from collections.abc import Iterable

from controlplane.disciplines.registry import DISCIPLINES
from controlplane.model import events as e
from controlplane.model.errors import PolicyMissing
from controlplane.model.policy import Policy, Queue
from controlplane.model.registry import UnknownName
from controlplane.scheduling.quota_models.quota_model import QUOTA_MODELS


def check_event(recorded: e.Recorded) -> None:
    """Raise PolicyMissing if the event names what is not installed."""
    try:
        match recorded.event:
            case e.PolicySet(policy=policy):
                check_names(policy, ())
            case e.QueueDefined(queue=queue):
                check_names(None, (queue,))
            case _:
                pass
    except UnknownName as error:
        raise PolicyMissing(recorded.position, str(error)) from None


def check_names(policy: Policy | None, queues: Iterable[Queue]) -> None:
    """Raise UnknownName if the policy or a queue names what is not installed."""
    if policy is not None:
        DISCIPLINES[policy.discipline]
        QUOTA_MODELS[policy.model]
    for queue in queues:
        if queue.discipline is not None:
            DISCIPLINES[queue.discipline]
