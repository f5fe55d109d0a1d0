"""One seed, one world: people who submit, a cluster that fails, an engine that is killed.

First come the faults, then a calm in which everything must come to its end. Witnesses stand at
every port and look at what passes; what they assert is the system's promise:

- no reply and no effect before the events behind it are in the log;
- positions without gaps, times that never run back, one leader at a time;
- an acknowledged command took effect exactly once;
- one terminal phase for each job, restarts within the budget, gangs whole;
- no device with two owners (the machine itself watches that);
- in the calm every job ends, and nothing of it is left in the cluster;
- what the log replays to is what was live.
"""

import hashlib
from collections.abc import Generator, Sequence
from random import Random
from typing import Any

from simpy.events import Event

from adapters.clocks.simpy_clock import Killed, as_process
from adapters.logs.memory_log import MemoryLog
from adapters.simulated_cluster.cluster import SimulatedCluster
from adapters.simulated_cluster.workload import Workload, hints_of
from controlplane.decisions.step import Answer
from controlplane.engine import Engine, EngineOptions
from controlplane.lifecycle.effects import LaunchGang
from controlplane.lifecycle.job import Job
from controlplane.log.replay import rebuild
from controlplane.log.snapshots import state_hash
from controlplane.model import commands as c
from controlplane.model import events as e
from controlplane.model.errors import LogConflict, LogUnavailable, Rejected
from controlplane.model.phases import FINISHED, Phase
from controlplane.model.spec import (
    DoneWhen,
    JobSpec,
    RestartPolicy,
    RestartRule,
    RestartScope,
    Role,
)
from controlplane.state.image import Receipt
from controlplane.state.world import World
from simulator.kernel.virtual_time import VirtualTime
from simulator.network.topology import Delays, FaultModel, grid
from tests.scenarios.faulty_ports import Faults, FaultyCluster, FaultyLog, JumpyClock, Port

TROUBLE_S = 2_000.0
CALM_S = 15_000.0
CHECK_EVERY = 40


class Scenario:
    def __init__(self, seed: int, *, calm: bool = False) -> None:
        self.seed = seed
        self.dice = Random(seed)
        self.env = VirtualTime()
        self.faults = Faults() if calm else Faults.drawn(self.dice)
        self.log = MemoryLog()
        # The world as the log has it, which no engine can run ahead of.
        self.durable = World()
        self.ends: dict[str, Phase] = {}
        self.receipts: dict[str, Receipt] = {}
        self.acknowledged: set[str] = set()
        self.engine: Engine | None = None
        self.engines = 0
        self.conflicts = 0
        self.too_early: list[LaunchGang] = []
        # Engines that were left running when the next one was started.
        self.left: list[Engine] = []
        self.model = self._cluster_model(calm)
        self.cluster = SimulatedCluster(self.env, self.model)
        self.snapshot_every = self.dice.choice([None, 5, 50])

    def _cluster_model(self, calm: bool):  # type: ignore[no-untyped-def]
        dice = self.dice
        model = grid(2, 2, 8, delays=Delays(start_s=5.0, start_jitter_s=3.0, stop_s=2.0))
        mtbf_s = None if calm else dice.choice([None, 4_000.0, 800.0])
        faults = FaultModel(node_mtbf_s=mtbf_s, node_repair_s=200.0)
        return type(model)(nodes=model.nodes, delays=model.delays, faults=faults, seed=self.seed)

    # -- the run -----------------------------------------------------------------------------

    def run(self) -> "Scenario":
        self.env.process(self._supervise())
        self._begin()
        self.env.run(until=TROUBLE_S)
        self.faults.stop()
        self.env.process(self._calm_down())
        self.env.run(until=TROUBLE_S + CALM_S)
        self._check_the_end()
        return self

    def _begin(self) -> None:
        """People come."""
        for number in range(self.dice.randint(4, 14)):
            self.env.process(self._person(number))

    def _supervise(self) -> Generator[Event, Any, None]:
        """Starts an engine, and another one whenever it dies, is killed, or is taken for dead."""
        while True:
            port = Port(self.env, self.faults, self.dice)
            clock = JumpyClock(port)
            log = FaultyLog(port, self.log, self._see_append)
            cluster = FaultyCluster(port, self.cluster, self._see_launch, self._see_report)
            options = EngineOptions(resync_s=60.0, snapshot_every=self.snapshot_every)
            self.engine = engine = Engine(clock, log, cluster, options)
            self.engines += 1
            life = as_process(self.env, self._live(engine))
            yield life | self._killer()
            if life.is_alive:
                if self.dice.random() < self.faults.stale_leader:
                    self.left.append(engine)
                else:
                    life.interrupt("killed")
            yield self.env.timeout(self.dice.random() * 30.0)

    def _killer(self) -> Event:
        """Comes after a while, or never."""
        life_s = self.faults.engine_life_s
        if life_s == float("inf"):
            return self.env.event()
        return self.env.timeout(self.dice.expovariate(1 / life_s))

    async def _live(self, engine: Engine) -> None:
        try:
            await engine.run()
        except (LogUnavailable, Killed):
            pass
        except LogConflict:
            self.conflicts += 1
            # One that was left alive before it led may come to lead later than its successor.
            older = [other for other in self.left if other._epoch > engine._epoch]
            assert engine is not self.engine or older, "the only leader was fenced out"

    # -- people ------------------------------------------------------------------------------

    def _person(self, number: int) -> Generator[Event, Any, None]:
        dice = Random(f"{self.seed}/{number}")
        yield self.env.timeout(dice.random() * TROUBLE_S * 0.6)
        name = f"job-{number}"
        command = c.SubmitJob(
            id=f"submit-{number}",
            job=f"id-{number}",
            namespace="default",
            name=name,
            spec=some_spec(dice),
            suspended=dice.random() < 0.1,
        )
        yield from self._insist(command)
        for turn in range(dice.choice([0, 0, 0, 1, 3])):
            yield self.env.timeout(dice.random() * 300.0)
            verb = dice.choice([c.CancelJob, c.SuspendJob, c.ResumeJob, c.ScaleJob, c.DeleteJob])
            more = {"role": "Worker", "replicas": dice.randint(1, 3)} if verb is c.ScaleJob else {}
            request = verb(id=f"{number}-{turn}", namespace="default", name=name, **more)
            yield from self._insist(request)

    def _insist(self, command: c.AnyCommand) -> Generator[Event, Any, Answer]:
        """Asks with the same id until there is an answer, as a careful client does."""
        while True:
            answer = yield from self._ask(command)
            if isinstance(answer, Receipt):
                assert len(self.log.events) >= answer.position, "a reply before the append"
                first = self.receipts.setdefault(command.id, answer)
                assert not first.stream or first == answer, "another answer to the same command"
                if isinstance(command, c.SubmitJob):
                    self.acknowledged.add(answer.stream)
                return answer
            if isinstance(answer, Rejected):
                self._see_refusal(command, answer)
                return answer
            yield self.env.timeout(self.dice.random() * 20.0)

    def _ask(self, command: c.AnyCommand) -> Generator[Event, Any, Answer]:
        if self.engine is None:
            return None
        reply = self.env.event()
        self.engine.submit(command, lambda answer: reply.triggered or reply.succeed(answer))
        patience = self.env.timeout(self.dice.uniform(1.0, 60.0))
        yield reply | patience
        return reply.value if reply.triggered else None

    def _calm_down(self) -> Generator[Event, Any, None]:
        """In the calm, nothing stays suspended for ever."""
        for turn in range(20):
            yield self.env.timeout(200.0)
            for job_id in list(self.durable.phases.by_phase[Phase.SUSPENDED]):
                name = self.durable.jobs[job_id].name
                command = c.ResumeJob(id=f"wake-{turn}-{name}", namespace="default", name=name)
                yield from self._insist(command)

    # -- witnesses ---------------------------------------------------------------------------

    def _see_refusal(self, command: c.AnyCommand, refusal: Rejected) -> None:
        assert not isinstance(command, c.SubmitJob), (command, refusal.message)

    def _see_report(self, report: c.Report) -> c.Report:
        """A report on its way to the engine, and what arrives there of it."""
        return report

    def _see_append(self, batch: Sequence[e.Recorded]) -> None:
        for recorded in batch:
            assert recorded.at >= self.durable.at, "time ran backwards in the log"
            self.durable.apply(recorded)
            self._see_event(recorded.event)
            if recorded.position % CHECK_EVERY == 0:
                self.durable.check()

    def _see_event(self, event: e.Event) -> None:
        # Nothing raises in these worlds unless there is a bug, whichever job it is put down to.
        assert not isinstance(event, e.JobErrored | e.EngineFailed | e.JobQuarantined), event
        if not isinstance(event, e.JobEvent) or event.job not in self.durable.jobs:
            return
        job = self.durable.jobs[event.job]
        if job.finished:
            assert self.ends.setdefault(job.id, job.phase) is job.phase, "two terminal phases"
        if isinstance(event, e.GangPlaced):
            self._see_placed(event, job)

    def _see_placed(self, event: e.GangPlaced, job: Job) -> None:
        assert len(event.placement) == job.spec.size, "not the whole gang"

    def _see_launch(self, effect: LaunchGang) -> None:
        job = self.durable.jobs.get(effect.job_id)
        known = 0 if job is None or job.attempt is None else job.attempt.number
        removed = job is None and effect.job_id in self.ends
        # Not asserted here, for the engine outlives whatever a cluster raises.
        if not removed and known < effect.attempt:
            self.too_early.append(effect)

    def _check_the_end(self) -> None:
        durable = self.durable
        durable.check()
        assert not self.too_early, f"effects before the append: {self.too_early}"
        errored = [r.event for r in self.log.events if isinstance(r.event, e.JobErrored)]
        assert not errored, f"raised, though nothing was made to: {errored}"
        unfinished = [job for job in durable.jobs.values() if job.phase not in FINISHED]
        assert not unfinished, f"in the calm these did not end: {unfinished}"
        assert not durable.devices.live, f"finished, but not gone: {list(durable.devices.live)}"
        assert not self.cluster.running, f"in the cluster, but unwanted: {self.cluster.running}"
        free = sum(mask.bit_count() for mask in durable.devices.free.masks)
        assert free == self.model.gpus, "devices leaked"
        events = [r.event for r in self.log.events if isinstance(r.event, e.JobSubmitted)]
        submitted = {event.job: event.owner for event in events}
        assert len(submitted) == len(events), "a job was submitted twice"
        asked = {job for job, owner in submitted.items() if owner is None}
        asked |= {r.event.owner for r in self.log.events if isinstance(r.event, e.OwnerSubmitted)}
        assert self.acknowledged == asked, "an acknowledged job was lost"
        unended = [owner for owner in durable.owners.values() if not owner.finished]
        assert not unended, f"in the calm these did not end: {unended}"
        live = self.engine
        assert live is not None
        assert live.leads
        assert state_hash(live.world) == state_hash(durable) == self.replayed_hash(True)
        assert self.replayed_hash(False) == state_hash(durable)

    def replayed_hash(self, use_snapshot: bool) -> str:
        return state_hash(run_now(rebuild(self.log, use_snapshot=use_snapshot)).world)

    def fingerprint(self) -> str:
        """One word for everything that happened."""
        return hashlib.sha256(repr(self.log.events).encode()).hexdigest()


def some_spec(dice: Random) -> JobSpec:
    rule = dice.choice(list(RestartRule))
    worker = Role(
        name="Worker",
        replicas=dice.randint(1, 4),
        gpus=dice.choice([0, 1, 4, 8]),
        restart=rule,
        max_replicas=dice.choice([None, None, 4]),
        optional=dice.random() < 0.2,
    )
    server = Role(
        name="PS",
        replicas=dice.randint(0, 2),
        restart=rule,
        is_server=True,
        starts_after=dice.choice(["", "", "", "Worker"]),
    )
    # A job that would hang for ever ends by its deadline, so the timer is all it has.
    hangs = dice.random() < 0.2
    return JobSpec(
        roles=(server, worker) if dice.random() < 0.5 else (worker, server),
        done_when=DoneWhen("Worker", first=dice.random() < 0.3),
        restart=RestartPolicy(
            limit=dice.choice([0, 1, 5]),
            backoff_s_max=100.0,
            scope=dice.choice([RestartScope.GANG, RestartScope.GANG, RestartScope.RANK]),
            counts_platform=dice.random() < 0.2,
        ),
        priority=dice.randint(0, 2),
        ttl_s=dice.choice([None, None, 30.0]),
        active_deadline_s=400.0 if hangs else dice.choice([None, None, 2_000.0]),
        start_timeout_s=dice.choice([20.0, 120.0]),
        hints=hints_of(Workload(
            duration_s=1e6 if hangs else dice.uniform(0.0, 300.0),
            exit_code=dice.choice([0, 0, 0, 1, 137]),
            failing_attempts=dice.choice([None, 1, 2]),
        )),
    )  # fmt: skip


def run_now(coroutine):  # type: ignore[no-untyped-def]
    """The result of a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("it suspended")
