"""What is remembered of one job while it is tended: nothing that the next control plane would miss."""

import asyncio
from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from adapters.kubernetes.marks import Document, Mark, mark_of
from adapters.kubernetes.objects import Rendering
from adapters.kubernetes.plan import Ref
from controlplane.attempt import HOLDING, LIVE, Attempt, AttemptState, RankState
from controlplane.job import Job


class Work:
    """One job. `job` is as the last effect told it, None once it is gone."""

    def __init__(self, job_id: str) -> None:
        self.id = job_id
        self.job: Job | None = None
        self.rendering: Rendering | None = None
        # Counts what was asked, so that work which is under way notices that it is no longer wanted.
        self.version = 0
        # The newest attempt that was told to stop.
        self.stopped = 0
        # Runs of ranks that have had a pod: none of them gets another one.
        self.made: set[Mark] = set()
        # What has happened and was not told yet: pods that changed, and the last that was seen of
        # those that are gone.
        self.changed: set[str] = set()
        self.last_words: list[Document] = []
        # Whether everything is to be told, because somebody asked.
        self.asked = False
        self.plan_due = False
        # Whether nothing is to be done until somebody asks again.
        self.rests = False
        # Objects of kinds that nobody watches: those that are there.
        self.extra: dict[Ref, dict[str, Any]] = {}
        self.extra_known: set[Ref] = set()
        # Whether it was found out what there is of those.
        self.has_looked = False
        # Other people's objects that have names which the job needs.
        self.strangers: dict[Ref, dict[str, Any]] = {}
        # Objects that may be there, though the request was not answered.
        self.unsure: dict[Ref, dict[str, Any]] = {}
        self.task: asyncio.Task[None] | None = None
        self.again: asyncio.TimerHandle | None = None
        self.failures = 0
        # How often in a row something raised that no request to the cluster explains.
        self.errors = 0

    @property
    def number(self) -> int:
        """The attempt."""
        return self.job.attempt.number if self.job and self.job.attempt else 0

    @property
    def is_live(self) -> bool:
        attempt = None if self.job is None else self.job.attempt
        return attempt is not None and attempt.state in LIVE

    @property
    def is_over(self) -> bool:
        """Whether nothing of it runs: it needs tidying at most."""
        attempt = None if self.job is None else self.job.attempt
        return attempt is None or attempt.state is AttemptState.OVER

    def take(self, job: Job | None) -> None:
        """What is wanted is something else now."""
        if job is not None and job.attempt is not None and job.attempt.number > self.number:
            self.errors = 0
        self.job = job
        self.rendering = None
        self.version += 1
        self.strangers.clear()
        self.rests = False
        self.asked = self.plan_due = True

    def rest(self) -> None:
        """Whoever asked leads no more."""
        self.version += 1
        self.rests, self.plan_due = True, False
        if self.again is not None:
            self.again.cancel()
            self.again = None

    def note(self, pod: Document) -> None:
        mark = mark_of(pod)
        if mark is not None:
            self.made.add(mark)

    def is_newer(self, pod: Document) -> bool:
        """Whether a pod is of a run that we have not heard of: then we are the ones who are old."""
        mark, attempt = mark_of(pod), None if self.job is None else self.job.attempt
        if mark is None or attempt is None:
            return False
        if mark.attempt != attempt.number:
            return mark.attempt > attempt.number
        return (
            mark.rank < len(attempt.ranks)
            and mark.incarnation > attempt.ranks[mark.rank].incarnation
        )


def stopping(job: Job) -> Job:
    """The job with its attempt told to stop, if it was not yet when the job was read."""
    attempt = job.attempt
    assert attempt is not None
    if attempt.state not in LIVE:
        return job
    return replace(job, attempt=replace(attempt, state=AttemptState.STOPPING))


def as_running(job: Job, ranks: Iterable[int]) -> Job:
    """The job as it will be once the control plane has heard that these ranks are up."""
    attempt = job.attempt
    assert attempt is not None
    found = list(attempt.ranks)
    for rank in ranks:
        if rank < len(found) and found[rank].state is RankState.PENDING:
            found[rank] = replace(found[rank], state=RankState.RUNNING)
    return replace(job, attempt=replace(attempt, ranks=tuple(found)))


def is_current(job: Job, rank: int, pod: Document) -> bool:
    """Whether a pod is that of the rank's present run."""
    mark, attempt = mark_of(pod), job.attempt
    if mark is None or attempt is None or rank >= len(attempt.ranks):
        return False
    run = (job.id, attempt.number, rank, attempt.ranks[rank].incarnation)
    return mark == run


def is_run_over(job: Job, pod: Document) -> bool:
    """Whether the core counts the run that a pod belongs to as ended, or as an earlier one."""
    mark, attempt = mark_of(pod), job.attempt
    if mark is None or attempt is None or mark.attempt > attempt.number:
        return False
    if mark.attempt < attempt.number:
        return True
    if mark.rank >= len(attempt.ranks):
        return False
    rank = attempt.ranks[mark.rank]
    return mark.incarnation < rank.incarnation or (
        mark.incarnation == rank.incarnation and rank.state not in HOLDING
    )


def runs_made(job: Job, attempt: Attempt, made: set[Mark]) -> list[int]:
    """The ranks whose present run has had a pod."""
    return [
        i
        for i, rank in enumerate(attempt.ranks)
        if Mark(job.id, attempt.number, i, rank.incarnation) in made
    ]
