"""The reconciler: reports what the pods of each job show, and carries out each job's plan.

It is level-triggered, as controllers of Kubernetes are: an effect or a change of an object only
marks the job, and one task per job then compares desired with observed state. Failures are retried
with exponential back-off, from `AGAIN_S_FIRST` to `AGAIN_S_MAX`. Rules:

1. A plan (`plan.py`) depends on the job in the last effect and on the objects observed now. Plans
   are made and carried out until one is empty. Repeated effects, or effects of two control planes,
   are harmless.
2. A missing pod means something only after everything has been listed, and only if no request that
   may have created it is still unanswered.
3. A run of a rank that has had a pod gets no other pod. A control plane that sees a pod of a run
   that it does not know is itself outdated, and leaves the pod alone.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from adapters.kubernetes.api.errors import ApiError
from adapters.kubernetes.api.reflector import Change
from adapters.kubernetes.observe import pod_status
from adapters.kubernetes.observe.informers import JobInformers
from adapters.kubernetes.observe.labels import (
    INSTANCE,
    JOB_ID,
    Document,
    is_current,
    is_terminating,
    labels_of,
    name_of,
    run_of,
)
from adapters.kubernetes.reconcile.binding import binds
from adapters.kubernetes.reconcile.desired_pods import is_over
from adapters.kubernetes.reconcile.garbage_collection import BeforeDeletion, GarbageCollector
from adapters.kubernetes.reconcile.job_context import (
    JobContext,
    as_running,
    conflicts_of,
    has_rank_files,
    is_run_over,
    is_up,
    ranks_with_pods,
    stopping,
    unwatched_objects,
    without_gone,
)
from adapters.kubernetes.reconcile.object_writer import UNWATCHED, ObjectWriter, Outcome
from adapters.kubernetes.reconcile.plan import ObjectConflict, Observed, Plan, Ref, plan
from adapters.kubernetes.render.objects import Rendering
from adapters.kubernetes.render.site import Owner, Site
from adapters.kubernetes.render.ssh_keys import make_key_pair
from controlplane.decisions.isolation import fault_of
from controlplane.kinds.manifest.pod_group import priority_classes
from controlplane.kinds.registry import kind_of
from controlplane.lifecycle.effects import LaunchGang, StopGang
from controlplane.lifecycle.job import Job
from controlplane.model.commands import ReportError, ReportRanks
from controlplane.model.phases import WITH_DEVICES

# Changes within this time are handled together.
SETTLE_S = 0.02
SETTLE_S_MAX = 0.5
AGAIN_S_FIRST = 0.5
AGAIN_S_MAX = 30.0
# After this many consecutive exceptions for a job, the job fails with `platform_error`.
TRIES_MAX = 5

_log = logging.getLogger("muster.kubernetes")

# Adds the last lines of the log to reports of ranks that failed.
WithLines = Callable[[Job, list[ReportRanks]], Awaitable[list[ReportRanks]]]


class JobReconciler:
    """Reconciles all jobs of one cluster, each in a task of its own.

    `report` receives reports about ranks. `with_lines` adds log lines to reports, and
    `before_deletion` keeps the logs of pods. With `binds_itself` the reconciler binds pods to their
    nodes. `on_planned` is called with each plan after its requests have been sent.
    """

    def __init__(
        self,
        informers: JobInformers,
        writer: ObjectWriter,
        site: Site,
        *,
        report: Callable[[ReportRanks | ReportError], None],
        with_lines: WithLines,
        before_deletion: BeforeDeletion,
        binds_itself: bool = True,
        owner_of: Callable[[Job], Owner | None] = lambda job: None,
        on_planned: Callable[[Job, Plan], None] = lambda job, plan: None,
    ) -> None:
        self._informers = informers
        self._writer = writer
        self._site = site
        self._report = report
        self._with_lines = with_lines
        self._before_deletion = before_deletion
        self._binds_itself = binds_itself
        self._owner_of = owner_of
        self._on_planned = on_planned
        self._works: dict[str, JobContext] = {}
        self._garbage_collector = GarbageCollector(informers, writer, before_deletion)
        self._closed = False

    async def pause(self) -> None:
        """Write nothing for any job until its next effect; observations are still reported."""
        for context in self._works.values():
            context.pause()
        tasks = [context.task for context in self._works.values() if context.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def close(self) -> None:
        """Cancel all tasks and timers; objects stay as they are."""
        self._closed = True
        tasks = [context.task for context in self._works.values() if context.task is not None]
        for context in self._works.values():
            if context.again is not None:
                context.again.cancel()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ------------------------------------------------------------------ effects

    def launch(self, effect: LaunchGang) -> None:
        """Create the gang; if it was stopped already, only report its ranks again."""
        context = self._contexts(effect.job_id)
        if effect.attempt < context.number:
            return
        if effect.attempt <= context.stopped:
            # The attempt was stopped; report what is left of it again.
            context.asked = True
        else:
            context.take(effect.job)
        self._kick(context)

    def stop(self, effect: StopGang) -> None:
        """Stop the gang; an effect for an older attempt is ignored."""
        context = self._contexts(effect.job_id)
        if effect.attempt < context.number:
            return
        context.stopped = max(context.stopped, effect.attempt)
        context.take(stopping(effect.job))
        self._kick(context)

    def tidy(self, job_id: str, job: Job | None) -> None:
        """Delete what a finished job no longer needs; with `job` None, all of its objects."""
        context = self._contexts(job_id)
        if job is not None and job.attempt is not None and job.attempt.number < context.number:
            return
        context.take(job)
        self._kick(context)

    def names(self, job_id: str) -> list[str]:
        """Return the names of a job's pods in the order of its ranks; empty for an unknown job."""
        context = self._works.get(job_id)
        return [] if context is None or context.job is None else self._rendering(context).names

    def knows(self, job_id: str) -> bool:
        """Return whether the job has a context, and so is reconciled."""
        return job_id in self._works

    def on_change(self, job_id: str, kind: str, change: Change) -> None:
        """Handle a change of one of the job's objects; ignore jobs without an effect so far."""
        context = self._works.get(job_id)
        if context is None:
            return
        if kind != "Pod":
            context.plan_due = context.plan_due or change.now is None or kind == "PodGroup"
            if context.plan_due:
                self._kick(context)
            return
        if change.now is None:
            context.deleted_pods.append(change.document)
            context.plan_due = True
        else:
            context.note(change.now)
            context.changed.add(change.key.name)
            context.plan_due = context.plan_due or is_over(change.now) or has_rank_files(context)
        self._kick(context)

    def look_again(self, job_id: str) -> None:
        """Report and plan all of a job again, after a change that could not be handled."""
        context = self._works.get(job_id)
        if context is not None and not context.paused:
            context.asked = context.plan_due = True
            self._kick(context)

    def _contexts(self, job_id: str) -> JobContext:
        context = self._works.get(job_id)
        if context is None:
            context = self._works[job_id] = JobContext(job_id)
            for pod in self._informers.pods_of(job_id).values():
                context.note(pod)
        return context

    # ------------------------------------------------------------------ the loop of one job

    def _kick(self, context: JobContext) -> None:
        if context.again is not None:
            context.again.cancel()
            context.again = None
        if context.task is None and not self._closed:
            context.task = asyncio.create_task(self._reconcile(context))

    async def _reconcile(self, context: JobContext) -> None:
        again_s: float | None = None
        try:
            loop = asyncio.get_running_loop()
            while context.asked or context.plan_due or context.changed or context.deleted_pods:
                await self._informers.see_jobs()
                began = loop.time()
                if context.errors >= TRIES_MAX and not context.is_live:
                    again_s = await self._sweep(context)
                    continue
                await self._report_ranks(context)
                if context.plan_due and context.paused:
                    context.plan_due = False
                elif context.plan_due:
                    again_s = await self._carry_out(context)
                # A large gang takes long, so the wait grows with it and collects more changes.
                await asyncio.sleep(max(SETTLE_S, min(loop.time() - began, SETTLE_S_MAX)))
            context.failures = 0 if again_s is None else context.failures
            context.errors = 0 if context.errors < TRIES_MAX else context.errors
        except asyncio.CancelledError:
            raise
        except ApiError as error:
            _log.warning("job %s could not be tended: %s; it is tried again", context.id, error)
            again_s, context.asked = AGAIN_S_MAX, True
        except Exception as error:  # noqa: BLE001 - one job's bug must not stop the others
            again_s = self._failed(context, error)
        finally:
            context.task = None
        if again_s is not None:
            self._again(context, again_s)
        elif context.is_over and not self._closed:
            self._works.pop(context.id, None)

    def _failed(self, context: JobContext, error: Exception) -> float:
        """Count an exception, and return the seconds until the next try.

        At `TRIES_MAX` consecutive exceptions the error is reported, and the job fails.
        """
        context.errors += 1
        context.asked = True
        _log.exception("job %s could not be tended (%d in a row)", context.id, context.errors)
        if context.errors == TRIES_MAX and context.job is not None:
            self._report(
                ReportError(
                    attempt=context.number, **fault_of(error, context.id, "kubernetes")._asdict()
                )
            )
        return float(min(AGAIN_S_FIRST * 2 ** min(context.errors - 1, 10), AGAIN_S_MAX))

    async def _sweep(self, context: JobContext) -> float | None:
        """Stop a job that cannot be rendered: delete all objects with its label.

        When no pod is left, its ranks are reported gone and the result is None; until then the
        result is the seconds until the next try.
        """
        context.asked = context.plan_due = False
        context.changed, context.deleted_pods = set(), []
        await self._garbage_collector.of_gone(context)
        if self._informers.pods_of(context.id):
            return _patience(context)
        job = context.job
        if job is not None and job.attempt is not None:
            for run, ranks in job.attempt.runs(*WITH_DEVICES).items():
                gone = tuple(ranks)
                self._report(
                    ReportRanks(job=job.id, attempt=context.number, gone=gone, incarnation=run)
                )
        return None

    def _again(self, context: JobContext, seconds: float) -> None:
        def act() -> None:
            context.again = None
            context.plan_due = True
            self._kick(context)

        context.again = asyncio.get_running_loop().call_later(seconds, act)

    # ------------------------------------------------------------------ reports

    async def _report_ranks(self, context: JobContext) -> None:
        changed, context.changed = context.changed, set()
        gone, context.deleted_pods = context.deleted_pods, []
        asked, context.asked = context.asked, False
        job = context.job
        if job is None or job.attempt is None:
            return
        reports = [each for pod in gone if (each := self._last_word(job, pod)) is not None]
        names = self._rendering(context).names
        pods = self._informers.pods_of(job.id)
        only = None if asked else [rank for rank, name in enumerate(names) if name in changed]
        seen = as_running(job, ranks_with_pods(job, context.created_runs))
        if only is None or only:
            reports += pod_status.reports(seen, names, pods, only)
        if asked or gone:
            reports += pod_status.surplus(seen, len(names), pods.values())
        if context.unconfirmed:
            reports = [without_gone(each, names, context) for each in reports]
        for each in await self._with_lines(job, reports):
            self._report(each)

    def _last_word(self, job: Job, pod: Document) -> ReportRanks | None:
        run = run_of(pod)
        if run is None:
            return None
        container = job.spec.role_of(run.rank)[0].container if run.rank < job.spec.size else ""
        return pod_status.final_report(pod, container)

    def _rendering(self, context: JobContext) -> Rendering:
        if context.rendering is None:
            assert context.job is not None
            job = context.job
            context.rendering = Rendering(job, kind_of(job.spec), self._site, self._owner_of(job))
        return context.rendering

    # ------------------------------------------------------------------ plans

    async def _carry_out(self, context: JobContext) -> float | None:
        """Make a plan and carry it out.

        Returns the seconds until the next try, or None if only an effect or a change of an object
        gives a reason for another plan.
        """
        context.plan_due = False
        version = context.version

        def still() -> bool:
            return context.version == version

        if context.job is None:
            await self._garbage_collector.of_gone(context)
            return _patience(context) if self._informers.of_job(context.id) else None
        rendering, job = self._rendering(context), context.job
        await self._look_up(context, rendering)
        observed = self._observed(context)
        if job.attempt is not None:
            up = [i for i, name in enumerate(rendering.names) if is_up(observed, name)]
            priorities = await self._priorities(job)
            if priorities is None:
                return _patience(context)
            rendering = Rendering(
                as_running(job, up), kind_of(job.spec), self._site, self._owner_of(job), priorities
            )
        keys = await make_key_pair() if self._needs_keys(rendering, observed) else ("", "")
        planned = plan(rendering, observed, lambda: keys)
        if not await self._garbage_collector.accounts(context, rendering):
            return _patience(context)
        await self._undo(context, planned, observed)
        troubles = await self._make(context, planned, still)
        self._on_planned(job, planned)
        blocking = [each for each in planned.conflicts if not self._is_leaving(observed, each)]
        blocking += troubles
        if blocking and still():
            for report in pod_status.blocked(job, blocking):
                self._report(report)
        if self._binds_itself and context.is_live and still() and not blocking:
            wanted = binds(
                job,
                rendering.names,
                self._observed(context),
                lambda rank, pod: is_current(job, rank, pod),
            )
            troubles += conflicts_of(await self._writer.bind(wanted, job.namespace, still))
        if context.unconfirmed or troubles or planned.conflicts:
            return _patience(context)
        return None

    async def _priorities(self, job: Job) -> dict[str, int] | None:
        """Return the priority classes that the pod group needs; None if they cannot be read now."""
        if not self._site.gang or job.finished:
            return {}
        try:
            return await self._writer.priorities(priority_classes(job.spec))
        except ApiError as error:
            _log.warning("job %s: its priority classes are asked for again: %s", job.id, error)
            return None

    def _observed(self, context: JobContext) -> Observed:
        return {**context.foreign_objects, **context.extra, **self._informers.of_job(context.id)}

    async def _undo(self, context: JobContext, planned: Plan, observed: Observed) -> None:
        """Delete and patch as planned, and force the deletion of stranded pods."""
        assert context.job is not None
        namespace = context.job.namespace
        gone = [observed[ref] for ref in planned.delete if ref in observed]
        gone = [each for each in gone if not context.is_newer(each)]
        pods = [each for each in gone if each["kind"] == "Pod"]
        if pods:
            await self._before_deletion(pods)
        await self._writer.delete(gone, namespace)
        stranded = [
            pod
            for pod in self._informers.pods_of(context.id).values()
            if self._strands(context, pod)
        ]
        await self._writer.delete(stranded, namespace, at_once=True)
        for each in gone:
            context.extra.pop(Ref(each["kind"], name_of(each)), None)
        await self._writer.patch(planned.patch, namespace)

    def _strands(self, context: JobContext, pod: Document) -> bool:
        """Return whether a pod cannot end: its run is over for the core, and its node is not ready.

        The core counts a rank on a silent node as gone only after the node is given up; until then
        the rank may still run, and its pod is left alone.
        """
        assert context.job is not None
        node = (pod.get("spec") or {}).get("nodeName") or ""
        return bool(node) and is_run_over(context.job, pod) and not self._informers.answers(node)

    async def _make(
        self, context: JobContext, planned: Plan, still: Callable[[], bool]
    ) -> list[ObjectConflict]:
        """Create what the pods need, then the pods; return what could not be created.

        Pods are not created if anything before them failed or the plan is outdated.
        """
        pods = [each for each in planned.create if each["kind"] == "Pod"]
        pods = [each for each in pods if run_of(each) not in context.created_runs]
        others = [each for each in planned.create if each["kind"] != "Pod"]
        failed = self._note(context, others, await self._writer.create(others, still))
        if failed or not still():
            return failed
        return self._note(context, pods, await self._writer.create(pods, still))

    def _note(
        self, context: JobContext, documents: list[dict[str, Any]], outcomes: list[Outcome]
    ) -> list[ObjectConflict]:
        """Record the outcomes, and return the objects that cannot be created, with reasons."""
        failed: list[ObjectConflict] = []
        for document, outcome in zip(documents, outcomes, strict=True):
            ref, existing, error = outcome.ref, outcome.document, outcome.error
            context.unconfirmed.pop(ref, None)
            if existing is not None:
                self._note_existing(context, ref, document, existing)
            elif outcome.is_unsure:
                context.unconfirmed[ref] = document
            elif error is not None:
                failed.append(ObjectConflict(ref.kind, ref.name, f"{ref.kind} {ref.name}: {error}"))
        return failed

    def _note_existing(
        self, context: JobContext, ref: Ref, document: dict[str, Any], existing: dict[str, Any]
    ) -> None:
        ours, theirs = labels_of(document), labels_of(existing)
        if any(theirs.get(name) != ours.get(name) for name in (JOB_ID, INSTANCE)):
            context.foreign_objects[ref] = existing
            context.plan_due = True
        elif ref.kind in UNWATCHED:
            context.extra[ref] = existing
        elif ref.kind == "Pod":
            context.note(existing)

    async def _look_up(self, context: JobContext, rendering: Rendering) -> None:
        """Read unwatched objects once, and objects that an unanswered request may have created."""
        wanted = dict(context.unconfirmed)
        if context.is_live:
            context.has_looked = True
            for document in unwatched_objects(rendering):
                ref = Ref(document["kind"], name_of(document))
                if ref not in context.extra_known:
                    wanted[ref] = document
        if not wanted:
            return
        outcomes = await asyncio.gather(*(self._writer.find(each) for each in wanted.values()))
        self._note(context, list(wanted.values()), outcomes)
        context.extra_known.update(each.ref for each in outcomes if not each.is_unsure)

    def _needs_keys(self, rendering: Rendering, observed: Observed) -> bool:
        return any(Ref("Secret", name) not in observed for name in rendering.secrets())

    def _is_leaving(self, observed: Observed, conflict: ObjectConflict) -> bool:
        """Return whether the conflicting object is being deleted, such as one of an older job."""
        obstacle = observed.get(Ref(conflict.kind, conflict.name))
        return obstacle is not None and is_terminating(obstacle)


def _patience(context: JobContext) -> float:
    """Count a failure, and return the seconds until the next try, with exponential back-off."""
    context.failures += 1
    return float(min(AGAIN_S_FIRST * 2 ** min(context.failures - 1, 10), AGAIN_S_MAX))
