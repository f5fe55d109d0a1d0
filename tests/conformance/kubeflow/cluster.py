"""Pods in memory: an API server's objects without its controllers, behind the Cluster port.

The engine is the real one, on virtual time and a log in memory. What the control plane wants is
worked out and carried out by the real plan, and what it hears is read by the real sightings; only
the store of objects is pretended. Nothing happens in it by itself: a test changes the pods.
"""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct, field

from adapters.clocks.simpy_clock import Killed, SimpyClock, as_process
from adapters.kubernetes.observe.labels import (
    JOB_ID,
    is_terminating,
    labels_of,
    name_of,
)
from adapters.kubernetes.observe.pod_status import blocked, reports
from adapters.kubernetes.operator.event_reasons import notices_of_plan
from adapters.kubernetes.reconcile.desired_pods import is_ending, is_over
from adapters.kubernetes.reconcile.plan import ObjectConflict, Plan, Ref, plan
from adapters.kubernetes.render.objects import Rendering
from adapters.kubernetes.render.pods import Notice
from adapters.kubernetes.render.site import Site
from adapters.logs.memory_log import MemoryLog
from controlplane.decisions.step import Answer
from controlplane.engine import Engine, EngineOptions
from controlplane.kinds.kind import Submission
from controlplane.lifecycle.effects import Effect, Survey
from controlplane.lifecycle.job import Job
from controlplane.model import commands as c
from controlplane.model import events as e
from controlplane.model.cluster import NodeInfo
from simulator.kernel.virtual_time import VirtualTime
from tests.adapters.kubernetes.jobs import is_empty
from tests.conformance.kubeflow.manifests import kind_named

JOB = "01TESTJOB"
# With the label that the scenarios' node selectors ask for.
LABELS = {"n": "1"}
NODES = tuple(NodeInfo(name=f"node-{i}", gpus=16, labels=LABELS) for i in range(10))


class Done(Struct):
    """What was done to the objects."""

    created: list[dict[str, Any]] = field(default_factory=list)
    deleted: list[Ref] = field(default_factory=list)
    patched: list[Ref] = field(default_factory=list)
    conflicts: list[ObjectConflict] = field(default_factory=list)

    def created_names(self, kind: str) -> list[str]:
        return sorted(name_of(each) for each in self.created if each["kind"] == kind)

    def deleted_names(self, kind: str) -> list[str]:
        return sorted(ref.name for ref in self.deleted if ref.kind == kind)


class Store:
    """Objects by kind and name. What is deleted is gone at once."""

    def __init__(self) -> None:
        self.objects: dict[Ref, dict[str, Any]] = {}

    def put(self, document: dict[str, Any]) -> None:
        self.objects[Ref(document["kind"], name_of(document))] = document

    def pods(self) -> dict[str, dict[str, Any]]:
        return {ref.name: each for ref, each in self.objects.items() if ref.kind == "Pod"}

    def carry_out(self, plan: Plan, done: Done) -> None:
        for document in plan.create:
            ref = Ref(document["kind"], name_of(document))
            assert ref not in self.objects, f"{ref} exists already"
            status = {"status": {"phase": "Pending"}} if ref.kind == "Pod" else {}
            self.objects[ref] = {**document, **status}
            done.created.append(document)
        for ref in plan.delete:
            del self.objects[ref]
            done.deleted.append(ref)
        for patch in plan.patch:
            ref = Ref(patch.kind, patch.name)
            self.objects[ref] = merged(self.objects[ref], patch.body)
            done.patched.append(ref)
        done.conflicts.extend(plan.conflicts)

    def end_what_must(self) -> None:
        """What kubelets do with pods that are being deleted, or have been given their last seconds."""
        for ref, pod in list(self.objects.items()):
            if ref.kind == "Pod" and is_terminating(pod):
                del self.objects[ref]
            elif ref.kind == "Pod" and is_ending(pod) and not is_over(pod):
                status = {"phase": "Failed", "reason": "DeadlineExceeded"}
                self.objects[ref] = {**pod, "status": status}


def merged(document: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """A JSON merge patch, applied."""
    result = dict(document)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict) and isinstance(result.get(key), dict):
            result[key] = merged(result[key], value)
        else:
            result[key] = value
    return result


class PodCluster:
    """The Cluster port. While `frozen`, nothing is done and no pod is reported."""

    def __init__(self) -> None:
        self.frozen = True
        self._report: Callable[[Any], None] = lambda report: None

    async def connect(self, report: Callable[[Any], None]) -> None:
        self._report = report

    async def carry_out(self, effects: Sequence[Effect]) -> None:
        if any(isinstance(effect, Survey) for effect in effects):
            self._report(c.ReportCluster(up=NODES))

    async def logs(self, job: Job, rank: int, lines_max: int) -> list[str]:
        return []


class Bench:
    """One control plane, one cluster, one job."""

    def __init__(self, at: float, site: Site | None = None) -> None:
        self.env = VirtualTime(initial_time=at)
        self.log = MemoryLog()
        self.store = Store()
        self.site = site or Site()
        self.done = Done()
        self.job: Job | None = None
        # The notices of objects that were created and deleted.
        self.notices: list[Notice] = []
        self.engine = self._start()

    # ------------------------------------------------------------------ time

    @property
    def now(self) -> float:
        return float(self.env.now)

    def settle(self) -> None:
        """Everything that happens at this instant happens."""
        while self.env.peek() <= self.env.now:
            self.env.step()

    def restart_at(self, at: float) -> None:
        """The control plane is down from now until then."""
        self._life.interrupt("stopped")
        self.settle()
        if at > self.env.now:
            self.env.run(until=at)
        self.engine = self._start()

    def pass_time(self, seconds: float, step_s: float = 1.0) -> None:
        """Time passes, with a kubelet at work."""
        until = self.env.now + seconds
        while self.env.now < until:
            self.store.end_what_must()
            self.reconcile()
            self.env.run(until=min(until, self.env.now + step_s))
        self.reconcile()

    def _start(self) -> Engine:
        clock = SimpyClock(self.env)
        engine = Engine(clock, self.log, PodCluster(), EngineOptions(resync_s=None))
        self._life = as_process(self.env, _live(engine))
        self.settle()
        return engine

    # ------------------------------------------------------------------ people and pods

    def submit(self, submission: Submission) -> Answer:
        self.kind = kind_named(submission.spec.kind)
        answer = self.ask(
            c.SubmitJob(
                job=JOB,
                namespace=submission.namespace,
                name=submission.name,
                spec=submission.spec,
                suspended=submission.suspended,
            )
        )
        self.look()
        return answer

    def ask(self, command: c.AnyCommand) -> Answer:
        answers: list[Answer] = []
        self.engine.submit(command, answers.append)
        self.settle()
        self.look()
        return answers[0]

    def look(self) -> Job | None:
        """The job as it is now; the last that was seen of it is kept when it is removed."""
        job = self.engine.world.jobs.get(JOB)
        self.job = job or self.job
        return job

    def report(self, **news: Any) -> None:
        """Reports about ranks of the current attempt, whatever pods there are."""
        job = self.look()
        assert job is not None
        assert job.attempt is not None, "never placed"
        by_run: dict[int, dict[str, list[Any]]] = {}
        for what, entries in news.items():
            for entry in entries:
                rank = entry if isinstance(entry, int) else getattr(entry, "rank", None)
                assert rank is not None
                run = by_run.setdefault(job.attempt.ranks[rank].incarnation, {})
                run.setdefault(what, []).append(entry)
        for incarnation, entries_by_kind in by_run.items():
            fields = {what: tuple(entries) for what, entries in entries_by_kind.items()}
            self.ask(
                c.ReportRanks(
                    job=JOB, attempt=job.attempt.number, incarnation=incarnation, **fields
                )
            )

    def rendering(self) -> Rendering:
        job = self.look()
        assert job is not None
        return Rendering(job, self.kind, self.site)

    def reconcile(self) -> Done:
        """Observes the pods, reports, and carries out what is wanted, until nothing is left to do."""
        self.settle()
        for _ in range(50):
            reported = self._report_pods()
            planned = self._carry_out()
            if not reported and not planned:
                return self.done
        raise AssertionError("the cluster and the control plane do not come to rest")

    def _report_pods(self) -> bool:
        job = self.look()
        if job is None:
            return False
        before = self.engine.world.position
        names = self.rendering().names
        for report in reports(job, names, self.store.pods()):
            self.ask(report)
        return self.engine.world.position > before

    def _carry_out(self) -> bool:
        job = self.look()
        if job is None:
            left = [
                ref
                for ref, document in self.store.objects.items()
                if (owner := labels_of(document).get(JOB_ID, "")) not in self.engine.world.jobs
                and owner
                and not is_terminating(document)
            ]
            self.store.carry_out(Plan([], left, [], []), self.done)
            return bool(left)
        planned = plan(self.rendering(), self.store.objects, lambda: ("private", "public"))
        new = [each for each in planned.conflicts if each not in self.done.conflicts]
        planned.conflicts[:] = new
        self.store.carry_out(planned, self.done)
        self.notices += notices_of_plan(planned)
        for report in blocked(job, planned.conflicts):
            self.ask(report)
        return not is_empty(planned) or bool(planned.conflicts)

    def recorded(self, after: int = 0) -> list[e.Recorded]:
        return [each for each in self.log.events if each.position > after]


async def _live(engine: Engine) -> None:
    try:
        await engine.run()
    except Killed:
        pass


def is_of_job(document: dict[str, Any]) -> bool:
    return labels_of(document).get(JOB_ID) == JOB


__all__ = ["JOB", "NODES", "Bench", "Done", "Store", "is_of_job"]
