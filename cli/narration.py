"""Events in the words of a person who tells what happened."""

from collections import Counter
from collections.abc import Sequence

from cli.tables import gpu_count
from controlplane import events as e
from controlplane.attempt import asked_gpus
from controlplane.model import Exit, JobSpec, Restart, Slot
from controlplane.obstacles import in_words
from controlplane.sharing import Queue

NAMES_MAX = 4


def tell(event: e.Event) -> str:
    """What happened, in one line."""
    if isinstance(event, e.JobEvent):
        return _tell_of_job(event)
    match event:
        case e.NodeReported(info=info):
            return f"node {info.name} is ready with {gpus(info.gpus, info.gpu_type)}"
        case e.NodeLost(node=node, given_back=True):
            return f"node {node} was given back to its pool"
        case e.NodeLost(node=node, message=message):
            return f"node {node} no longer answers{_because(message)}"
        case e.NodeRemoved(node=node, reason=e.FORGOTTEN):
            return f"node {node} was given up as gone for good"
        case e.NodeRemoved(node=node):
            return f"node {node} left the cluster"
        case e.NodeCordoned(node=node, reason=reason):
            return f"node {node} takes no new work{_because(reason)}"
        case e.NodeUncordoned(node=node):
            return f"node {node} takes work again"
        case e.ClusterSurveyed():
            return "every node of the cluster has been reported"
        case e.EngineStarted(epoch=epoch, release=release):
            return f"a control plane began to lead: release {release}, epoch {epoch}"
        case _:
            return _tell_of_scheduling(event)


def _tell_of_scheduling(event: e.Event) -> str:
    match event:
        case e.QueueDefined(queue=queue):
            most = "no ceiling" if queue.gpus_max is None else f"at most {gpus(queue.gpus_max)}"
            return f"queue {queue.name} has {most}{_quota(queue)}"
        case e.QueueRemoved(name=name):
            return f"queue {name} was removed"
        case e.PolicySet(policy=policy):
            return f"the cluster is scheduled by {policy.discipline.value}, {policy.model.value}"
        case e.StartsCounted(admitted=admitted, limited=limited):
            wait = "; the others wait for the next" if limited else ""
            return f"gangs started in this scheduling cycle: {admitted}{wait}"
        case e.CycleEnded():
            return "the next scheduling cycle begins"
        case _:
            return _tell_of_simulation(event)


def _tell_of_simulation(event: e.Event) -> str:
    match event:
        case e.ClusterModelled():
            return "the simulated cluster is the one of its file"
        case e.PoolNodesRequested(pool=pool, nodes=nodes):
            return f"pool {pool} was asked for {', '.join(nodes)}"
        case e.PoolNodesReturned(pool=pool, nodes=nodes):
            return f"pool {pool} got {', '.join(nodes)} back"
        case e.TimePassed():
            return "time passed and nothing happened"
        case _:
            return words(type(event).__name__)


def _quota(queue: Queue) -> str:
    own = "" if queue.nominal is None else f", {gpus(queue.nominal)} of its own"
    return f"{own}, below {queue.parent}" if queue.parent else own


def _tell_of_job(event: e.JobEvent) -> str:
    match event:
        case e.JobSubmitted(spec=spec):
            return f"submitted to queue {spec.queue}: {_ranks(spec.size)}, {_asked(spec)}"
        case e.GangPlaced(attempt=attempt, placement=placement, shares=shares):
            return f"attempt {attempt} placed on {_nodes(placement, shares)}"
        case e.GangHeld(message=message):
            return f"waits: {message}"
        case e.JobUnschedulable(obstacle=obstacle):
            return f"set aside as unschedulable: {in_words(obstacle)}"
        case e.JobSchedulable():
            return "can be scheduled again, and is back at its place in the queue"
        case e.RanksReplaced(ranks=ranks, slots=slots):
            nodes = ", ".join(sorted({slot.node for slot in slots}))
            return f"{_ranks(len(ranks))} that were lost go to {nodes}"
        case e.RanksStarted(ranks=ranks):
            return f"{_which(ranks)} started"
        case e.GangStarted(attempt=attempt):
            return f"attempt {attempt} runs: all ranks have started"
        case e.RanksExited(exits=exits):
            return _exits(exits)
        case e.RanksLost(ranks=ranks, message=message):
            return f"{_which(ranks)} lost{_because(message)}"
        case e.RanksStuck(ranks=ranks, message=message):
            return f"{_which(ranks)} not coming up{_because(message)}"
        case e.RanksGone(ranks=ranks):
            return f"{_which(ranks)} gone from the cluster"
        case e.JobErrored() | e.EngineFailed() | e.JobQuarantined():
            return f"{_ERRORS[type(event)]} ({event.where}): {event.error}{_because(event.text)}"
        case _:
            return _tell_of_decision(event)


def _tell_of_decision(event: e.JobEvent) -> str:
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
        case e.JobFailed(reason=reason, message=message):
            return f"failed ({words(reason)}): {message}"
        case e.CodeResolved(rank=rank, commit=commit):
            return f"the code of rank {rank} is commit {commit}"
        case e.JobScaled(role=role, replicas=replicas):
            return f"{role} scaled to {replicas} replicas"
        case e.JobAmended():
            return "its limits were changed: deadline, time to live, restarts or what is kept"
        case e.JobDeleteRequested():
            return "to be deleted as soon as nothing of it is left"
        case e.JobRemoved(reason=reason):
            return f"forgotten: {words(reason)}"
        case _:
            # JobSucceeded, JobCancelled, JobSuspended and JobResumed say it all by their names.
            return words(type(event).__name__.removeprefix("Job"))


_ERRORS: dict[type[e.Event], str] = {
    e.JobErrored: "the platform failed on it",
    e.EngineFailed: "it stopped the control plane",
    e.JobQuarantined: "quarantined",
}


def words(name: str) -> str:
    """A name as words: RanksLost and ranks_lost become `ranks lost`."""
    spaced = "".join(f" {c.lower()}" if c.isupper() else c for c in name)
    return spaced.replace("_", " ").strip()


def gpus(count: float, kind: str = "") -> str:
    noun = "GPU" if 0 < count <= 1 else "GPUs"
    return " ".join(part for part in (gpu_count(count), kind, noun) if part)


def _asked(spec: JobSpec) -> str:
    """What a gang asks for: GPUs, or memory of some."""
    memory_mib = sum(role.replicas * role.gpu_memory_mib for role in spec.roles)
    asked = asked_gpus(spec)
    if not memory_mib:
        return gpus(asked)
    told = f"{gpu_count(0, memory_mib)} of GPU memory"
    return f"{gpus(asked)} and {told}" if asked else told


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
    others = f", {_ranks(len(bad) - 1)} likewise" if len(bad) > 1 else ""
    return f"rank {first.rank} {how} ({words(first.cause)}){others}{_because(first.message)}"


def _restart(restart: Restart) -> str:
    budget = "" if restart.spends_budget else " (spends no retry)"
    return f"{restart.message or words(restart.cause)}{budget}"
