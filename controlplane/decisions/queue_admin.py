"""Changes to queues and the policy, and why they may be refused."""

from collections.abc import Iterator

from controlplane.disciplines.registry import DISCIPLINES
from controlplane.model import commands as c
from controlplane.model import events as e
from controlplane.model.dns_names import is_label
from controlplane.model.errors import Rejected
from controlplane.model.policy import Policy, Queue
from controlplane.scheduling.quota_models.quota_model import QUOTA_MODELS
from controlplane.state.state import DEFAULT_QUEUE
from controlplane.state.world import World

GPUS_MAX = 1_000_000_000
AMOUNT_MAX = 1e18
DEPTH_MAX = 32
CYCLE_S_MIN = 0.01
_PACKINGS = ("pack", "spread", "pack_emptiest")
_STRATEGIES = ("final", "initial")


def configured(world: World, command: c.DefineQueue | c.RemoveQueue | c.SetPolicy) -> list[e.Event]:
    """The events of a change to queues or policy. Raises Rejected if it is not allowed."""
    match command:
        case c.DefineQueue():
            return define_queue(world, command)
        case c.RemoveQueue():
            return remove_queue(world, command)
        case c.SetPolicy():
            return set_policy(world, command)


def define_queue(world: World, command: c.DefineQueue) -> list[e.Event]:
    """The event of a new or changed queue; empty if it is the same. Raises Rejected."""
    queue = command.queue
    for problem in _queue_problems(world, queue):
        raise Rejected("invalid_queue", problem)
    return [] if world.queues.get(queue.name) == queue else [e.QueueDefined(queue)]


def _queue_problems(world: World, queue: Queue) -> Iterator[str]:
    if not is_label(queue.name):
        yield f"{queue.name!r} is not a name a queue may have"
    for field in ("gpus_max", "nominal", "borrow_max", "lend_max"):
        number = getattr(queue, field)
        if number is not None and not 0 <= number <= GPUS_MAX:
            yield f"{field}: {number} is not between 0 and {GPUS_MAX}"
    if not 0 <= queue.weight <= GPUS_MAX:
        yield f"weight: {queue.weight} is not between 0 and {GPUS_MAX}"
    names = [flavor.name for flavor in queue.flavors]
    if len(set(names)) < len(names):
        yield "flavors: two of them have the same name"
    named = [quota.name for quota in queue.resources]
    if len(set(named)) < len(named) or "" in named:
        yield "resources: each has a name of its own"
    for quota in queue.resources:
        for number in (quota.nominal, quota.borrow_max, quota.lend_max):
            if number is not None and not 0 <= number <= AMOUNT_MAX:
                yield f"resources: {quota.name}: {number} is not between 0 and {AMOUNT_MAX:g}"
    yield from name_problems(queue)
    if queue.parent:
        yield from _parent_problems(world, queue)


def _parent_problems(world: World, queue: Queue) -> Iterator[str]:
    """What is wrong with the ancestors of a queue: all must exist, without a cycle."""
    above, depth = queue.parent, 0
    while above:
        if above == queue.name:
            yield f"parent: {queue.name} would be above itself"
            return
        known = world.queues.get(above)
        if known is None:
            names = ", ".join(sorted(world.queues))
            yield f"parent: there is no queue {above!r}; the queues are: {names}"
            return
        above, depth = known.parent, depth + 1
        if depth > DEPTH_MAX:
            yield f"parent: a tree of queues may be {DEPTH_MAX} deep"
            return


def remove_queue(world: World, command: c.RemoveQueue) -> list[e.Event]:
    """The event of a removed queue. Raises Rejected if it is missing, the default, or in use."""
    name = command.name
    if name not in world.queues:
        raise Rejected("no_such_queue", f"there is no queue {name!r}")
    if name == DEFAULT_QUEUE.name:
        raise Rejected("invalid_queue", "the queue default cannot be deleted")
    below = sorted(q.name for q in world.queues.values() if q.parent == name)
    if below:
        raise Rejected("queue_in_use", f"{', '.join(below)} would lose what is above them")
    jobs = sum(job.spec.queue == name for job in world.jobs.values())
    jobs += sum(owner.spec.job.queue == name for owner in world.owners.values())
    if jobs:
        raise Rejected("queue_in_use", f"queue {name} still has {jobs} jobs, finished ones counted")
    return [e.QueueRemoved(name)]


def set_policy(world: World, command: c.SetPolicy) -> list[e.Event]:
    """The event of a changed policy; empty if it is the same. Raises Rejected."""
    policy = command.policy
    for problem in _policy_problems(policy):
        raise Rejected("invalid_policy", problem)
    return [] if world.policy == policy else [e.PolicySet(policy)]


def name_problems(settings: Policy | Queue) -> Iterator[str]:
    """Names in the settings that are not registered, each with those that are."""
    name = settings.discipline
    if name is not None and name not in DISCIPLINES:
        yield f"discipline: {name!r} is not one of {', '.join(DISCIPLINES.names)}"
    if isinstance(settings, Policy) and settings.model not in QUOTA_MODELS:
        yield f"model: {settings.model!r} is not one of {', '.join(QUOTA_MODELS.names)}"


def _policy_problems(policy: Policy) -> Iterator[str]:
    yield from name_problems(policy)
    if policy.packing not in _PACKINGS:
        yield f"packing: {policy.packing!r} is not one of {', '.join(_PACKINGS)}"
    if not policy.strategies or any(name not in _STRATEGIES for name in policy.strategies):
        yield f"strategies: each must be one of {', '.join(_STRATEGIES)}, and one must be there"
    if "node" in policy.levels or len(set(policy.levels)) < len(policy.levels):
        yield "levels: names must differ, and `node` is the level below all of them"
    numbers = {
        "ageing_per_hour": policy.ageing_per_hour,
        "usage_halflife_s": policy.usage_halflife_s,
        "estimate_s_default": policy.estimate_s_default,
        "planned_max": policy.planned_max,
        "protected_s": policy.protected_s,
        "second_chance_s_max": policy.second_chance_s_max,
        "quarantine_after": policy.quarantine_after,
        "starts_per_cycle_max": policy.starts_per_cycle_max,
        "cycle_s": policy.cycle_s,
    }
    for field, number in numbers.items():
        if number is not None and not 0 <= number <= GPUS_MAX:
            yield f"{field}: {number} is not between 0 and {GPUS_MAX}"
    if policy.starts_per_cycle_max == 0:
        yield "starts_per_cycle_max: with 0 nothing would ever start; leave it out for no limit"
    if 0 <= policy.cycle_s < CYCLE_S_MIN:
        yield f"cycle_s: {policy.cycle_s} is less than {CYCLE_S_MIN}; a cycle has to last a while"
    if policy.usage_halflife_s == 0:
        yield "usage_halflife_s: nothing is halved in no time; leave it out to forget at once"
