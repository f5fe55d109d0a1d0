"""Pod statuses to reports about ranks. Pure.

There is no memory here: the same pods give the same reports, and the core ignores what it knows
already. A missing pod means something only in a complete list, so callers must pass a complete one.
A rank whose pod is being deleted while it runs is leaving: it has ended, and released its devices,
only when its containers have ended or the object is gone.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from adapters.kubernetes.observe.labels import Document, is_current, is_terminating, run_of
from adapters.kubernetes.reconcile.desired_pods import is_ending, is_over
from adapters.kubernetes.reconcile.plan import ObjectConflict
from adapters.kubernetes.render.supplies import commit_of
from controlplane.lifecycle.attempt import NOT_READY, Attempt
from controlplane.lifecycle.effects import ranks_to_run
from controlplane.lifecycle.job import Job
from controlplane.model.commands import ReportRanks
from controlplane.model.failures import Cause, Exit, Stuck
from controlplane.model.phases import LIVE, WITH_DEVICES, AttemptState, RankState
from controlplane.model.reasons import Loss, LossReason

# The cause of a failure that the pod's program did not cause, by the reason in the status ...
POD_REASONS = {
    "Evicted": Cause.EVICTION,
    "Preempting": Cause.PREEMPTION,
    "Preempted": Cause.PREEMPTION,
    "NodeLost": Cause.NODE_LOST,
    "NodeShutdown": Cause.NODE_LOST,
    "Shutdown": Cause.NODE_LOST,
    "Terminated": Cause.NODE_LOST,
}
# ... and by the reason of the DisruptionTarget condition (Kubernetes 1.26 and newer).
DISRUPTIONS = {
    "PreemptionByScheduler": Cause.PREEMPTION,
    "PreemptionByKubeScheduler": Cause.PREEMPTION,
    "DeletionByTaintManager": Cause.NODE_LOST,
    "DeletionByPodGC": Cause.NODE_LOST,
    "EvictionByEvictionAPI": Cause.EVICTION,
    "TerminationByKubelet": Cause.EVICTION,
}
# The kubelet refused the pod before any container ran; another node may admit it.
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
# Reasons of a waiting container that starts normally, and so are no problem.
ON_THE_WAY = ("", "ContainerCreating", "PodInitializing")
# One problem with two names: a failed pull, and the back-off until the next pull.
SAME_TROUBLE = {"ImagePullBackOff": "ErrImagePull"}
MESSAGE_LENGTH_MAX = 500


POD_DELETED = Loss(LossReason.POD_DELETED)


class PodProblem(NamedTuple):
    """Why a pod does not start, with the reason and message of the cluster."""

    reason: str
    message: str = ""


# The pod runs but does not accept connections yet.
UNREADY = PodProblem(NOT_READY)


class RankObservation(NamedTuple):
    """The state of a rank according to its pod."""

    started: bool = False
    exit: Exit | None = None
    # No container runs or will run, though the object still exists.
    gone: bool = False
    # The pod is being deleted, and its containers have not ended yet.
    leaving: Exit | None = None
    # The number of container restarts in place.
    restarts: int = 0
    trouble: PodProblem | None = None
    # The commit of the code that was checked out for it; "" if unknown.
    commit: str = ""


def reports(
    job: Job,
    names: Sequence[str],
    pods: Mapping[str, Document],
    only: Iterable[int] | None = None,
) -> list[ReportRanks]:
    """Return what the pods of a job show, one report for each incarnation that has news.

    `names` are the names of the ranks' pods, in the order of the ranks; `pods` are all existing
    pods of the job by name. `only` limits the report to these ranks; None means all. The result is
    empty for a job without an attempt or whose attempt is over.
    """
    attempt = job.attempt
    if attempt is None or attempt.state is AttemptState.OVER:
        return []
    by_incarnation = defaultdict[int, _Report](_Report)
    awaited = {role.starts_after for role in job.spec.roles}
    there = min(len(names), len(attempt.ranks))
    for rank in range(there) if only is None else sorted(i for i in only if i < there):
        incarnation = attempt.ranks[rank].incarnation
        pod = pods.get(names[rank])
        if pod is None or not is_current(job, rank, pod):
            if _should_be_there(attempt, rank):
                by_incarnation[incarnation].gone.append(rank)
            continue
        role = job.spec.role_of(rank)[0]
        observation = observe(pod, rank, role.container)
        runs = observation.started and observation.exit is None
        if runs and role.name in awaited and not is_ready(pod):
            # Other roles wait for this one and connect to it, so it has started only when ready.
            observation = observation._replace(started=False, trouble=UNREADY)
        by_incarnation[incarnation].add(rank, observation._replace(commit=commit_of(pod)))
    return [
        report.command(job.id, attempt.number, incarnation)
        for incarnation, report in sorted(by_incarnation.items())
        if report
    ]


def surplus(job: Job, size: int, pods: Iterable[Document]) -> list[ReportRanks]:
    """Return reports about ranks beyond `size`, which a job that was scaled down no longer has.

    The job no longer knows the names of their pods, so the pods are recognised by their run labels.
    """
    attempt = job.attempt
    if attempt is None or len(attempt.ranks) <= size:
        return []
    there: dict[tuple[int, int], Document] = {}
    for pod in pods:
        run = run_of(pod)
        if run is not None and run.attempt == attempt.number:
            there[run.rank, run.incarnation] = pod
    by_incarnation = defaultdict[int, _Report](_Report)
    for rank in range(size, len(attempt.ranks)):
        state = attempt.ranks[rank]
        seen = there.get((rank, state.incarnation))
        if seen is not None:
            by_incarnation[state.incarnation].add(rank, observe(seen, rank, ""))
        elif state.state in WITH_DEVICES:
            by_incarnation[state.incarnation].gone.append(rank)
    return [
        report.command(job.id, attempt.number, incarnation)
        for incarnation, report in sorted(by_incarnation.items())
        if report
    ]


def final_report(pod: Document, container: str) -> ReportRanks | None:
    """Return a report about the rank of a deleted pod, from the last known state of the pod.

    `container` is the main container of the rank. None if the pod has no run labels.
    """
    run = run_of(pod)
    if run is None:
        return None
    report = _Report()
    if is_over(pod):
        report.add(run.rank, observe(pod, run.rank, container))
    else:
        report.gone.append(run.rank)
    return report.command(run.job, run.attempt, run.incarnation)


def blocked(job: Job, conflicts: Sequence[ObjectConflict]) -> list[ReportRanks]:
    """Return reports that `conflicts` keep the gang from being created; the core retries later.

    Only ranks that have not started are reported; conflicts do not affect running ranks.
    """
    attempt = job.attempt
    if attempt is None or not conflicts:
        return []
    message = _cut("; ".join(each.message for each in conflicts))
    by_incarnation = defaultdict[int, _Report](_Report)
    for rank in ranks_to_run(job):
        if attempt.ranks[rank].state is RankState.PENDING:
            end = Exit(rank, None, Cause.START_TIMEOUT, message)
            by_incarnation[attempt.ranks[rank].incarnation].exited.append(end)
    return [
        report.command(job.id, attempt.number, incarnation)
        for incarnation, report in sorted(by_incarnation.items())
    ]


def observe(pod: Document, rank: int, container: str) -> RankObservation:
    """Return the state of `rank` according to its pod.

    `container` is the main container, whose exit code is that of the rank; "" means the first.
    """
    status: Mapping[str, Any] = pod.get("status") or {}
    phase = status.get("phase")
    speaker = _speaker(status, container)
    restarts = sum(int(each.get("restartCount", 0)) for each in _containers(status))
    leaving = _leaving(rank, status) if is_terminating(pod) and not is_over(pod) else None
    match phase:
        case "Running":
            return RankObservation(started=True, leaving=leaving, restarts=restarts)
        case "Succeeded":
            return RankObservation(started=True, exit=_success(rank, speaker))
        case "Failed":
            return RankObservation(started=_has_run(status), exit=_failure(rank, status, speaker))
        case _:
            # Its deadline was set before it was bound to a node: no container will ever run.
            gone = is_ending(pod) and not pod.get("spec", {}).get("nodeName")
            return RankObservation(gone=gone, leaving=leaving, trouble=trouble(pod))


def is_ready(pod: Document) -> bool:
    """Return whether the condition Ready of a pod is True."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)


def trouble(pod: Document) -> PodProblem | None:
    """Return why a pod that should run does not: no capacity, no image, a failing init container.

    None if the pod has no problem.
    """
    status: Mapping[str, Any] = pod.get("status") or {}
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return PodProblem(condition.get("reason", ""), _cut(condition.get("message", "")))
    for each in _containers(status):
        waiting = (each.get("state") or {}).get("waiting") or {}
        if waiting.get("reason", "") not in ON_THE_WAY:
            reason = waiting["reason"]
            message = f"{each.get('name')}: {waiting.get('message', '')}"
            return PodProblem(SAME_TROUBLE.get(reason, reason), _cut(message))
    return None


class _Report:
    """Collects the observations of the ranks of one incarnation."""

    def __init__(self) -> None:
        self.started: list[int] = []
        self.exited: list[Exit] = []
        self.gone: list[int] = []
        self.leaving: list[Exit] = []
        self.restarted: list[tuple[int, int]] = []
        self.commits: list[tuple[int, str]] = []
        self.stuck: list[Stuck] = []

    def __bool__(self) -> bool:
        news = self.started or self.exited or self.gone or self.leaving
        return bool(news or self.commits or self.stuck)

    def add(self, rank: int, observation: RankObservation) -> None:
        if observation.started:
            self.started.append(rank)
        if observation.exit is not None:
            self.exited.append(observation.exit)
        if observation.gone:
            self.gone.append(rank)
        if observation.leaving is not None:
            self.leaving.append(observation.leaving)
        if observation.restarts:
            self.restarted.append((rank, observation.restarts))
        # All ranks of a gang have the same code, so each distinct commit is reported once.
        if observation.commit and all(known != observation.commit for _, known in self.commits):
            self.commits.append((rank, observation.commit))
        if observation.trouble is not None:
            self.stuck.append(Stuck(rank, *observation.trouble))

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


def _should_be_there(attempt: Attempt, rank: int) -> bool:
    """Return whether a missing pod is news: the rank ran, or its pod will not be created now."""
    state = attempt.ranks[rank].state
    if attempt.state in LIVE:
        return state in (RankState.RUNNING, RankState.LOST)
    return state in (RankState.PENDING, RankState.RUNNING, RankState.LOST)


def _containers(status: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    yield from status.get("initContainerStatuses") or ()
    yield from status.get("containerStatuses") or ()


def _speaker(status: Mapping[str, Any], container: str) -> Mapping[str, Any]:
    """Return the `terminated` state of the rank's main container; empty if it has not ended.

    An empty `container` means the first container.
    """
    statuses: Sequence[Mapping[str, Any]] = status.get("containerStatuses") or ()
    for each in statuses:
        if not container or each.get("name") == container:
            return (each.get("state") or {}).get("terminated") or {}
    return {}


def _leaving(rank: int, status: Mapping[str, Any]) -> Exit:
    return Exit(rank, None, _platform_cause(status) or Cause.EVICTION, loss=POD_DELETED)


def _success(rank: int, speaker: Mapping[str, Any]) -> Exit:
    if speaker.get("exitCode") == 0:
        return Exit(rank, 0)
    return Exit(rank, None, Cause.COMPLETED)


def _failure(rank: int, status: Mapping[str, Any], speaker: Mapping[str, Any]) -> Exit:
    code: int | None = speaker.get("exitCode")
    cause = _platform_cause(status) or CONTAINER_REASONS.get(speaker.get("reason", ""), Cause.EXIT)
    message = speaker.get("message") or status.get("message") or _init_failure(status)
    reason = str(status.get("reason") or speaker.get("reason") or "")
    if code == 0:
        # Another container failed, so exit code 0 of the main container is no success of the pod.
        code = None
    return Exit(rank, code, cause, _cut(message), reason=reason)


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
    """Return whether the containers of a failed pod ever ran; True if the status does not show it."""
    reason = str(status.get("reason") or "")
    if reason in REFUSALS or reason.startswith(REFUSAL_PREFIX) or _init_failure(status):
        return False
    states = [each.get("state") or {} for each in status.get("containerStatuses") or ()]
    return not states or not all("waiting" in state for state in states)


def _cut(text: str) -> str:
    return text if len(text) <= MESSAGE_LENGTH_MAX else text[: MESSAGE_LENGTH_MAX - 1] + "…"
