"""Events as sentences: one line for each event, for the CLI, the HTTP API and the browser.

Reasons and causes within an event are rendered by `messages.py`.
"""

from collections import Counter
from collections.abc import Sequence
from typing import assert_never

from msgspec import UnsetType

from controlplane.lifecycle.attempt import asked_gpus
from controlplane.messages import (
    cordon_text,
    end_text,
    failure_text,
    loss_text,
    obstacle_text,
    restart_text,
    wait_text,
    words,
)
from controlplane.model import events as e
from controlplane.model.cluster import Slot
from controlplane.model.failures import Exit, Restart
from controlplane.model.faults import NodeFaultKind, NodeFaultSpec
from controlplane.model.owners import array_text, indices_text
from controlplane.model.policy import Queue
from controlplane.model.reasons import Loss, NodeRemovalReason
from controlplane.model.spec import JobSpec

NAMES_MAX = 4


def describe(event: e.Event) -> str:
    """Return the event as one line."""
    if isinstance(event, e.JobErrored | e.EngineFailed | e.JobQuarantined):
        return f"{_ERRORS[type(event)]} ({event.where}): {event.error}{_because(event.text)}"
    if isinstance(event, e.JobEvent):
        return _job_event(event)
    match event:
        case e.NodeReported(info=info):
            return f"node {info.name} is ready with {gpus(info.gpus, info.gpu_type)}"
        case e.NodeLost():
            return loss_text(event.loss)
        case e.NodeRemoved(node=node, reason=NodeRemovalReason.FORGOTTEN):
            return f"node {node} was given up as gone for good"
        case e.NodeRemoved(node=node):
            return f"node {node} left the cluster"
        case e.NodeCordoned(node=node, reason=reason, losses=losses):
            return f"node {node} takes no new work{_because(cordon_text(reason, losses))}"
        case e.NodeDrainRequested(node=node):
            return f"node {node} is drained: its gangs start again elsewhere"
        case e.NodeUncordoned(node=node):
            return f"node {node} takes work again"
        case e.ClusterSurveyed():
            return "every node of the cluster has been reported"
        case e.EngineStarted(epoch=epoch, release=release):
            return f"a control plane began to lead: release {release}, epoch {epoch}"
        case _:
            return _scheduling_event(event)


def _scheduling_event(event: e.Event) -> str:
    match event:
        case e.QueueDefined(queue=queue):
            ceiling = (
                "no ceiling" if queue.gpus_max is None else f"a ceiling of {gpus(queue.gpus_max)}"
            )
            return f"queue {queue.name} has {_quota(queue)} and {ceiling}"
        case e.QueueRemoved(name=name):
            return f"queue {name} was removed"
        case e.PolicySet(policy=policy):
            return f"the cluster is scheduled by {policy.discipline}, {policy.model}"
        case e.StartsCounted(admitted=admitted, limited=limited):
            wait = "; the others wait for the next" if limited else ""
            return f"gangs started in this scheduling cycle: {admitted}{wait}"
        case e.CycleEnded():
            return "the next scheduling cycle begins"
        case _:
            return _simulation_event(event)


def _owner_event(event: e.OwnerEvent) -> str:
    match event:
        case e.OwnerSubmitted(spec=array):
            waits = f", after {', '.join(d.name for d in event.after)}" if event.after else ""
            return f"array submitted to queue {array.job.queue}: {array_text(array)}{waits}"
        case e.OwnerReady():
            return "what the array waited for has ended as it should"
        case e.OwnerFailed():
            about = f": {event.job}" if event.job else ""
            return f"array failed ({event.reason.value}{about}){_because(event.error)}"
        case e.OwnerErrored():
            return f"the platform failed on the array ({event.where}): {event.error}{_because(event.text)}"
        case e.MembersRetried(indices=indices):
            return f"indices {indices_text(indices)} are retried"
        case e.OwnerDeleteRequested():
            return "the array is being deleted with all its jobs"
        case e.OwnerRemoved():
            return "array removed"
        case _:
            return f"array {words(type(event).__name__).partition(' ')[2]}"


def _simulation_event(event: e.Event) -> str:
    match event:
        case e.OwnerEvent():
            return _owner_event(event)
        case e.ClusterModelled():
            return "the simulated cluster is the one of its file"
        case e.PoolNodesRequested(pool=pool, nodes=nodes):
            return f"pool {pool} was asked for {', '.join(nodes)}"
        case e.FaultInjected(node=node, fault=fault):
            return f"node {node} was made to fail: {fault_text(fault)}"
        case e.PoolNodesReturned(pool=pool, nodes=nodes):
            return f"pool {pool} got {', '.join(nodes)} back"
        case e.TimePassed():
            return "time passed and nothing happened"
        case _:
            return words(type(event).__name__)


def fault_text(fault: NodeFaultSpec) -> str:
    """Return a fault as words: it crashes, for 600 s."""
    match fault.kind:
        case NodeFaultKind.CRASH:
            what = "it crashes"
        case NodeFaultKind.SPOT_RECLAIM:
            what = f"its provider takes it back, with a notice of {fault.notice_s:g} s"
        case NodeFaultKind.MAINTENANCE:
            what = "it is taken down for maintenance"
        case NodeFaultKind.SLOW:
            what = f"its GPUs keep {fault.factor:.0%} of their speed"
        case NodeFaultKind.LINK:
            what = f"its network keeps {fault.factor:.0%} of its speed"
        case NodeFaultKind.STORAGE:
            what = f"its storage keeps {fault.factor:.0%} of its speed"
        case _:
            assert_never(fault.kind)
    lasting = "for good" if fault.duration_s is None else f"for {fault.duration_s:g} s"
    return f"{what}, {lasting}"


def _quota(queue: Queue) -> str:
    quota = "no quota" if queue.nominal is None else f"a quota of {gpus(queue.nominal)}"
    return f"{quota} below {queue.parent}" if queue.parent else quota


def _job_event(event: e.JobEvent) -> str:
    match event:
        case e.JobSubmitted(spec=spec):
            return _submitted(event, spec)
        case e.GangPlaced(attempt=attempt, placement=placement, shares=shares):
            return f"attempt {attempt} placed on {_nodes(placement, shares)}"
        case e.GangWaiting():
            return f"waits: {wait_text(event.wait)}"
        case e.DependenciesMet():
            return "what it waited for has ended as it should: it joins its queue"
        case e.JobUnschedulable(obstacle=obstacle):
            return f"set aside as unschedulable: {obstacle_text(obstacle)}"
        case e.JobSchedulable():
            return "can be scheduled again, and is back at its place in the queue"
        case e.GangStarted(attempt=attempt):
            return f"attempt {attempt} runs: all ranks have started"
        case _:
            return _rank_event(event)


def _rank_event(event: e.JobEvent) -> str:
    match event:
        case e.RanksReplaced(ranks=ranks, slots=slots):
            nodes = ", ".join(sorted({slot.node for slot in slots}))
            return f"{_ranks(len(ranks))} that were lost go to {nodes}"
        case e.RanksStarted(ranks=ranks):
            return f"{_which(ranks)} started"
        case e.RanksExited(exits=exits):
            return _exits(exits)
        case e.RanksLost(ranks=ranks, loss=loss, detail=detail):
            return f"{_which(ranks)} lost{_because(end_text(loss=loss, detail=detail))}"
        case e.RanksReleased(ranks=ranks, reason=reason):
            return f"{_which(ranks)} released: {loss_text(Loss(reason))}"
        case e.RanksStuck(ranks=ranks, reason=reason, detail=detail):
            return (
                f"{_which(ranks)} not coming up{_because(end_text(reason=reason, detail=detail))}"
            )
        case e.RanksGone(ranks=ranks):
            return f"{_which(ranks)} gone from the cluster"
        case _:
            return _decision_event(event)


def _submitted(event: e.JobSubmitted, spec: JobSpec) -> str:
    of = "" if event.owner is None else f"index {event.owner.index} of {event.owner.name}, "
    waits = f", after {', '.join(d.name for d in event.after)}" if event.after else ""
    return f"{of}submitted to queue {spec.queue}: {_ranks(spec.size)}, {_asked(spec)}{waits}"


def _decision_event(event: e.JobEvent) -> str:
    match event:
        case e.RankRestarting(rank=rank, restart=restart):
            return f"rank {rank} restarts alone: {_restart(restart)}"
        case e.RankRelaunched(rank=rank):
            return f"rank {rank} was launched again"
        case e.RanksAdded(first=first, placement=placement):
            added = tuple(range(first, first + len(placement)))
            return f"{_which(added)} added on {_nodes(placement)}"
        case e.RanksRestartedInPlace(counts=counts):
            return f"{_which(tuple(i for i, _ in counts))} started again in place by the cluster"
        case e.JobRestarting(restart=restart):
            return f"the gang restarts: {_restart(restart)}"
        case e.JobRequeued():
            return "back in the queue: the back-off is over and nothing is left of the last attempt"
        case e.AttemptEnded(attempt=attempt):
            return f"attempt {attempt} is over; its devices are free"
        case e.JobFailed(reason=reason):
            return f"failed ({words(reason)}): {failure_text(event.failure)}"
        case e.CodeResolved(rank=rank, commit=commit):
            return f"the code of rank {rank} is commit {commit}"
        case e.JobScaled(role=role, replicas=replicas):
            return f"{role} scaled to {replicas} replicas"
        case e.JobAmended():
            return _amended(event)
        case e.JobDeleteRequested():
            return "to be deleted as soon as nothing of it is left"
        case e.JobRemoved(reason=reason):
            return f"forgotten: {words(reason)}"
        case _:
            # The names of JobSucceeded, JobCancelled, JobSuspended and JobResumed suffice.
            return words(type(event).__name__.removeprefix("Job"))


def _amended(event: e.JobAmended) -> str:
    parts = []
    if not isinstance(event.queue, UnsetType):
        parts.append(f"moved to queue {event.queue}")
    if not isinstance(event.priority, UnsetType):
        parts.append(f"its priority is now {event.priority}")
    limits = (event.ttl_s, event.active_deadline_s, event.restart_limit, event.clean)
    if not parts or any(not isinstance(limit, UnsetType) for limit in limits):
        parts.append("its limits were changed: deadline, time to live, restarts or what is kept")
    return "; ".join(parts)


_ERRORS: dict[type[e.Event], str] = {
    e.JobErrored: "the platform failed on it",
    e.EngineFailed: "it stopped the control plane",
    e.JobQuarantined: "quarantined",
}


def gpu_count(gpus: float, memory_mib: int = 0) -> str:
    """Return a number of GPUs, with fractions to a thousandth: 8, 0.25.

    `memory_mib` is a request by GPU memory, in MiB; it is shown where the number of GPUs is not
    known.
    """
    if not gpus and memory_mib:
        return f"{memory_mib / 1024:g}Gi"
    return f"{gpus:.3f}".rstrip("0").rstrip(".")


def gpus(count: float, kind: str = "") -> str:
    noun = "GPU" if 0 < count <= 1 else "GPUs"
    return " ".join(part for part in (gpu_count(count), kind, noun) if part)


def _asked(spec: JobSpec) -> str:
    """Return what a gang requests: a number of GPUs, or GPU memory."""
    memory_mib = sum(role.replicas * role.gpu_memory_mib for role in spec.roles)
    asked = asked_gpus(spec)
    if not memory_mib:
        return gpus(asked)
    memory = f"{gpu_count(0, memory_mib)} of GPU memory"
    return f"{gpus(asked)} and {memory}" if asked else memory


def _because(message: str) -> str:
    return f": {message}" if message else ""


def _ranks(count: int) -> str:
    return "1 rank" if count == 1 else f"{count} ranks"


def _which(ranks: Sequence[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if list(ranks) == list(range(ranks[0], ranks[-1] + 1)):
        return f"ranks {ranks[0]}-{ranks[-1]}"
    return f"ranks {_some([str(rank) for rank in ranks])}"


def _some(names: Sequence[str]) -> str:
    if len(names) <= NAMES_MAX:
        return ", ".join(names)
    return f"{', '.join(names[:NAMES_MAX])} and {len(names) - NAMES_MAX} more"


def _nodes(placement: Sequence[Slot], shares: Sequence[int] = ()) -> str:
    milli = Counter[str]()
    for rank, slot in enumerate(placement):
        share = shares[rank] if rank < len(shares) else 0
        milli[slot.node] += share or 1_000 * len(slot.devices)
    counts = {node: gpu_count(taken / 1_000) for node, taken in milli.items()}
    return _some([f"{node} ({count})" if count != "0" else node for node, count in counts.items()])


def _exits(exits: Sequence[Exit]) -> str:
    bad = [x for x in exits if x.code != 0]
    if not bad:
        return f"{_which([x.rank for x in exits])} exited with code 0"
    first = bad[0]
    how = "ended" if first.code is None else f"exited with code {first.code}"
    known = end_text(reason=first.reason, loss=first.loss, detail=first.detail)
    others = f", {_ranks(len(bad) - 1)} likewise" if len(bad) > 1 else ""
    return f"rank {first.rank} {how} ({words(first.cause)}){others}{_because(known)}"


def _restart(restart: Restart) -> str:
    budget = "" if restart.spends_budget else " (spends no retry)"
    return f"{restart_text(restart)}{budget}"
