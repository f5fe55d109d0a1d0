"""Scenarios with a clock: the real engine in virtual time, on a cluster that takes no time."""

from collections.abc import Generator, Sequence
from typing import Any

import pytest

from adapters.clocks.simpy_clock import SimpyClock, as_process
from adapters.logs.memory_log import MemoryLog
from controlplane.decisions.step import Answer
from controlplane.engine import Engine, EngineOptions
from controlplane.model import commands as c
from controlplane.model import events as e
from controlplane.model.failures import Cause
from controlplane.model.phases import ACTIVE, Phase
from controlplane.model.policy import Queue
from controlplane.queries.queries import why
from controlplane.state.image import Receipt
from controlplane.state.world import World
from simulator.kernel.virtual_time import VirtualTime
from tests.conformance.gangs.history import ELSEWHERE, History, counts
from tests.conformance.gangs.one_cycle import same_but_for_ids
from tests.conformance.gangs.reading import OneJob
from tests.instant_cluster import InstantCluster

# A scheduler that evicts more often than this will do so for ever.
PREEMPTIONS_MAX = 1_000


class Story:
    def __init__(self, scenario: dict[str, Any]) -> None:
        self.scenario = scenario
        self.history = History(scenario)
        self.env = VirtualTime()
        self.log = MemoryLog(self.history.events)
        self.cluster = InstantCluster(self.env, self.history.nodes)
        self.engine = Engine(
            SimpyClock(self.env), self.log, self.cluster,
            EngineOptions(resync_s=None, snapshot_every=None),
        )  # fmt: skip
        self.begins_at = len(self.history.events)

    def run(self) -> "Story":
        life = as_process(self.env, self.engine.run())
        life.callbacks.append(lambda event: None)
        for job in sorted(self.history.waiting, key=lambda job: (job.arrival, job.id)):
            if job.given.get("never_ready"):
                self.cluster.stuck.add(job.id)
            self.env.process(self._submit(job))
        for event in self.scenario.get("events", ()):
            self.env.process(self._happen(event))
        self.env.run(until=self._horizon())
        self.engine.world.check()
        return self

    def _submit(self, job: OneJob) -> Generator[Any, Any, None]:
        yield self.env.timeout(job.arrival)
        name = "j" + "".join(x if x.isalnum() else "-" for x in job.id.lower())
        command = c.SubmitJob(job=job.id, namespace="default", name=name, spec=job.spec)
        self.engine.submit(command, self._taken)

    def _taken(self, answer: Answer) -> None:
        assert isinstance(answer, Receipt), f"the scenario's job was refused: {answer}"

    def _happen(self, event: dict[str, Any]) -> Generator[Any, Any, None]:
        yield self.env.timeout(event["t"])
        match event["kind"]:
            case "job_finished":
                self.cluster.finish_job(event["job"])
            case "node_down":
                self.cluster.lose(event["node"])
            case "node_up":
                self.cluster.restore(event["node"])
            case "replica_failed":
                self.cluster.lose(ELSEWHERE)
            case "node_cordoned" | "cordon":
                self.engine.submit(c.CordonNode(node=event["node"]))
            case "node_uncordoned" | "uncordon":
                self.engine.submit(c.UncordonNode(node=event["node"]))
            case "queue_changed":
                known = self.engine.world.queues[event["queue"]]
                fields = {k: event[k] for k in Queue.__struct_fields__ if k in event}
                self.engine.submit(c.DefineQueue(queue=Queue(**{**_fields(known), **fields})))
            case other:
                raise AssertionError(f"there is no reader for {other}")

    def _horizon(self) -> float:
        jobs = self.history.waiting
        last = max([job.arrival for job in jobs], default=0.0)
        last = max([last, *(event["t"] for event in self.scenario.get("events", ()))])
        expected = [float(key[3:]) for key in self.scenario["expect"] if key.startswith("at_")]
        work = sum(job.given.get("runtime", 0.0) for job in jobs)
        return max([last, *expected]) + work + 20_000.0

    # -- what came of it -----------------------------------------------------------------------

    @property
    def happened(self) -> Sequence[e.Recorded]:
        return self.log.events[self.begins_at :]

    def times(self, kind: type[e.Event], job: str | None = None) -> list[float]:
        return [
            r.at
            for r in self.happened
            if isinstance(r.event, kind) and job in (None, getattr(r.event, "job", None))
        ]

    def evictions(self) -> list[tuple[float, str]]:
        """Gangs that had to let go of everything, for whatever reason of the platform's."""
        return [
            (r.at, r.event.job)
            for r in self.happened
            if isinstance(r.event, e.JobRestarting)
            or (isinstance(r.event, e.JobSuspended) and r.event.reason)
        ]

    def preemptions(self, at: float | None = None) -> list[str]:
        return [
            r.event.job
            for r in self.happened
            if isinstance(r.event, e.JobRestarting)
            and r.event.restart.cause is Cause.PREEMPTION
            and at in (None, r.at)
        ]

    def world_at(self, at: float) -> World:
        world = World()
        for recorded in self.log.events:
            if recorded.at <= at + 1e-9:
                world.apply(recorded)
        return world


def _fields(queue: Queue) -> dict[str, Any]:
    return {name: getattr(queue, name) for name in queue.__struct_fields__}


def check(scenario: dict[str, Any], story: Story) -> None:
    assert len(story.preemptions()) < PREEMPTIONS_MAX, "it evicts for ever"
    for key, value in scenario["expect"].items():
        if key.startswith("at_"):
            _check_at(scenario, story, float(key[3:]), value)
        else:
            CHECKS[key](scenario, story, value)


def _check_at(scenario: Any, story: Story, at: float, wanted: dict[str, Any]) -> None:
    world = story.world_at(at)
    started = [
        r.event.job for r in story.happened if isinstance(r.event, e.GangPlaced) and r.at == at
    ]
    for key, value in wanted.items():
        match key:
            case "admitted" | "admitted_after_victims_gone":
                assert set(value) <= set(started)
            case "pending":
                assert {world.jobs[job].phase for job in value} <= {Phase.QUEUED}
            case "victims":
                preempted = story.preemptions(at)
                assert sorted(preempted) == sorted(value) or same_but_for_ids(
                    scenario, preempted, value
                )
            case job:
                attempt = world.jobs[job].attempt
                assert world.jobs[job].phase in ACTIVE
                assert counts(attempt.placement) == value


def _start(scenario: Any, story: Story, wanted: dict[str, float]) -> None:
    placed = {job: story.times(e.GangPlaced, job)[:1] for job in wanted}
    assert placed == {job: [pytest.approx(at)] for job, at in wanted.items()}


def _not_started_before(scenario: Any, story: Story, wanted: dict[str, float]) -> None:
    for job, at in wanted.items():
        assert all(started >= at for started in story.times(e.GangPlaced, job))


def _started_by(scenario: Any, story: Story, wanted: dict[str, float]) -> None:
    for job, at in wanted.items():
        assert any(started <= at for started in story.times(e.GangPlaced, job))


def _evicted_at(scenario: Any, story: Story, wanted: Sequence[float]) -> None:
    assert [at for at, _ in story.evictions()] == [pytest.approx(at) for at in wanted]


def _evicted(scenario: Any, story: Story, wanted: Sequence[str]) -> None:
    assert {job for _, job in story.evictions()} == set(wanted)


def _survives(scenario: Any, story: Story, wanted: Sequence[str]) -> None:
    assert not {job for _, job in story.evictions()} & set(wanted)


def _requeued_at(scenario: Any, story: Story, wanted: Sequence[float]) -> None:
    assert story.times(e.JobRequeued) == [pytest.approx(at) for at in wanted]


def _deactivated_at(scenario: Any, story: Story, wanted: float) -> None:
    times = [
        r.at for r in story.happened
        if isinstance(r.event, e.JobSuspended) and r.event.reason == "deactivated"
    ]  # fmt: skip
    assert times == [pytest.approx(wanted)]


def _pending(scenario: Any, story: Story, wanted: dict[str, str]) -> None:
    world = story.engine.world
    for job, code in wanted.items():
        assert world.jobs[job].phase is Phase.QUEUED, world.jobs[job].phase
        codes = [reason.code for reason in why(world, world.jobs[job]).reasons]
        assert code in codes, f"{job} waits for {codes}, not {code}"


def _total_preemptions(scenario: Any, story: Story, wanted: int) -> None:
    assert len(story.preemptions()) == wanted


def _preemptions_max(scenario: Any, story: Story, wanted: int) -> None:
    assert len(story.preemptions()) <= wanted


def _running(scenario: Any, story: Story, wanted: Sequence[str]) -> None:
    world = story.engine.world
    assert {job.id for job in world.jobs.values() if job.phase in ACTIVE} >= set(wanted)


def _admitted(scenario: Any, story: Story, wanted: Sequence[str]) -> None:
    started = {r.event.job for r in story.happened if isinstance(r.event, e.GangPlaced)}
    assert started >= set(wanted)


def _victims(scenario: Any, story: Story, wanted: Sequence[str]) -> None:
    preempted = story.preemptions()
    assert sorted(preempted) == sorted(wanted) or same_but_for_ids(scenario, preempted, wanted)


def _invariant(scenario: Any, story: Story, text: str) -> None:
    """In every scenario: the world's own invariants hold after every event."""
    world = World()
    for recorded in story.log.events:
        world.apply(recorded)
        world.check()


def _end(scenario: Any, story: Story, wanted: dict[str, float]) -> None:
    ended = {job: story.times(e.JobSucceeded, job)[-1:] for job in wanted}
    assert ended == {job: [pytest.approx(at)] for job, at in wanted.items()}


def _makespan(scenario: Any, story: Story, wanted: float) -> None:
    assert max(story.times(e.JobSucceeded)) == pytest.approx(wanted)


def _order(scenario: Any, story: Story, wanted: Sequence[str]) -> None:
    """Who starts after whom, for the first time."""
    placed = [r.event.job for r in story.happened if isinstance(r.event, e.GangPlaced)]
    assert [job for job in dict.fromkeys(placed) if job in wanted] == list(wanted)


def _no_check(scenario: Any, story: Story, text: Any) -> None:
    """A remark for the reader."""


CHECKS = {
    "start": _start,
    "not_started_before": _not_started_before,
    "started_by": _started_by,
    "starts_by": _started_by,
    "evicted_at": _evicted_at,
    "evicted": _evicted,
    "survives": _survives,
    "requeued_at": _requeued_at,
    "deactivated_at": _deactivated_at,
    "pending": _pending,
    "total_preemptions": _total_preemptions,
    "max_preemptions": _preemptions_max,
    "still_running": _running,
    "running": _running,
    "admitted": _admitted,
    "admitted_after_victims_gone": _admitted,
    "victims": _victims,
    "end": _end,
    "makespan": _makespan,
    "order": _order,
    "start_order": _order,
    "invariant": _invariant,
    "note": _no_check,
}
