"""A world that uses everything at once, as its plan has it, with a witness of its own.

Above what `Scenario` promises, `Witness` asserts who has which devices, what quotas allow, which order
lines keep and that gangs are whole; and when all is over, the whole log is decided again.
"""

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any

from msgspec.structs import replace as replace_fields
from simpy.events import Event

from controlplane.audit.redecide import DecisionVerifier, Differs
from controlplane.lifecycle.job import Job
from controlplane.model import commands as c
from controlplane.model import events as e
from controlplane.model.errors import LogUnavailable, Rejected
from controlplane.model.phases import FINISHED, WAITING, OwnerPhase, Phase
from controlplane.model.policy import Queue
from controlplane.state.world import World
from simulator.network.topology import ClusterModel
from tests.scenarios.faulty_ports import Faults
from tests.scenarios.plan import NAMESPACE, Flap, Step, WorldPlan, drawn_plan
from tests.scenarios.scenario import Scenario
from tests.scenarios.witness import Witness

# Why a submission may be refused: its queue was removed, or has become too small for it.
REFUSALS = frozenset({"unknown_queue", "can_never_fit"})
# Of what waits for others: those may be gone, or may have ended otherwise.
REFUSALS_OF_FLOWS = REFUSALS | {"unknown_dependency", "dependency_failed"}
# The number of looks in the calm before groups that still wait are given up.
GROUPS_WAIT_TURNS = 10


class WideScenario(Scenario):
    def __init__(self, plan: int | WorldPlan) -> None:
        self.plan = drawn_plan(plan) if isinstance(plan, int) else plan
        self.witness = Witness()
        super().__init__(self.plan.seed)
        self.faults = Faults(**{f: getattr(self.plan.faults, f) for f in Faults.__struct_fields__})
        self.snapshot_every = self.plan.snapshot_every
        self.stops = set(self.plan.stops)
        self.refused = 0
        self.set_up = self.env.event()

    def _cluster_model(self, calm: bool) -> ClusterModel:
        return replace(self.plan.cluster)

    # -- what is done --------------------------------------------------------------------------

    def _begin(self) -> None:
        self.env.process(self._set_up())
        for number, (at, step) in enumerate(self.plan.timeline):
            self.env.process(self._do(number, at, step))

    def _set_up(self) -> Generator[Event, Any, None]:
        yield from self._insist(c.SetPolicy(id="policy", policy=self.plan.policy))
        for queue in self.plan.queues:
            yield from self._insist(c.DefineQueue(id=f"queue-{queue.name}", queue=queue))
        self.set_up.succeed()

    def _do(self, number: int, at: float, step: Step) -> Generator[Event, Any, None]:
        yield self.env.timeout(at)
        if isinstance(step, Flap):
            self.cluster.fail_node(step.node, step.repair_s)
            return
        if not self.set_up.triggered:
            yield self.set_up
        yield from self._insist(step)

    def _calm_down(self) -> Generator[Event, Any, None]:
        """Every node takes work, no quota is too small, and nothing waits for what will not come."""
        # What is submitted one after the other takes longer.
        flows = any(
            isinstance(step, c.SubmitJob) and step.spec.array for _, step in self.plan.timeline
        )
        for turn in range(60 if flows else 20):
            yield self.env.timeout(200.0)
            for number, command in enumerate(list(self._what_helps(turn))):
                yield from self._insist(replace_fields(command, id=f"calm-{turn}-{number}"))

    def _what_helps(self, turn: int) -> Generator[c.Request, Any, None]:
        durable = self.durable
        for queue in durable.queues.values():
            plenty = Queue(queue.name, parent=queue.parent, nominal=self.model.gpus)
            yield c.DefineQueue(queue=replace_fields(plenty, discipline=queue.discipline))
        for node in durable.nodes.values():
            if node.cordoned:
                yield c.UncordonNode(node=node.name)
        for owner in durable.owners.values():
            if owner.phase is OwnerPhase.SUSPENDED:
                yield c.ResumeJob(namespace=NAMESPACE, name=owner.name)
        for job in durable.jobs.values():
            if job.phase is Phase.SUSPENDED and not _is_paused(job, durable):
                yield c.ResumeJob(namespace=NAMESPACE, name=job.name)
            elif job.phase in WAITING and self._is_hopeless(job, turn):
                yield c.CancelJob(namespace=NAMESPACE, name=job.name)

    def _is_hopeless(self, job: Job, turn: int) -> bool:
        """A group that lost a member, or that is larger than the whole cluster."""
        asks = job.spec.scheduling
        if not asks.group:
            return False
        alive = [j for j in self.durable.jobs.values() if j.phase not in FINISHED]
        members = sum(other.spec.scheduling.group == asks.group for other in alive)
        return members < asks.group_size or turn > GROUPS_WAIT_TURNS

    # -- witnesses -----------------------------------------------------------------------------

    def _see_refusal(self, command: c.AnyCommand, refusal: Rejected) -> None:
        if isinstance(command, c.SubmitJob):
            known = REFUSALS_OF_FLOWS if command.spec.after else REFUSALS
            assert refusal.code in known, (command, refusal.message)
            self.refused += 1

    def _see_report(self, report: c.Report) -> c.Report:
        seen = self._as_planned(report)
        self.witness.see_report(seen)
        return seen

    def _as_planned(self, report: c.Report) -> c.Report:
        as_reported = self.plan.as_reported
        if isinstance(report, c.ReportNode):
            return c.ReportNode(node=as_reported(report.node))
        if isinstance(report, c.ReportCluster):
            return c.ReportCluster(
                up=tuple(map(as_reported, report.up)), down=tuple(map(as_reported, report.down))
            )
        return report

    def _see_append(self, batch: Sequence[e.Recorded]) -> None:
        super()._see_append(batch)
        self.witness.see(batch)
        stops = {recorded.position for recorded in batch} & self.stops
        if stops and self.faults.engine_life_s:
            self.stops -= stops
            raise LogUnavailable("the engine is stopped here")

    def _see_placed(self, event: e.GangPlaced, job: Job) -> None:
        """The witness looks at it: elastic gangs need not be whole."""

    def _check_the_end(self) -> None:
        super()._check_the_end()
        self.witness.finish()
        check_flows(self.log.events)
        difference = redecided(self.log.events)
        assert difference is None, f"decided again, the log differs: {difference}"


def check_flows(events: Sequence[e.Recorded]) -> None:
    """What holds for arrays and dependencies after every event, derived from the events alone."""
    alive: dict[str, set[str]] = {}
    limits: dict[str, int | None] = {}
    waiting: set[str] = set()
    owner_of: dict[str, str] = {}
    stopped: set[str] = set()
    for recorded in events:
        event = recorded.event
        match event:
            case e.OwnerSubmitted():
                limits[event.owner], alive[event.owner] = event.spec.limit, set()
            case e.OwnerCancelled() | e.OwnerSuspended() | e.OwnerSucceeded() | e.OwnerFailed():
                stopped.add(event.owner)
            case e.OwnerResumed() | e.MembersRetried():
                stopped.discard(event.owner)
            case e.JobSubmitted():
                if event.after:
                    waiting.add(event.job)
                if event.owner is not None:
                    owner = owner_of[event.job] = event.owner.id
                    assert owner not in stopped, f"{event.job} came when its array had stopped"
                    alive[owner].add(event.job)
                    limit = limits[owner]
                    assert limit is None or len(alive[owner]) <= limit, alive[owner]
            case e.DependenciesMet():
                waiting.remove(event.job)
            case e.GangPlaced():
                assert event.job not in waiting, f"{event.job} started too early"
            case e.JobSucceeded() | e.JobFailed() | e.JobCancelled():
                waiting.discard(event.job)
                if event.job in owner_of:
                    alive[owner_of[event.job]].discard(event.job)


def _is_paused(job: Job, world: World) -> bool:
    """Whether its array is suspended, and brings it back when it is resumed."""
    return job.owner is not None and world.owners[job.owner.id].phase is OwnerPhase.SUSPENDED


def redecided(events: Sequence[e.Recorded]) -> object:
    """The first difference between a log and what today's code makes of its inputs."""
    verifier = DecisionVerifier(World())
    try:
        verifier.take(events)
        verifier.finish()
    except Differs as differs:
        return differs.difference
    return None
