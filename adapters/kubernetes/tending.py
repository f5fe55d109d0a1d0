"""Keeps every job as it should be: tells what its pods say, and does what its plan asks.

Laws that hold here:

1. What to do is read off the job as it was last told and what is seen now (`plan`), again and again
   until nothing is left to do. Being asked twice, or by two control planes, is harmless.
2. A missing pod means something only after everything has been listed, and only if no request that
   may have made it is still unanswered.
3. A run of a rank that has had a pod gets no other one. Whoever sees a pod of a run that he has not
   heard of is old himself, and leaves it alone.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from adapters.kubernetes import sightings
from adapters.kubernetes.binding import binds
from adapters.kubernetes.clearing import BeforeDeletion, Clearing
from adapters.kubernetes.errors import ApiError
from adapters.kubernetes.eyes import Eyes
from adapters.kubernetes.glances import (
    conflicts_of,
    has_living_files,
    is_up,
    rare,
    without_gone,
)
from adapters.kubernetes.hands import UNWATCHED, Hands, Outcome
from adapters.kubernetes.marks import (
    INSTANCE,
    JOB_ID,
    Document,
    is_terminating,
    labels_of,
    mark_of,
    name_of,
)
from adapters.kubernetes.objects import Rendering
from adapters.kubernetes.plan import Conflict, Observed, Plan, Ref, plan
from adapters.kubernetes.reflector import Change
from adapters.kubernetes.site import Owner, Site
from adapters.kubernetes.ssh_keys import make_key_pair
from adapters.kubernetes.wishes import is_over
from adapters.kubernetes.work import (
    Work,
    as_running,
    is_current,
    is_run_over,
    runs_made,
    stopping,
)
from controlplane.attempt import HOLDING
from controlplane.commands import ReportError, ReportRanks
from controlplane.effects import LaunchGang, StopGang
from controlplane.faults import fault_of
from controlplane.job import Job
from controlplane.kinds.pod_group import priority_classes
from controlplane.kinds.registry import kind_of

# What changes within this time is looked at together.
SETTLE_S = 0.02
SETTLE_S_MAX = 0.5
AGAIN_S_FIRST = 0.5
AGAIN_S_MAX = 30.0
# So often in a row something may raise for a job before it fails with `platform_error`.
TRIES_MAX = 5

_log = logging.getLogger("muster.kubernetes")

# Adds the last lines that ranks wrote which ended badly.
WithLines = Callable[[Job, list[ReportRanks]], Awaitable[list[ReportRanks]]]


class Tending:
    def __init__(
        self,
        eyes: Eyes,
        hands: Hands,
        site: Site,
        *,
        report: Callable[[ReportRanks | ReportError], None],
        with_lines: WithLines,
        before_deletion: BeforeDeletion,
        binds_itself: bool = True,
        owner_of: Callable[[Job], Owner | None] = lambda job: None,
        on_planned: Callable[[Job, Plan], None] = lambda job, plan: None,
    ) -> None:
        self._eyes = eyes
        self._hands = hands
        self._site = site
        self._report = report
        self._with_lines = with_lines
        self._before_deletion = before_deletion
        self._binds_itself = binds_itself
        self._owner_of = owner_of
        self._on_planned = on_planned
        self._works: dict[str, Work] = {}
        self._clearing = Clearing(eyes, hands, before_deletion)
        self._closed = False

    async def rest(self) -> None:
        """Nothing more is done for any job until it is asked for again; what is seen is told."""
        for work in self._works.values():
            work.rest()
        tasks = [work.task for work in self._works.values() if work.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def close(self) -> None:
        self._closed = True
        tasks = [work.task for work in self._works.values() if work.task is not None]
        for work in self._works.values():
            if work.again is not None:
                work.again.cancel()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ------------------------------------------------------------------ what is asked

    def launch(self, effect: LaunchGang) -> None:
        work = self._work(effect.job_id)
        if effect.attempt < work.number:
            return
        if effect.attempt <= work.stopped:
            # It was told to stop; what is left of it is told once more.
            work.asked = True
        else:
            work.take(effect.job)
        self._kick(work)

    def stop(self, effect: StopGang) -> None:
        work = self._work(effect.job_id)
        if effect.attempt < work.number:
            return
        work.stopped = max(work.stopped, effect.attempt)
        work.take(stopping(effect.job))
        self._kick(work)

    def tidy(self, job_id: str, job: Job | None) -> None:
        """What nobody keeps of a job goes; with None, all of it."""
        work = self._work(job_id)
        if job is not None and job.attempt is not None and job.attempt.number < work.number:
            return
        work.take(job)
        self._kick(work)

    def names(self, job_id: str) -> list[str]:
        """The names of a job's pods, in the order of its ranks."""
        work = self._works.get(job_id)
        return [] if work is None or work.job is None else self._rendering(work).names

    def knows(self, job_id: str) -> bool:
        return job_id in self._works

    def on_change(self, job_id: str, kind: str, change: Change) -> None:
        """Something of a job is not as it was."""
        work = self._works.get(job_id)
        if work is None:
            return
        if kind != "Pod":
            work.plan_due = work.plan_due or change.now is None or kind == "PodGroup"
            if work.plan_due:
                self._kick(work)
            return
        if change.now is None:
            work.last_words.append(change.document)
            work.plan_due = True
        else:
            work.note(change.now)
            work.changed.add(change.key.name)
            work.plan_due = work.plan_due or is_over(change.now) or has_living_files(work)
        self._kick(work)

    def look_again(self, job_id: str) -> None:
        """Looks at all of a job, as after a change that could not be handled."""
        work = self._works.get(job_id)
        if work is not None and not work.rests:
            work.asked = work.plan_due = True
            self._kick(work)

    def _work(self, job_id: str) -> Work:
        work = self._works.get(job_id)
        if work is None:
            work = self._works[job_id] = Work(job_id)
            for pod in self._eyes.pods_of(job_id).values():
                work.note(pod)
        return work

    # ------------------------------------------------------------------ the loop of one job

    def _kick(self, work: Work) -> None:
        if work.again is not None:
            work.again.cancel()
            work.again = None
        if work.task is None and not self._closed:
            work.task = asyncio.create_task(self._tend(work))

    async def _tend(self, work: Work) -> None:
        again_s: float | None = None
        try:
            loop = asyncio.get_running_loop()
            while work.asked or work.plan_due or work.changed or work.last_words:
                await self._eyes.see_jobs()
                began = loop.time()
                if work.errors >= TRIES_MAX and not work.is_live:
                    again_s = await self._sweep(work)
                    continue
                await self._tell(work)
                if work.plan_due and work.rests:
                    work.plan_due = False
                elif work.plan_due:
                    again_s = await self._carry_out(work)
                # A large gang takes long to look at, and then so much the more is looked at together.
                await asyncio.sleep(max(SETTLE_S, min(loop.time() - began, SETTLE_S_MAX)))
            work.failures = 0 if again_s is None else work.failures
            work.errors = 0 if work.errors < TRIES_MAX else work.errors
        except asyncio.CancelledError:
            raise
        except ApiError as error:
            _log.warning("job %s could not be tended: %s; it is tried again", work.id, error)
            again_s, work.asked = AGAIN_S_MAX, True
        except Exception as error:  # noqa: BLE001 - one job's bug must not stop the others
            again_s = self._failed(work, error)
        finally:
            work.task = None
        if again_s is not None:
            self._again(work, again_s)
        elif work.is_over and not self._closed:
            self._works.pop(work.id, None)

    def _failed(self, work: Work, error: Exception) -> float:
        """Notes that something raised; returns when to try again. After `TRIES_MAX` the job fails."""
        work.errors += 1
        work.asked = True
        _log.exception("job %s could not be tended (%d in a row)", work.id, work.errors)
        if work.errors == TRIES_MAX and work.job is not None:
            self._report(
                ReportError(attempt=work.number, **fault_of(error, work.id, "kubernetes")._asdict())
            )
        return float(min(AGAIN_S_FIRST * 2 ** min(work.errors - 1, 10), AGAIN_S_MAX))

    async def _sweep(self, work: Work) -> float | None:
        """Stops a job for which nothing can be rendered: all that has its label goes, and when no
        pod is left its ranks are gone."""
        work.asked = work.plan_due = False
        work.changed, work.last_words = set(), []
        await self._clearing.of_gone(work)
        if self._eyes.pods_of(work.id):
            return _patience(work)
        job = work.job
        if job is not None and job.attempt is not None:
            for run, ranks in job.attempt.runs(*HOLDING).items():
                gone = tuple(ranks)
                self._report(
                    ReportRanks(job=job.id, attempt=work.number, gone=gone, incarnation=run)
                )
        return None

    def _again(self, work: Work, seconds: float) -> None:
        def act() -> None:
            work.again = None
            work.plan_due = True
            self._kick(work)

        work.again = asyncio.get_running_loop().call_later(seconds, act)

    # ------------------------------------------------------------------ telling

    async def _tell(self, work: Work) -> None:
        changed, work.changed = work.changed, set()
        gone, work.last_words = work.last_words, []
        asked, work.asked = work.asked, False
        job = work.job
        if job is None or job.attempt is None:
            return
        found = [each for pod in gone if (each := self._last_word(job, pod)) is not None]
        names = self._rendering(work).names
        pods = self._eyes.pods_of(job.id)
        only = None if asked else [rank for rank, name in enumerate(names) if name in changed]
        seen = as_running(job, runs_made(job, job.attempt, work.made))
        if only is None or only:
            found += sightings.reports(seen, names, pods, only)
        if asked or gone:
            found += sightings.surplus(seen, len(names), pods.values())
        if work.unsure:
            found = [without_gone(each, names, work) for each in found]
        for each in await self._with_lines(job, found):
            self._report(each)

    def _last_word(self, job: Job, pod: Document) -> ReportRanks | None:
        mark = mark_of(pod)
        if mark is None:
            return None
        container = job.spec.role_of(mark.rank)[0].container if mark.rank < job.spec.size else ""
        return sightings.last_word(pod, container)

    def _rendering(self, work: Work) -> Rendering:
        if work.rendering is None:
            assert work.job is not None
            job = work.job
            work.rendering = Rendering(job, kind_of(job.spec), self._site, self._owner_of(job))
        return work.rendering

    # ------------------------------------------------------------------ doing

    async def _carry_out(self, work: Work) -> float | None:
        """Does what is to be done now; returns when to look again, if that is not left to others."""
        work.plan_due = False
        version = work.version

        def still() -> bool:
            return work.version == version

        if work.job is None:
            await self._clearing.of_gone(work)
            return _patience(work) if self._eyes.of_job(work.id) else None
        rendering, job = self._rendering(work), work.job
        await self._look_up(work, rendering)
        observed = self._observed(work)
        if job.attempt is not None:
            up = [i for i, name in enumerate(rendering.names) if is_up(observed, name)]
            priorities = await self._priorities(job)
            if priorities is None:
                return _patience(work)
            rendering = Rendering(
                as_running(job, up), kind_of(job.spec), self._site, self._owner_of(job), priorities
            )
        keys = await make_key_pair() if self._needs_keys(rendering, observed) else ("", "")
        planned = plan(rendering, observed, lambda: keys)
        if not await self._clearing.accounts(work, rendering):
            return _patience(work)
        await self._undo(work, planned, observed)
        troubles = await self._make(work, planned, still)
        self._on_planned(job, planned)
        blocking = [each for each in planned.conflicts if not self._is_leaving(observed, each)]
        blocking += troubles
        if blocking and still():
            for report in sightings.blocked(job, blocking):
                self._report(report)
        if self._binds_itself and work.is_live and still() and not blocking:
            wanted = binds(
                job,
                rendering.names,
                self._observed(work),
                lambda rank, pod: is_current(job, rank, pod),
            )
            troubles += conflicts_of(await self._hands.bind(wanted, job.namespace, still))
        if work.unsure or troubles or planned.conflicts:
            return _patience(work)
        return None

    async def _priorities(self, job: Job) -> dict[str, int] | None:
        """The priority classes that a pod group is made by; None if they are not known now."""
        if not self._site.gang or job.finished:
            return {}
        try:
            return await self._hands.priorities(priority_classes(job.spec))
        except ApiError as error:
            _log.warning("job %s: its priority classes are asked for again: %s", job.id, error)
            return None

    def _observed(self, work: Work) -> Observed:
        return {**work.strangers, **work.extra, **self._eyes.of_job(work.id)}

    async def _undo(self, work: Work, planned: Plan, observed: Observed) -> None:
        """What is to go, goes."""
        assert work.job is not None
        namespace = work.job.namespace
        gone = [observed[ref] for ref in planned.delete if ref in observed]
        gone = [each for each in gone if not work.is_newer(each)]
        pods = [each for each in gone if each["kind"] == "Pod"]
        if pods:
            await self._before_deletion(pods)
        await self._hands.delete(gone, namespace)
        stranded = [pod for pod in self._eyes.pods_of(work.id).values() if self._strands(work, pod)]
        await self._hands.delete(stranded, namespace, at_once=True)
        for each in gone:
            work.extra.pop(Ref(each["kind"], name_of(each)), None)
        await self._hands.patch(planned.patch, namespace)

    def _strands(self, work: Work, pod: Document) -> bool:
        """Whether a pod cannot end: its run is over for the core, and its node does not answer.

        The core counts a rank on a silent node as gone only if the node was given up; until then
        the rank may still run, and its pod is left alone.
        """
        assert work.job is not None
        node = (pod.get("spec") or {}).get("nodeName") or ""
        return bool(node) and is_run_over(work.job, pod) and not self._eyes.answers(node)

    async def _make(self, work: Work, planned: Plan, still: Callable[[], bool]) -> list[Conflict]:
        """What is to be there, is made: first what the pods need, then the pods. Says what failed."""
        pods = [each for each in planned.create if each["kind"] == "Pod"]
        pods = [each for each in pods if mark_of(each) not in work.made]
        others = [each for each in planned.create if each["kind"] != "Pod"]
        failed = self._note(work, others, await self._hands.create(others, still))
        if failed or not still():
            return failed
        return self._note(work, pods, await self._hands.create(pods, still))

    def _note(
        self, work: Work, documents: list[dict[str, Any]], outcomes: list[Outcome]
    ) -> list[Conflict]:
        """Remembers what became of each; returns those that will not be made, and why."""
        failed: list[Conflict] = []
        for document, outcome in zip(documents, outcomes, strict=True):
            ref, found, error = outcome.ref, outcome.found, outcome.error
            work.unsure.pop(ref, None)
            if found is not None:
                self._note_found(work, ref, document, found)
            elif outcome.is_unsure:
                work.unsure[ref] = document
            elif error is not None:
                failed.append(Conflict(ref.kind, ref.name, f"{ref.kind} {ref.name}: {error}"))
        return failed

    def _note_found(
        self, work: Work, ref: Ref, document: dict[str, Any], found: dict[str, Any]
    ) -> None:
        ours, theirs = labels_of(document), labels_of(found)
        if any(theirs.get(name) != ours.get(name) for name in (JOB_ID, INSTANCE)):
            work.strangers[ref] = found
            work.plan_due = True
        elif ref.kind in UNWATCHED:
            work.extra[ref] = found
        elif ref.kind == "Pod":
            work.note(found)

    async def _look_up(self, work: Work, rendering: Rendering) -> None:
        """Asks for what nobody watches, once; and for what an unanswered request may have made."""
        wanted = dict(work.unsure)
        if work.is_live:
            work.has_looked = True
            for document in rare(rendering):
                ref = Ref(document["kind"], name_of(document))
                if ref not in work.extra_known:
                    wanted[ref] = document
        if not wanted:
            return
        outcomes = await asyncio.gather(*(self._hands.find(each) for each in wanted.values()))
        self._note(work, list(wanted.values()), outcomes)
        work.extra_known.update(each.ref for each in outcomes if not each.is_unsure)

    def _needs_keys(self, rendering: Rendering, observed: Observed) -> bool:
        return any(Ref("Secret", name) not in observed for name in rendering.secrets())

    def _is_leaving(self, observed: Observed, conflict: Conflict) -> bool:
        """Whether what is in the way is about to go by itself, such as the last job of this name."""
        found = observed.get(Ref(conflict.kind, conflict.name))
        return found is not None and is_terminating(found)


def _patience(work: Work) -> float:
    """How long to wait before looking again at what did not come out as it should."""
    work.failures += 1
    return float(min(AGAIN_S_FIRST * 2 ** min(work.failures - 1, 10), AGAIN_S_MAX))
