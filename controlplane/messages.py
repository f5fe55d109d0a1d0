"""The one renderer of messages: reasons and facts in, plain English out.

Events and the state hold codes and typed facts (`model/reasons.py`, `model/failures.py`, `model/obstacle.py`).
The CLI, the HTTP API with its dashboard, Kubernetes conditions and events, and studies show what this module
makes of them; nothing reads a message to decide anything. Each table below has one function for each code or
each struct of facts, and a test compares the tables with the types.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, assert_never

from msgspec import Struct

from controlplane.lifecycle.attempt import NOT_READY, Rank, missing
from controlplane.lifecycle.job import Job
from controlplane.lifecycle.owner import Owner
from controlplane.model import reasons as r
from controlplane.model.dependencies import Condition, Dependency
from controlplane.model.failures import Cause, Failure, Restart
from controlplane.model.obstacle import Obstacle, Remedy
from controlplane.model.owners import ArraySpec, OwnerFailure
from controlplane.model.phases import OwnerPhase, Phase
from controlplane.model.reasons import (
    TIERS,
    CordonReason,
    Facts,
    FailureReason,
    JobName,
    Loss,
    LossReason,
    NeverFits,
    Wait,
    WaitReason,
)
from controlplane.model.resources import in_units, noun

WHOLE = 1_000


class Reason(Struct, frozen=True, kw_only=True):
    """One reason why a job does not run, with the numbers behind it.

    `code` is stable and `message` is for people. `by_domain` has, for each domain of the topology or
    each node, what would fit there. `helps` is what would let the job start. `limit` is the limit that
    was reached, and `until` the time at which the reason ends by itself.
    """

    code: str
    message: str
    tier: str = ""
    needed: int | None = None
    available: int | None = None
    by_domain: dict[str, str] = {}
    helps: str = ""
    limit: int | None = None
    until: float | None = None


# ---------------------------------------------------------------- why a job in the queue waits


def wait_text(wait: Wait) -> str:
    if wait.facts is None:
        return WAITS[wait.code](wait)
    return WAIT_FACTS[type(wait.facts)](wait, wait.facts)


def wait_reason(wait: Wait) -> Reason:
    """The reason as `why` and the API show it, with what would let the job start."""
    facts = wait.facts
    return Reason(
        code=wait.code,
        message=wait_text(wait),
        tier=TIERS.get(wait.code, ""),
        needed=wait.needed,
        available=wait.available,
        by_domain=_by_domain(wait),
        helps=_helps(wait),
        limit=facts.limit if isinstance(facts, r.CycleFull) else None,
        until=facts.until if isinstance(facts, r.CycleFull) else None,
    )


def _gpus_free(wait: Wait) -> str:
    if wait.needed is None:
        return "jobs that were ahead of it took what was free"
    return f"it needs {wait.needed} GPUs; {wait.available} are free"


def _gpus_elsewhere(wait: Wait) -> str:
    return f"{_gpus_free(wait)}, but not where its ranks could use them"


def _quota_left(wait: Wait) -> str:
    text = f"it needs {wait.needed} GPUs of quota; its queue can get {wait.available} more now"
    reserved = wait.code is WaitReason.BLOCKED_BY_RESERVED_CAPACITY
    return f"{text}; the rest is reserved for a job ahead of it" if reserved else text


# For a wait without facts.
WAITS: dict[WaitReason, Callable[[Wait], str]] = {
    WaitReason.GANG_INCOMPLETE: lambda _: "not all members of its gang have been submitted",
    WaitReason.GROUP_INCOMPLETE: lambda _: "not all gangs of its group have been submitted",
    WaitReason.GROUP_INCOMPLETE_CAPACITY: lambda _: (
        "the gangs of its group start together, and there is no room for all of them now"
    ),
    WaitReason.QUEUE_LIMIT: _gpus_free,
    WaitReason.INSUFFICIENT_QUOTA: _quota_left,
    WaitReason.BLOCKED_BY_RESERVED_CAPACITY: _quota_left,
    WaitReason.NON_PREEMPTIBLE_OVER_QUOTA: lambda wait: (
        f"it needs {wait.needed} GPUs and cannot be preempted; jobs that cannot be preempted must "
        f"stay within their queue's quota of {wait.available} GPUs"
    ),
    WaitReason.FAIR_SHARE: lambda _: (
        "its queue already has its fair share, or no other queue has more than its own"
    ),
    WaitReason.NO_PREEMPTION_CANDIDATES: lambda _: (
        "too few of the running jobs may be preempted for it, or none"
    ),
    WaitReason.INSUFFICIENT_CAPACITY: _gpus_free,
    WaitReason.NO_MATCHING_NODE: lambda _: "no node matches its node selector and its tolerations",
    WaitReason.FRAGMENTED: _gpus_elsewhere,
    WaitReason.TOPOLOGY_UNSATISFIED: _gpus_elsewhere,
    WaitReason.WAITING_FOR_VICTIMS: lambda _: (
        "waiting for preempted jobs to release what they hold"
    ),
    WaitReason.WOULD_DELAY_PLANNED_START: lambda _: (
        "if it started now, it would delay the planned start of a job ahead of it"
    ),
}


def _ceiling(wait: Wait, facts: r.CeilingReached) -> str:
    left = f"queue {facts.queue} has {wait.available} left of its ceiling of {facts.ceiling}"
    return f"it needs {wait.needed} GPUs; {left}"


def _resource_quota(wait: Wait, facts: r.ResourceQuotaShort) -> str:
    return (
        f"its pods request {facts.needed:g} of {facts.resource}; "
        f"its queue can get {facts.available:g} more now"
    )


def _resource(wait: Wait, facts: r.ResourceShort) -> str:
    ranks = "its rank needs" if wait.needed == 1 else f"each of {wait.needed} ranks needs"
    or_more = "" if facts.least == facts.most else " or more"
    text = f"{ranks} {in_units(facts.resource, facts.least)} {noun(facts.resource)}{or_more}"
    if facts.nodes:
        first = facts.nodes[0]
        text += f"; {first.node} has {_amount_free(facts.resource, first)}"
    return f"{text}, and no other node has more" if facts.other_nodes else text


def _amount_free(resource: str, amount: r.NodeAmount) -> str:
    free, total = in_units(resource, amount.free), in_units(resource, amount.total)
    return f"{free} of {total} {noun(resource)} free"


def _scattered(wait: Wait, facts: r.ResourcesScattered) -> str:
    return (
        f"some nodes have enough {_names(facts.resources)}, but too few have enough of all of them "
        "for its ranks"
    )


def _names(resources: tuple[str, ...]) -> str:
    return " and ".join(noun(name).removeprefix("of ") for name in resources)


def _shares(wait: Wait, facts: r.SharesShort) -> str:
    share = f"{facts.share_milli / WHOLE:g} of a GPU"
    ranks = (
        f"a rank needs {share}"
        if wait.needed == 1
        else f"{wait.needed} ranks need up to {share} each"
    )
    free = f"{facts.gpus_free} GPUs are free" if facts.gpus_free else "no GPU is free"
    left = f"the most that is left of a shared one is {facts.left_milli / WHOLE:g}"
    return f"{ranks}; {free}, and {left}"


def _fragments(wait: Wait, facts: r.NodesTooFull) -> str:
    return (
        f"{wait.available} GPUs are free, but not {facts.gpus} on one node for every rank; "
        f"the most on one node is {facts.most}"
    )


def _domains(wait: Wait, facts: r.DomainsShort) -> str:
    ranks, level = wait.needed or 0, facts.level
    most = min(wait.available or 0, ranks)
    if wait.code is WaitReason.NO_EXCLUSIVE_DOMAIN:
        if most >= ranks:
            return f"it asks for a {level} of its own, and no {level} is empty"
        return f"no empty {level} has room for {ranks} ranks"
    if facts.slice_size:
        return f"{ranks} ranks in groups of {facts.slice_size} in one {level} each do not fit"
    return f"{ranks} ranks must be in one {level}; the most that one takes is {most}"


def _head(wait: Wait, facts: r.HeadWaits) -> str:
    job = "a job of another namespace" if facts.job is None else job_name(facts.job)
    return f"{job} is ahead of it, needs {facts.gpus:g} GPUs and waits, too"


def _not_up(wait: Wait, facts: r.RanksNotUp) -> str:
    others = f" and {facts.others} more" if facts.others else ""
    return f"{facts.rank_name}{others}: {end_text(reason=facts.reason, detail=facts.detail)}"


def job_name(job: JobName) -> str:
    return f"{job.namespace}/{job.name}"


def _cycle(wait: Wait, facts: r.CycleFull) -> str:
    gangs = "1 gang starts" if facts.limit == 1 else f"{facts.limit} gangs start"
    return (
        f"at most {gangs} in one scheduling cycle, and this cycle is full; "
        "it is considered again in the next"
    )


def _victims(wait: Wait, facts: r.VictimsLeaving) -> str:
    jobs, their = ("1 job", "its") if facts.jobs == 1 else (f"{facts.jobs} jobs", "their")
    return f"waiting for {jobs} to release {their} GPUs"


def _never(wait: Wait, facts: NeverFits) -> str:
    return f"it cannot fit on this cluster, even if it were empty: {never_fits_text(facts)}"


# For a wait with facts of this type.
_MUST = {
    Condition.FINISHED: "finish",
    Condition.FAILED: "fail",
    Condition.SUCCEEDED: "succeed",
    Condition.CORRESPONDING: "succeed",
}


def _dependency(wait: Wait, facts: r.DependencyOpen) -> str:
    return f"it waits for {facts.job} to {_MUST[facts.condition]}, which is {facts.standing}"


WAIT_FACTS: dict[type[Facts], Callable[[Wait, Any], str]] = {
    r.DependencyOpen: _dependency,
    r.CeilingReached: _ceiling,
    r.QuotaShort: lambda wait, _: _quota_left(wait),
    r.ResourceQuotaShort: _resource_quota,
    r.ResourceShort: _resource,
    r.ResourcesScattered: _scattered,
    r.SharesShort: _shares,
    r.RanksShort: lambda wait, facts: (
        f"{wait.needed} ranks need {facts.gpus} GPUs on one node each; "
        f"there is room for {wait.available}"
    ),
    r.NodesTooFull: _fragments,
    r.DomainsShort: _domains,
    r.LevelUnknown: lambda wait, facts: f"the policy has no topology level {facts.level!r}",
    r.HeadWaits: _head,
    r.ManagedElsewhere: lambda wait, facts: f"it is left to {facts.controller}, which runs it",
    r.RanksNotUp: _not_up,
    r.CycleFull: _cycle,
    r.VictimsLeaving: _victims,
    r.RankTooLarge: _never,
    r.RanksTooMany: _never,
    r.SharesTooMany: _never,
    r.GangTooLarge: _never,
}


def _by_domain(wait: Wait) -> dict[str, str]:
    match wait.facts:
        case r.ResourceShort(resource=resource, nodes=nodes):
            return {each.node: _amount_free(resource, each) for each in nodes}
        case r.DomainsShort(domains=domains):
            return {each.domain: f"{each.ranks} of {wait.needed}" for each in domains}
        case _:
            return {}


def _helps(wait: Wait) -> str:
    lacking = (wait.needed or 0) - (wait.available or 0)
    match wait.facts:
        case r.CeilingReached():
            return f"{lacking} GPUs less in use by the queue, or a higher ceiling"
        case r.QuotaShort(ever=ever):
            return f"more quota: its queue can get at most {ever} GPUs"
        case r.ResourceQuotaShort(resource=resource, needed=needed, available=available):
            return f"{needed - available:g} of {resource} become free in the queue, or more quota"
        case r.ResourceShort() | r.ResourcesScattered():
            return "jobs end on those nodes, or its ranks request less"
        case r.SharesShort():
            return "ranks that share GPUs end, or its ranks ask for less"
        case r.NodesTooFull():
            return "smaller ranks, or a policy that consolidates"
        case r.DomainsShort(level=level) if wait.code is WaitReason.TOPOLOGY_UNSATISFIED:
            return f"room in one {level}, or a preferred level instead of a required one"
        case r.HeadWaits():
            return "the job ahead starts, or the queue gets a discipline with backfill"
        case r.CycleFull():
            return "a higher starts_per_cycle_max or a shorter cycle_s in the policy"
        case r.RankTooLarge() | r.RanksTooMany() | r.SharesTooMany() | r.GangTooLarge():
            return "more or larger nodes, or fewer or smaller ranks"
        case None:
            return _helps_by_code(wait, lacking)
        case _:
            return ""


def _helps_by_code(wait: Wait, lacking: int) -> str:
    match wait.code:
        case WaitReason.INSUFFICIENT_QUOTA | WaitReason.BLOCKED_BY_RESERVED_CAPACITY:
            return f"{lacking} GPUs of quota become free"
        case WaitReason.NON_PREEMPTIBLE_OVER_QUOTA:
            return "make it preemptible, or give the queue more quota"
        case WaitReason.FAIR_SHARE:
            return "other queues use less, or its queue gets more weight"
        case WaitReason.NO_MATCHING_NODE:
            return "label or untaint nodes"
        case WaitReason.INSUFFICIENT_CAPACITY if lacking > 0:
            return f"{lacking} more GPUs become free"
        case _:
            return ""


# ---------------------------------------------------------------- why a job could not start if nothing ran


def obstacle_text(obstacle: Obstacle) -> str:
    return OBSTACLES[obstacle.code](obstacle)


def obstacle_reason(obstacle: Obstacle) -> Reason:
    """The reason that `why` and the API show for a job that is set aside."""
    return Reason(
        code=obstacle.code,
        message=obstacle_text(obstacle),
        tier=TIERS[obstacle.code],
        needed=obstacle.needed,
        available=obstacle.available,
        helps=_REMEDIES[obstacle.remedy],
    )


_REMEDIES = {
    Remedy.NODES: "nodes that are down, cordoned, or not rented or added yet take work",
    Remedy.QUOTA: "more quota, or a job that asks for less",
    Remedy.GROUP: "the rest of its group is submitted, and is not suspended",
    Remedy.OTHER: "other or relabelled nodes, or a job that asks for less",
}


def _obstacle_quota(o: Obstacle) -> str:
    counted = "GPUs" if o.resource == "gpus" else noun(o.resource)
    of = f" of {', '.join(o.flavors)}" if o.flavors else ""
    return (
        f"it needs {o.needed} {counted}{of} of quota; queue {o.queue} can get at most {o.available}"
    )


def _obstacle_no_match(o: Obstacle) -> str:
    asked = [f"{key}={value}" for key, value in o.selector]
    if o.flavors:
        asked.append(f"flavour {' or '.join(o.flavors)}")
    if o.taints:
        what = f" with {', '.join(asked)}" if asked else ""
        return f"every node{what} has a taint that it does not tolerate: {', '.join(o.taints)}"
    return f"no node that takes work has {', '.join(asked)}" if asked else "no node takes it"


def _obstacle_devices(o: Obstacle) -> str:
    if o.devices:
        numbers = ", ".join(map(str, o.devices))
        return f"{o.role} must run on devices {numbers} of node {o.node}, which cannot be used"
    return f"{o.role} must run on node {o.node} and needs {o.needed} GPUs; it has {o.available}"


def _obstacle_memory(o: Obstacle) -> str:
    have = (
        f"the largest has {o.available} MiB"
        if o.available
        else "no node reports what its GPUs have"
    )
    return f"a rank needs {o.needed} MiB of memory of one GPU; {have}"


def _obstacle_capacity(o: Obstacle) -> str:
    if o.resource == "ranks":
        return (
            f"it has {o.needed} ranks; nodes that take work, if empty, have room for {o.available}"
        )
    if o.needed is not None and o.available is not None and o.needed <= o.available:
        return "nodes that take work, if empty, do not have room for all its ranks at once"
    return f"it needs {o.needed} GPUs; nodes that take work have {o.available}"


OBSTACLES: dict[WaitReason, Callable[[Obstacle], str]] = {
    WaitReason.GANG_INCOMPLETE: lambda o: (
        f"{o.available} of the gang's {o.needed} members have been submitted"
    ),
    WaitReason.GROUP_INCOMPLETE: lambda o: (
        f"{o.available} of the {o.needed} gangs of group {o.group} are there, and they start together"
    ),
    WaitReason.GROUP_MEMBER_UNSCHEDULABLE: lambda o: (
        f"another gang of group {o.group} cannot start, and they start together"
    ),
    WaitReason.GROUP_EXCEEDS_CLUSTER: lambda o: (
        f"the gangs of group {o.group} start together and need {o.needed} GPUs; "
        f"nodes that take work have {o.available}, and not so that all of them fit"
    ),
    WaitReason.QUEUE_LIMIT: lambda o: (
        f"it needs {o.needed} GPUs; the ceiling of queue {o.queue} is {o.available}"
    ),
    WaitReason.INSUFFICIENT_QUOTA: _obstacle_quota,
    WaitReason.NON_PREEMPTIBLE_OVER_QUOTA: lambda o: (
        f"it needs {o.needed} GPUs and cannot be preempted; jobs that cannot be preempted must "
        f"stay within the {o.available} GPUs of quota of queue {o.queue}"
    ),
    WaitReason.UNKNOWN_TOPOLOGY_LEVEL: lambda o: f"the policy has no topology level {o.level!r}",
    WaitReason.PINNED_NODE_ABSENT: lambda o: (
        f"{o.role} must run on node {o.node}, which the cluster does not have"
    ),
    WaitReason.PINNED_NODE_UNAVAILABLE: lambda o: (
        f"{o.role} must run on node {o.node}, which takes no work now"
    ),
    WaitReason.PINNED_DEVICES_UNAVAILABLE: _obstacle_devices,
    WaitReason.NO_MATCHING_NODE: _obstacle_no_match,
    WaitReason.NO_NODE_TAKES_WORK: lambda o: "no node of the cluster takes work now",
    WaitReason.GPU_MEMORY_EXCEEDS_DEVICE: _obstacle_memory,
    WaitReason.RANK_EXCEEDS_NODE: lambda o: (
        f"a rank needs {o.needed} GPUs on one node; the largest node that takes work has {o.available}"
    ),
    WaitReason.INSUFFICIENT_RESOURCES: lambda o: (
        f"{o.needed} ranks need {_names(o.resources or (o.resource,))}; "
        f"empty nodes have enough of it for {o.available}"
    ),
    WaitReason.INSUFFICIENT_CAPACITY: _obstacle_capacity,
    WaitReason.TOPOLOGY_UNSATISFIED: lambda o: (
        f"{o.needed} ranks must be in one {o.level or 'domain'}; "
        f"an empty one takes at most {o.available}"
    ),
}


# ---------------------------------------------------------------- why a gang can never fit


def never_fits_text(facts: NeverFits) -> str:
    match facts:
        case r.RankTooLarge(resource=""):
            return f"a rank needs {facts.needed} GPUs on one node; the largest node has {facts.largest}"
        case r.RankTooLarge(resource=resource):
            return (
                f"a rank of {facts.role} needs {in_units(resource, facts.needed)} {noun(resource)} "
                f"on one node; the most that a node has is {in_units(resource, facts.largest)}"
            )
        case r.RanksTooMany():
            each = [f"{in_units(name, n)} {noun(name)}" for name, n in facts.amounts]
            each += [f"{facts.gpus} GPUs"] if facts.gpus else []
            whose = f" of {facts.role}" if facts.role else ""
            return (
                f"{facts.ranks} ranks{whose} need {', '.join(each)} each; "
                f"the whole cluster has room for {facts.room}"
            )
        case r.SharesTooMany():
            besides = f", besides {facts.whole} whole ones" if facts.whole else ""
            return (
                f"{facts.ranks} ranks need {facts.share_milli / WHOLE:g} of a GPU each, which takes "
                f"{facts.gpus} GPUs{besides}; the cluster has {facts.total}"
            )
        case r.GangTooLarge():
            return f"the gang needs {facts.milli / WHOLE:g} GPUs; the cluster has {facts.total}"
        case _:
            assert_never(facts)


# ---------------------------------------------------------------- losses, ends of ranks, nodes


def loss_text(loss: Loss) -> str:
    """Why a node or a rank is lost."""
    if loss.left_s is not None:
        text = f"{_ANNOUNCED[loss.reason].format(node=loss.node)} in {loss.left_s:g} s"
    else:
        text = LOSSES[loss.reason].format(node=loss.node)
    return f"{text}: {loss.detail}" if loss.detail else text


LOSSES: dict[LossReason, str] = {
    LossReason.UNREACHABLE: "node {node} does not answer",
    LossReason.CRASHED: "node {node} crashed",
    LossReason.RECLAIMED: "node {node} was reclaimed",
    LossReason.MAINTENANCE: "node {node} is down for maintenance",
    LossReason.GIVEN_BACK: "node {node} was given back to its pool",
    LossReason.REMOVED: "node {node} was removed",
    LossReason.NODE_REFUSED: "node {node} could not take the rank",
    LossReason.POD_DELETED: "its pod is being deleted",
    LossReason.SCALED_DOWN: "the job was scaled down",
    LossReason.PREEMPTED: "jobs with a better claim need the room",
}
# The same, announced before it happens.
_ANNOUNCED = {
    **LOSSES,
    LossReason.CRASHED: "node {node} will go down",
    LossReason.RECLAIMED: "node {node} will be reclaimed",
    LossReason.MAINTENANCE: "node {node} will be down for maintenance",
    LossReason.GIVEN_BACK: "node {node} will be given back to its pool",
}


def end_text(*, reason: str = "", loss: Loss | None = None, detail: str = "") -> str:
    """What is known of the end of a rank, or of why it does not come up; empty if nothing is."""
    lost = "" if loss is None else loss_text(loss)
    return ": ".join(part for part in (reason, lost, detail or PROBLEMS.get(reason, "")) if part)


# What a reason of our own means; other reasons come from the cluster with a text of its own.
PROBLEMS = {NOT_READY: "its containers run, but it is not ready for what waits for it"}


def rank_text(rank: Rank) -> str:
    return end_text(reason=rank.reason, loss=rank.loss, detail=rank.detail)


def cordon_text(reason: CordonReason | None, losses: int) -> str:
    """Why a node is cordoned; empty if a person asked for it."""
    match reason:
        case None:
            return ""
        case CordonReason.DRAINED:
            return "drained"
        case CordonReason.QUARANTINED:
            return f"in quarantine after {losses} losses in a day"


# ---------------------------------------------------------------- restarts and failures


def restart_text(restart: Restart) -> str:
    if restart.facts is not None:
        return RESTARTS[type(restart.facts)](restart, restart.facts)
    if restart.rank is None:
        return words(restart.cause)
    name = restart.rank_name or f"rank {restart.rank}"
    known = end_text(reason=restart.reason, loss=restart.loss, detail=restart.detail)
    detail = f": {known}" if known else ""
    if restart.exit_code is None:
        return f"{name} on {restart.node} ended by {words(restart.cause)}{detail}"
    memory = " (out of memory)" if restart.cause is Cause.OOM else ""
    return f"{name} exited with code {restart.exit_code}{memory} on {restart.node}{detail}"


def words(name: str) -> str:
    """Return a name as words: RanksLost and ranks_lost become `ranks lost`."""
    spaced = "".join(f" {c.lower()}" if c.isupper() else c for c in name)
    return spaced.replace("_", " ").strip()


def _start_timeout(restart: Restart, facts: r.StartTimedOut) -> str:
    text = f"{facts.late} of {facts.ranks} ranks had not started after {facts.limit_s:g} s"
    if facts.stuck_rank is None:
        return text
    why = end_text(reason=facts.reason, detail=facts.detail)
    return f"{text}; rank {facts.stuck_rank}: {why}"


def _preempted(restart: Restart, facts: r.Preempted) -> str:
    job = "a job of another namespace" if facts.job is None else job_name(facts.job)
    return f"preempted by {job}, which needs {facts.gpus} GPUs with priority {facts.priority}"


RESTARTS: dict[type[Facts], Callable[[Restart, Any], str]] = {
    r.RestartedInPlace: lambda restart, _: f"{restart.rank_name} was started again in place",
    r.Preempted: _preempted,
    r.MovedAside: lambda _, facts: (
        f"moved, so that a gang of {facts.gpus} GPUs finds its room in one piece"
    ),
    r.NodeDrained: lambda _, facts: f"node {facts.node} is being drained",
    r.StartTimedOut: _start_timeout,
    r.RanksNotReplaced: lambda _, facts: (
        f"{facts.ranks} lost ranks were not replaced within {facts.limit_s:g} s"
    ),
    r.NoRoomInDomain: lambda _, facts: (
        f"{facts.ranks} lost ranks find no room in the {facts.level} of the others"
    ),
    r.Resized: lambda _, facts: f"{facts.role} went from {facts.before} to {facts.after} replicas",
}


def failure_text(failure: Failure) -> str:
    """What ended a job, or let it be suspended; empty for a job that a person cancelled."""
    what = "" if failure.last is None else restart_text(failure.last)
    why = "" if failure.facts is None else FAILURES[type(failure.facts)](failure.facts)
    return "; ".join(part for part in (what, why) if part)


def _no_image(facts: r.ImageMissing) -> str:
    others = f" and {facts.others} more" if facts.others else ""
    why = end_text(reason=facts.reason, detail=facts.detail)
    return (
        f"no image for {facts.rank_name} on {facts.node}{others} within {facts.limit_s:g} s; {why}"
    )


FAILURES: dict[type[Facts], Callable[[Any], str]] = {
    r.DependencyUnmet: lambda facts: (
        f"{facts.job} did not {_MUST[facts.condition]}, which this job waited for"
    ),
    r.RestartRuleForbids: lambda facts: f"restart rule {facts.rule}",
    r.BudgetSpent: lambda facts: f"{facts.used} of {facts.limit} restarts were already used",
    r.BudgetSpentInPlace: lambda facts: f"its limit is {facts.limit} restarts",
    r.TimeoutsSpent: lambda facts: (
        f"that was time-out number {facts.timeouts}, and {facts.limit} are allowed"
    ),
    r.DeadlinePassed: lambda facts: f"it was active for its limit of {facts.limit_s:g} s",
    r.ImageMissing: _no_image,
    r.PlatformFault: lambda facts: ": ".join(
        part for part in (facts.where, facts.error, facts.text) if part
    ),
}


def job_text(job: Job) -> str:
    """Why the job is set aside, failed or last restarted; empty if it did neither or has succeeded."""
    if job.obstacle is not None:
        return obstacle_text(job.obstacle)
    if job.failure is not None:
        return failure_text(job.failure)
    if job.restarts and job.phase is not Phase.SUCCEEDED:
        return restart_text(job.restarts[-1])
    return ""


# ---------------------------------------------------------------- arrays


def owner_failure_text(owner: Owner) -> str:
    """Why an array failed."""
    match owner.failure:
        case None:
            return ""
        case OwnerFailure.MEMBERS_FAILED:
            return "not all of its indices succeeded"
        case OwnerFailure.DEPENDENCY_FAILED:
            return f"{owner.failed_job} did not end as this array needs it"
        case OwnerFailure.MEMBER_REFUSED:
            return f"{owner.failed_job} was refused: {owner.error}"
        case OwnerFailure.PLATFORM_ERROR:
            return f"the platform failed on it: {owner.error}"


def array_summary(owner: Owner, counts: Mapping[str, int], failure: str) -> str:
    """How many indices of an array are in each state, and why no more of them run."""
    counted = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    text = f"{len(owner.spec.indices)} indices: {counted}"
    if owner.phase is OwnerPhase.SUSPENDED:
        return f"it was suspended; resume it to let its indices queue again; {text}"
    if failure:
        return f"{failure}; {text}"
    limit = owner.spec.limit
    limited = limit is not None and counts["pending"] > 0
    return f"{text}; at most {limit} of them at a time" if limited else text


# ---------------------------------------------------------------- summaries of `why` and of dry runs


def job_summary(job: Job) -> str:
    """What the job does, waits for, or how it ended, in one sentence."""
    attempt = job.attempt
    match job.phase:
        case Phase.STARTING if attempt is not None:
            return f"{attempt.up} of {len(attempt.ranks)} ranks have started"
        case Phase.RUNNING if attempt is not None and (lost := missing(attempt, job.spec.size)):
            runs = len(attempt.ranks) - len(lost)
            return f"{runs} of {len(attempt.ranks)} ranks run; it waits for room for the lost ones"
        case Phase.RUNNING if attempt is not None:
            return f"all ranks have started; this is attempt {attempt.number}"
        case Phase.RESTARTING if job.live_attempt is not None:
            return "the last attempt is stopping; its devices are held until every rank is gone"
        case Phase.RESTARTING:
            return f"it waits for its back-off to end, after {len(job.restarts)} restarts"
        case Phase.SUSPENDED if (
            job.reason is FailureReason.OWNER_SUSPENDED and job.owner is not None
        ):
            return f"its array {job.owner.name} is suspended; it goes on when the array is resumed"
        case Phase.SUSPENDED:
            return "it was suspended; resume it to let it queue again"
        case _ if job.quarantined:
            return (
                "it stopped the control plane and is quarantined: nothing is decided for it any more, "
                f"and it can only be deleted. {job_text(job)}"
            )
        case Phase.FAILED if job.reason is FailureReason.PLATFORM_ERROR:
            return (
                "the platform failed on it; neither the job nor its ranks are to blame. "
                f"{job_text(job)}"
            )
        case Phase.SUCCEEDED:
            return "it has done its work"
        case Phase.CANCELLED:
            return "it was cancelled"
        case _:
            return job_text(job)


def dependent_summary(reasons: Sequence[Reason]) -> str:
    """Why a job or array with open dependencies, which are the reasons, is not queued."""
    others = f", and {len(reasons) - 1} more" if len(reasons) > 1 else ""
    first = reasons[0].message if reasons else "what it waits for has ended"
    return f"it is not in its queue yet: {first}{others}"


def set_aside_summary(reason: Reason) -> str:
    return f"it could not start even if nothing ran, so it is set aside: {reason.message}"


def queued_summary(place: int, queue: str, reason: str) -> str:
    return f"number {place} in queue {queue}: {reason}"


WOULD_START = "it would start now"
WOULD_BE_SUSPENDED = "it would be suspended until it is resumed"


def would_depend(after: Iterable[Dependency]) -> str:
    names = ", ".join(dependency.name for dependency in after)
    return f"it would wait for {names} before it joins its queue"


def would_be_set_aside(reason: Reason) -> str:
    return f"it would be set aside as unschedulable: {reason.message}"


def would_wait(place: int, queue: str, reason: str) -> str:
    return f"it would wait as number {place} in queue {queue}: {reason}"


def array_plan_summary(array: ArraySpec, first: str) -> str:
    """The plan of an array; `first` is the plan of its first index."""
    count, index = len(array.indices), array.indices[0]
    at_most = "" if array.limit is None else f", at most {array.limit} at a time"
    return f"an array of {count} jobs{at_most}; index {index}: {first}"
