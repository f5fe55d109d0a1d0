"""What pods say about ranks: observed documents in, reports to the control plane out. Pure.

Nothing here remembers: the same pods give the same reports, and the core knows what is news. A pod
that is missing means something only in a complete listing, so callers pass nothing less. A rank
whose pod is being deleted while it runs is leaving: it has ended, and let go of its devices, only
when its containers have, or when the object is gone.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from adapters.kubernetes.marks import Document, is_terminating, mark_of
from adapters.kubernetes.plan import Conflict
from adapters.kubernetes.supplies import commit_of
from adapters.kubernetes.wishes import is_ending, is_over
from controlplane.attempt import HOLDING, LIVE, NOT_READY, Attempt, AttemptState, RankState
from controlplane.commands import ReportRanks
from controlplane.effects import ranks_to_run
from controlplane.job import Job
from controlplane.model import Cause, Exit

# Why a pod failed that nobody inside it is to blame for, by the reason in its status ...
POD_REASONS = {
    "Evicted": Cause.EVICTION,
    "Preempting": Cause.PREEMPTION,
    "Preempted": Cause.PREEMPTION,
    "NodeLost": Cause.NODE_LOST,
    "NodeShutdown": Cause.NODE_LOST,
    "Shutdown": Cause.NODE_LOST,
    "Terminated": Cause.NODE_LOST,
}
# ... and by the reason of its DisruptionTarget condition (Kubernetes 1.26 and newer).
DISRUPTIONS = {
    "PreemptionByScheduler": Cause.PREEMPTION,
    "PreemptionByKubeScheduler": Cause.PREEMPTION,
    "DeletionByTaintManager": Cause.NODE_LOST,
    "DeletionByPodGC": Cause.NODE_LOST,
    "EvictionByEvictionAPI": Cause.EVICTION,
    "TerminationByKubelet": Cause.EVICTION,
}
# The kubelet refused the pod before anything ran; another node may take it.
REFUSALS = (
    "UnexpectedAdmissionError",
    "NodeAffinity",
    "NodeName",
    "NodePorts",
    "TaintToleration",
    "TopologyAffinityError",
    "Preempting",
)
REFUSAL_PREFIX = "OutOf"
CONTAINER_REASONS = {"OOMKilled": Cause.OOM}
# States of a waiting container that are on the way to running, and so are no trouble.
ON_THE_WAY = ("", "ContainerCreating", "PodInitializing")
# The same trouble under two names: a pull that failed, and the wait until the next one.
SAME_TROUBLE = {"ImagePullBackOff": "ErrImagePull"}
MESSAGE_LENGTH_MAX = 500


class Trouble(NamedTuple):
    """Why a pod does not get on, in the cluster's own words."""

    reason: str
    message: str


# A pod that runs and that nothing can reach yet.
UNREADY = Trouble(NOT_READY, "its containers run, but it is not ready for what waits for it")


class Sighting(NamedTuple):
    """What one pod says about its rank."""

    started: bool = False
    exit: Exit | None = None
    # Nothing of it runs and nothing will, though the object stays.
    gone: bool = False
    # Somebody told it to end, and it has not ended yet.
    leaving: Exit | None = None
    # How often its containers were started again in place.
    restarts: int = 0
    trouble: Trouble | None = None
    # The commit of the code that it was given.
    commit: str = ""


def reports(
    job: Job,
    names: Sequence[str],
    pods: Mapping[str, Document],
    only: Iterable[int] | None = None,
) -> list[ReportRanks]:
    """What the pods of a job tell the control plane, one report for each incarnation.

    `names` are those of the ranks' pods; `pods` is everything that is there. Where only some have
    changed, `only` names their ranks.
    """
    attempt = job.attempt
    if attempt is None or attempt.state is AttemptState.OVER:
        return []
    found = defaultdict[int, _Report](_Report)
    awaited = {role.starts_after for role in job.spec.roles}
    there = min(len(names), len(attempt.ranks))
    for rank in range(there) if only is None else sorted(i for i in only if i < there):
        incarnation = attempt.ranks[rank].incarnation
        pod = pods.get(names[rank])
        if pod is None or not _is_run(pod, job, attempt, rank):
            if _should_be_there(attempt, rank):
                found[incarnation].gone.append(rank)
            continue
        role = job.spec.role_of(rank)[0]
        sighting = see(pod, rank, role.container)
        runs = sighting.started and sighting.exit is None
        if runs and role.name in awaited and not is_ready(pod):
            # What waits for this role wants to reach it, so it counts once it can be reached.
            sighting = sighting._replace(started=False, trouble=UNREADY)
        found[incarnation].add(rank, sighting._replace(commit=commit_of(pod)))
    return [
        report.command(job.id, attempt.number, incarnation)
        for incarnation, report in sorted(found.items())
        if report
    ]


def surplus(job: Job, size: int, pods: Iterable[Document]) -> list[ReportRanks]:
    """What is seen of ranks beyond the job's size: those that a scaled job has let go.

    Their pods have names that the job no longer knows, so they are told by their marks.
    """
    attempt = job.attempt
    if attempt is None or len(attempt.ranks) <= size:
        return []
    there: dict[tuple[int, int], Document] = {}
    for pod in pods:
        mark = mark_of(pod)
        if mark is not None and mark.attempt == attempt.number:
            there[mark.rank, mark.incarnation] = pod
    found = defaultdict[int, _Report](_Report)
    for rank in range(size, len(attempt.ranks)):
        state = attempt.ranks[rank]
        seen = there.get((rank, state.incarnation))
        if seen is not None:
            found[state.incarnation].add(rank, see(seen, rank, ""))
        elif state.state in HOLDING:
            found[state.incarnation].gone.append(rank)
    return [
        report.command(job.id, attempt.number, incarnation)
        for incarnation, report in sorted(found.items())
        if report
    ]


def last_word(pod: Document, container: str) -> ReportRanks | None:
    """What is known of a rank whose pod is no more, read off the last that was seen of it."""
    mark = mark_of(pod)
    if mark is None:
        return None
    report = _Report()
    if is_over(pod):
        report.add(mark.rank, see(pod, mark.rank, container))
    else:
        report.gone.append(mark.rank)
    return report.command(mark.job, mark.attempt, mark.incarnation)


def blocked(job: Job, conflicts: Sequence[Conflict]) -> list[ReportRanks]:
    """What the control plane hears when the gang cannot be made: it tries again later.

    Only of ranks that have not started; those that run are not harmed by it.
    """
    attempt = job.attempt
    if attempt is None or not conflicts:
        return []
    message = _cut("; ".join(each.message for each in conflicts))
    found = defaultdict[int, _Report](_Report)
    for rank in ranks_to_run(job):
        if attempt.ranks[rank].state is RankState.PENDING:
            end = Exit(rank, None, Cause.START_TIMEOUT, message)
            found[attempt.ranks[rank].incarnation].exited.append(end)
    return [
        report.command(job.id, attempt.number, incarnation)
        for incarnation, report in sorted(found.items())
    ]


def see(pod: Document, rank: int, container: str) -> Sighting:
    """One pod; `container` names the one whose exit code speaks for the rank, "" the first."""
    status: Mapping[str, Any] = pod.get("status") or {}
    phase = status.get("phase")
    speaker = _speaker(status, container)
    restarts = sum(int(each.get("restartCount", 0)) for each in _containers(status))
    leaving = _leaving(rank, status) if is_terminating(pod) and not is_over(pod) else None
    match phase:
        case "Running":
            return Sighting(started=True, leaving=leaving, restarts=restarts)
        case "Succeeded":
            return Sighting(started=True, exit=_success(rank, speaker))
        case "Failed":
            return Sighting(started=_has_run(status), exit=_failure(rank, status, speaker))
        case _:
            # Marked to end before any node took it: nothing will ever run.
            gone = is_ending(pod) and not pod.get("spec", {}).get("nodeName")
            return Sighting(gone=gone, leaving=leaving, trouble=trouble(pod))


def is_ready(pod: Document) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)


def trouble(pod: Document) -> Trouble | None:
    """Why a pod that should run does not: no room, no image, a failing init container."""
    status: Mapping[str, Any] = pod.get("status") or {}
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return Trouble(condition.get("reason", ""), _cut(condition.get("message", "")))
    for each in _containers(status):
        waiting = (each.get("state") or {}).get("waiting") or {}
        if waiting.get("reason", "") not in ON_THE_WAY:
            reason = waiting["reason"]
            told = f"{each.get('name')}: {waiting.get('message', '')}"
            return Trouble(SAME_TROUBLE.get(reason, reason), _cut(told))
    return None


class _Report:
    """Gathers what is seen of the ranks of one incarnation."""

    def __init__(self) -> None:
        self.started: list[int] = []
        self.exited: list[Exit] = []
        self.gone: list[int] = []
        self.leaving: list[Exit] = []
        self.restarted: list[tuple[int, int]] = []
        self.commits: list[tuple[int, str]] = []
        self.stuck: list[tuple[int, str]] = []

    def __bool__(self) -> bool:
        news = self.started or self.exited or self.gone or self.leaving
        return bool(news or self.commits or self.stuck)

    def add(self, rank: int, sighting: Sighting) -> None:
        if sighting.started:
            self.started.append(rank)
        if sighting.exit is not None:
            self.exited.append(sighting.exit)
        if sighting.gone:
            self.gone.append(rank)
        if sighting.leaving is not None:
            self.leaving.append(sighting.leaving)
        if sighting.restarts:
            self.restarted.append((rank, sighting.restarts))
        # Ranks of one gang have the same code; whoever has another one is told of too.
        if sighting.commit and all(known != sighting.commit for _, known in self.commits):
            self.commits.append((rank, sighting.commit))
        if sighting.trouble is not None:
            self.stuck.append((rank, ": ".join(word for word in sighting.trouble if word)))

    def command(self, job: str, attempt: int, incarnation: int) -> ReportRanks:
        return ReportRanks(
            job=job,
            attempt=attempt,
            incarnation=incarnation,
            started=tuple(self.started),
            exited=tuple(self.exited),
            gone=tuple(self.gone),
            leaving=tuple(self.leaving),
            restarted=tuple(self.restarted),
            commits=tuple(self.commits),
            stuck=tuple(self.stuck),
        )


def _is_run(pod: Document, job: Job, attempt: Attempt, rank: int) -> bool:
    mark = mark_of(pod)
    run = (job.id, attempt.number, attempt.ranks[rank].incarnation)
    return mark is not None and (mark.job, mark.attempt, mark.incarnation) == run


def _should_be_there(attempt: Attempt, rank: int) -> bool:
    """Whether a missing pod is news: of a rank that ran, or of one that nobody will make now."""
    state = attempt.ranks[rank].state
    if attempt.state in LIVE:
        return state in (RankState.RUNNING, RankState.LOST)
    return state in (RankState.PENDING, RankState.RUNNING, RankState.LOST)


def _containers(status: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    yield from status.get("initContainerStatuses") or ()
    yield from status.get("containerStatuses") or ()


def _speaker(status: Mapping[str, Any], container: str) -> Mapping[str, Any]:
    """The end of the container that speaks for the rank; nothing if it has none."""
    statuses: Sequence[Mapping[str, Any]] = status.get("containerStatuses") or ()
    for each in statuses:
        if not container or each.get("name") == container:
            return (each.get("state") or {}).get("terminated") or {}
    return {}


def _leaving(rank: int, status: Mapping[str, Any]) -> Exit:
    return Exit(rank, None, _platform_cause(status) or Cause.EVICTION, "its pod is being deleted")


def _success(rank: int, speaker: Mapping[str, Any]) -> Exit:
    if speaker.get("exitCode") == 0:
        return Exit(rank, 0)
    return Exit(rank, None, Cause.COMPLETED)


def _failure(rank: int, status: Mapping[str, Any], speaker: Mapping[str, Any]) -> Exit:
    code: int | None = speaker.get("exitCode")
    cause = _platform_cause(status) or CONTAINER_REASONS.get(speaker.get("reason", ""), Cause.EXIT)
    message = speaker.get("message") or status.get("message") or _init_failure(status)
    told = [word for word in (status.get("reason") or speaker.get("reason"), message) if word]
    if code == 0:
        # Another container failed the pod; what the speaker said does not make a success of it.
        code = None
    return Exit(rank, code, cause, _cut(": ".join(told)))


def _platform_cause(status: Mapping[str, Any]) -> Cause | None:
    for condition in status.get("conditions") or ():
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True":
            return DISRUPTIONS.get(condition.get("reason", ""), Cause.EVICTION)
    reason = str(status.get("reason") or "")
    if reason in REFUSALS or reason.startswith(REFUSAL_PREFIX):
        return POD_REASONS.get(reason, Cause.REFUSED)
    return POD_REASONS.get(reason)


def _init_failure(status: Mapping[str, Any]) -> str:
    for each in status.get("initContainerStatuses") or ():
        ended = (each.get("state") or {}).get("terminated") or {}
        if ended.get("exitCode"):
            return f"init container {each.get('name')} exited with code {ended['exitCode']}"
    return ""


def _has_run(status: Mapping[str, Any]) -> bool:
    """Whether the containers of a failed pod ever ran; without a word on it, they did."""
    reason = str(status.get("reason") or "")
    if reason in REFUSALS or reason.startswith(REFUSAL_PREFIX) or _init_failure(status):
        return False
    states = [each.get("state") or {} for each in status.get("containerStatuses") or ()]
    return not states or not all("waiting" in state for state in states)


def _cut(text: str) -> str:
    return text if len(text) <= MESSAGE_LENGTH_MAX else text[: MESSAGE_LENGTH_MAX - 1] + "…"
