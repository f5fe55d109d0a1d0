"""The state of one job between reconciliations.

Nothing here has to survive a restart: all of it is observed or requested again.
"""

import asyncio
from collections.abc import Container, Iterable
from typing import Any

from msgspec.structs import replace

from adapters.kubernetes.api.errors import ApiError
from adapters.kubernetes.observe.labels import Document, run_of
from adapters.kubernetes.reconcile.plan import ObjectConflict, Observed, Ref
from adapters.kubernetes.render.objects import Rendering
from controlplane.kinds.kind import Kind
from controlplane.kinds.registry import kind_of
from controlplane.lifecycle.job import Job
from controlplane.lifecycle.runs import RankRun, current_run
from controlplane.model.commands import ReportRanks
from controlplane.model.phases import LIVE, WITH_DEVICES, AttemptState, RankState


class JobContext:
    """The context of one job; `job` is its state in the last effect, None once it is deleted."""

    def __init__(self, job_id: str) -> None:
        self.id = job_id
        self.job: Job | None = None
        self.rendering: Rendering | None = None
        # Incremented by each effect, so that work in progress notices that it is outdated.
        self.version = 0
        # The newest attempt for which a StopGang has arrived.
        self.stopped = 0
        # Runs of ranks that have had a pod: none of them gets another pod.
        self.created_runs: set[RankRun] = set()
        # Changes not reported yet: names of changed pods, and the last state of deleted ones.
        self.changed: set[str] = set()
        self.deleted_pods: list[Document] = []
        # Whether all ranks must be reported, because an effect asked for it.
        self.asked = False
        self.plan_due = False
        # Whether nothing may be written until the next effect.
        self.paused = False
        # Existing objects of unwatched kinds, and the references that have been read at least once.
        self.extra: dict[Ref, dict[str, Any]] = {}
        self.extra_known: set[Ref] = set()
        # Whether the unwatched objects have been read.
        self.has_looked = False
        # Objects of other owners that have names which the job needs.
        self.foreign_objects: dict[Ref, dict[str, Any]] = {}
        # Objects that may exist, because the request to create them got no answer.
        self.unconfirmed: dict[Ref, dict[str, Any]] = {}
        self.task: asyncio.Task[None] | None = None
        self.again: asyncio.TimerHandle | None = None
        self.failures = 0
        # The number of consecutive exceptions other than ApiError.
        self.errors = 0

    @property
    def number(self) -> int:
        """The number of the latest attempt; 0 before the first."""
        return self.job.attempt.number if self.job and self.job.attempt else 0

    @property
    def is_live(self) -> bool:
        """Whether the job has an attempt that should run."""
        attempt = None if self.job is None else self.job.attempt
        return attempt is not None and attempt.state in LIVE

    @property
    def is_over(self) -> bool:
        """Whether no rank runs or will run: at most garbage is left to collect."""
        attempt = None if self.job is None else self.job.attempt
        return attempt is None or attempt.state is AttemptState.OVER

    def take(self, job: Job | None) -> None:
        """Set the job's new state from an effect; None means that the job is deleted."""
        if job is not None and job.attempt is not None and job.attempt.number > self.number:
            self.errors = 0
        self.job = job
        self.rendering = None
        self.version += 1
        self.foreign_objects.clear()
        self.paused = False
        self.asked = self.plan_due = True

    def pause(self) -> None:
        """Write nothing until the next effect: the engine that sent the last one may not lead."""
        self.version += 1
        self.paused, self.plan_due = True, False
        if self.again is not None:
            self.again.cancel()
            self.again = None

    def note(self, pod: Document) -> None:
        """Record that the run of `pod` has had a pod."""
        run = run_of(pod)
        if run is not None:
            self.created_runs.add(run)

    def is_newer(self, pod: Document) -> bool:
        """Return whether `pod` is of a later run than this context knows.

        Then a newer leader created the pod, and it must be left alone.
        """
        run, attempt = run_of(pod), None if self.job is None else self.job.attempt
        if run is None or attempt is None:
            return False
        if run.attempt != attempt.number:
            return run.attempt > attempt.number
        return (
            run.rank < len(attempt.ranks) and run.incarnation > attempt.ranks[run.rank].incarnation
        )


def stopping(job: Job) -> Job:
    """Return the job with its attempt in the state STOPPING, unless the attempt is not live."""
    attempt = job.attempt
    assert attempt is not None
    if attempt.state not in LIVE:
        return job
    return replace(job, attempt=replace(attempt, state=AttemptState.STOPPING))


def as_running(job: Job, ranks: Iterable[int]) -> Job:
    """Return the job as it will be after a report that `ranks` have started."""
    attempt = job.attempt
    assert attempt is not None
    changed = list(attempt.ranks)
    for rank in ranks:
        if rank < len(changed) and changed[rank].state is RankState.PENDING:
            changed[rank] = replace(changed[rank], state=RankState.RUNNING)
    return replace(job, attempt=replace(attempt, ranks=tuple(changed)))


def is_run_over(job: Job, pod: Document) -> bool:
    """Return whether the run of `pod` is an earlier one or has ended, according to the core."""
    run, attempt = run_of(pod), job.attempt
    if run is None or attempt is None or run.attempt > attempt.number:
        return False
    if run.attempt < attempt.number:
        return True
    if run.rank >= len(attempt.ranks):
        return False
    rank = attempt.ranks[run.rank]
    return run.incarnation < rank.incarnation or (
        run.incarnation == rank.incarnation and rank.state not in WITH_DEVICES
    )


def ranks_with_pods(job: Job, created_runs: Container[RankRun]) -> list[int]:
    """Return the ranks whose present run has had a pod."""
    ranks = () if job.attempt is None else job.attempt.ranks
    return [i for i in range(len(ranks)) if current_run(job, i) in created_runs]


def has_rank_files(context: JobContext) -> bool:
    """Return whether the job may have files that list the running ranks, such as a host file."""
    if context.job is None or not context.is_live:
        return False
    return kind_of(context.job.spec).files is not Kind._field_defaults["files"]


def is_up(observed: Observed, name: str) -> bool:
    """Return whether the pod `name` exists and is in the phase Running."""
    pod = observed.get(Ref("Pod", name))
    return pod is not None and (pod.get("status") or {}).get("phase") == "Running"


def unwatched_objects(rendering: Rendering) -> list[dict[str, Any]]:
    """Return the job's objects of unwatched kinds; secrets have empty keys, enough to read them."""
    objects = rendering.accounts()
    objects += [rendering.secret(name, lambda: ("", "")) for name in rendering.secrets()]
    objects += rendering.boards()
    return objects + (rendering.autoscalers() if rendering.is_owned else [])


def without_gone(report: ReportRanks, names: list[str], context: JobContext) -> ReportRanks:
    """Return the report without gone ranks whose pod is unconfirmed: such a pod may exist."""
    unconfirmed = {ref.name for ref in context.unconfirmed if ref.kind == "Pod"}
    kept = tuple(i for i in report.gone if i >= len(names) or names[i] not in unconfirmed)
    return replace(report, gone=kept)


def conflicts_of(errors: Iterable[ApiError]) -> list[ObjectConflict]:
    return [ObjectConflict("Pod", "", str(error)) for error in errors]
