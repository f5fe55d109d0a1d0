"""Any commands, in any order, at any time: what must hold all the same."""

from collections.abc import Iterator
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from controlplane.decisions.decider import decide
from controlplane.decisions.scheduling_events import enact
from controlplane.disciplines.registry import DISCIPLINES
from controlplane.lifecycle.draft import Decision
from controlplane.lifecycle.effects import LaunchGang, StopGang, wanted
from controlplane.lifecycle.timers import fire_timers
from controlplane.log import codec
from controlplane.log.fold import fold
from controlplane.log.replay import Rebuilt, open_snapshot
from controlplane.log.snapshots import state_hash, take_snapshot
from controlplane.model import commands as c
from controlplane.model import events as e
from controlplane.model.cluster import NodeInfo
from controlplane.model.errors import Rejected
from controlplane.model.failures import Cause, Exit
from controlplane.model.phases import Phase
from controlplane.model.policy import Policy, Preempt, Queue, WithinQueue
from controlplane.model.rows import GENESIS
from controlplane.model.spec import (
    CleanPods,
    DoneWhen,
    JobSpec,
    Repair,
    RestartPolicy,
    RestartRule,
    RestartScope,
    Role,
    Scheduling,
)
from controlplane.scheduling.cache import SchedulerCache
from controlplane.scheduling.scheduling_pass import Pass
from controlplane.scheduling.snapshot import Snapshot
from controlplane.state.state import State
from controlplane.state.world import World
from tests.controlplane.specification import spec
from tests.gangs import is_elastic

JOBS = ["ja", "jb", "jc", "jd"]
NODES = ["n1", "n2"]
# Histories are drawn from a seed, which a failure names: what a library would shrink to nothing is
# here a fair mix of what should happen, what may happen and what should not.
seeds = st.integers(0, 2**32)


WAYS_OF_WORKERS: list[dict[str, object]] = [
    {},
    {},
    {"min_replicas": 0, "max_replicas": 3},
    {"optional": True},
]


def some_spec(dice: Random) -> JobSpec:
    rule = dice.choice(list(RestartRule))
    workers = Role(
        name="Worker", replicas=dice.randint(1, 3), gpus=dice.randint(0, 4), restart=rule
    )
    workers = replace(workers, **dice.choice(WAYS_OF_WORKERS))
    servers = Role(
        name="PS",
        replicas=dice.randint(0, 1),
        restart=rule,
        is_server=True,
        starts_after=dice.choice(["", "", "Worker"]),
    )
    return spec(
        roles=(servers, workers) if dice.random() < 0.5 else (workers, servers),
        done_when=DoneWhen("Worker", first=dice.random() < 0.5, any=dice.random() < 0.2),
        restart=RestartPolicy(
            limit=dice.choice([None, 0, 1, 3]),
            backoff_s_first=dice.choice([0.0, 1.0, 10.0]),
            counts_platform=dice.random() < 0.3,
            scope=dice.choice(list(RestartScope)),
            healthy_after_s=dice.choice([0.0, 60.0]),
        ),
        priority=dice.randint(0, 1),
        queue=dice.choice(["default", "q2"]),
        ttl_s=dice.choice([None, None, 0.0, 20.0]),
        active_deadline_s=dice.choice([None, None, None, 0.0, 50.0]),
        start_timeout_s=dice.choice([0.0, 5.0, 600.0, 600.0]),
        scheduling=Scheduling(repair=dice.choice(list(Repair)), recovery_timeout_s=60.0),
    )


def some_request(dice: Random) -> c.AnyCommand:
    name = dice.choice(JOBS)
    verbs = [c.CancelJob, c.SuspendJob, c.ResumeJob, c.DeleteJob, c.ScaleJob, c.AmendJob]
    verb = dice.choice([*verbs, c.DefineQueue, c.SetPolicy, c.RemoveQueue])
    if verb is c.DefineQueue:
        return c.DefineQueue(queue=Queue("q2", dice.choice([None, 2, 6])))
    if verb is c.RemoveQueue:
        return c.RemoveQueue(name="q2")
    if verb is c.SetPolicy:
        return c.SetPolicy(policy=some_policy(dice))
    more = {"role": "Worker", "replicas": dice.randint(0, 3)} if verb is c.ScaleJob else {}
    if verb is c.AmendJob:
        more = {
            "ttl_s": dice.choice([None, 0.0, 20.0]),
            "active_deadline_s": dice.choice([None, 0.0, 50.0]),
            "restart_limit": dice.choice([None, 0, 3]),
            "clean": dice.choice(list(CleanPods)),
        }
    return verb(namespace="ns", name=name, **more)


def some_policy(dice: Random) -> Policy:
    return Policy(
        discipline=dice.choice(DISCIPLINES.names),
        preempt=Preempt(within_queue=dice.choice(list(WithinQueue))),
        ageing_per_hour=dice.choice([0.0, 10.0]),
        quarantine_after=dice.choice([None, 3]),
    )


def some_node_news(dice: Random) -> c.AnyCommand:
    name = dice.choice(NODES)
    if dice.random() < 0.6:
        return c.ReportNode(node=NodeInfo(name, dice.choice([8, 8, 8, 4])))
    kinds = [c.ReportNodeLost, c.ReportNodeLost, c.ReportNodeRemoved, c.CordonNode, c.UncordonNode]
    return dice.choice(kinds)(node=name)


def some_report(dice: Random) -> c.ReportRanks:
    """Its attempt counts from the one that the job is at: mostly about it, at times late."""

    def ranks() -> tuple[int, ...]:
        return tuple(dice.randint(-1, 4) for _ in range(dice.randint(0, 2)))

    exits = tuple(
        Exit(rank, dice.choice([0, 0, 1, 137, None]), dice.choice([Cause.EXIT] * 9 + list(Cause)))
        for rank in ranks()
    )
    return c.ReportRanks(
        job=dice.choice(JOBS),
        attempt=dice.choice([0, 0, 0, 0, -1, 1]),
        started=ranks(),
        exited=exits,
        gone=ranks() if dice.random() < 0.2 else (),
        leaving=tuple(Exit(rank, None, Cause.EVICTION) for rank in ranks())
        if dice.random() < 0.2
        else (),
        restarted=tuple((rank, dice.randint(0, 3)) for rank in ranks())
        if dice.random() < 0.2
        else (),
        incarnation=dice.choice([0, 0, 0, 1]),
    )


def some_submission(dice: Random) -> c.SubmitJob:
    name = dice.choice(JOBS)
    suspended = dice.random() < 0.1
    return c.SubmitJob(
        job=name, name=name, namespace="ns", spec=some_spec(dice), suspended=suspended
    )


WHAT_A_CLUSTER_DOES = (
    ["schedule"] * 3 + ["start"] * 5 + ["finish", "fail", "stop", "scale", "scale"]
)


def history(seed: int, length: int = 80) -> Iterator[object]:
    """Commands, words for what a willing cluster does, and seconds that pass."""
    dice = Random(seed)
    for _ in range(length):
        luck = dice.random()
        if luck < 0.5:
            yield dice.choice(WHAT_A_CLUSTER_DOES)
        elif luck < 0.65:
            yield some_submission(dice)
        elif luck < 0.75:
            yield some_report(dice)
        elif luck < 0.85:
            yield dice.choice([0.0, 1.0, 12.0, 30.0])
        elif luck < 0.93:
            yield some_node_news(dice)
        else:
            yield some_request(dice)


class Live:
    """A control plane reduced to its arithmetic: what the engine does, without ports."""

    def __init__(self) -> None:
        self.world = World()
        self.cache = SchedulerCache()
        self.log: list[e.Recorded] = []
        self.now = 0.0
        self.ends: dict[str, Phase] = {}

    def give(self, command: c.AnyCommand) -> None:
        """A step with one command."""
        self.record(decide(self.world, command, self.now), command)

    def record(self, events: Decision, command: c.AnyCommand | None = None) -> None:
        """As the engine does it: together, and not folded again if the decision knows the job."""
        batch = self.enveloped(events, command)
        if batch:
            self.world.apply_together(batch, events.outcome)
        self.log += batch
        for event in events:
            self._note_ends(event)

    def enveloped(self, events: Decision, command: c.AnyCommand | None) -> list[e.Recorded]:
        """The events as the only ones of a step."""
        envelope = {"step": self.world.step + 1}
        if command is not None:
            name = type(command).__name__
            envelope |= {"cause": command.id, "command": name, "ordinal": 1}
        return [
            e.Recorded(i, self.now, event, **envelope)
            for i, event in enumerate(events, self.world.position + 1)
        ]

    def _note_ends(self, event) -> None:
        """One terminal state ever, for every job id."""
        job = self.world.jobs.get(getattr(event, "job", ""))
        if isinstance(event, e.JobSubmitted):
            assert event.job not in self.ends or self.ends.pop(event.job)
        if job is not None and job.finished:
            assert self.ends.setdefault(job.id, job.phase) is job.phase

    def do(self, thing) -> None:
        if thing == "schedule":
            self.look()
        elif thing == "scale":
            self.scale()
        elif thing in ("start", "finish", "fail", "stop"):
            self.cooperate(thing)
        elif isinstance(thing, float):
            self.now += thing
            while (job := self.world.next_due(self.now)) is not None:
                events = fire_timers(job, self.now, self.world.position)
                assert events, job
                self.record(events)
        else:
            if isinstance(thing, c.ReportRanks):
                thing = self.about_now(thing)
            try:
                self.give(thing)
            except Rejected:
                pass

    def look(self) -> None:
        """A scheduling pass, as the engine does it."""
        snapshot = Snapshot(self.world, self.now, self.cache)
        decisions = Pass(snapshot, lambda job, code: job.wait_reason != code).run()
        for decision in decisions:
            self.record(enact(self.world, decision, self.now))

    def scale(self) -> None:
        """A user makes every running elastic gang larger, or small again."""
        for job in list(self.world.jobs.values()):
            role = job.spec.roles[-1]
            if job.phase is Phase.RUNNING and is_elastic(role):
                replicas = role.replicas % 3 + 1
                self.do(
                    c.ScaleJob(namespace="ns", name=job.name, role=role.name, replicas=replicas)
                )

    def about_now(self, report: c.ReportRanks) -> c.ReportRanks:
        job = self.world.jobs.get(report.job)
        number = 0 if job is None or job.attempt is None else job.attempt.number
        return replace(report, attempt=number + report.attempt)

    def cooperate(self, how) -> None:
        """A cluster that carries everything out, so that jobs make progress."""
        for job in list(self.world.jobs.values()):
            effect, attempt = wanted(job), job.attempt
            if effect is None or attempt is None:
                continue
            for run in {rank.incarnation for rank in attempt.ranks}:
                self.give(self.willing_report(job, attempt, run, how))

    def willing_report(self, job, attempt, run, how) -> c.ReportRanks:
        about = {"job": job.id, "attempt": attempt.number, "incarnation": run}
        ranks = tuple(i for i, rank in enumerate(attempt.ranks) if rank.incarnation == run)
        if how == "stop":
            return c.ReportRanks(gone=ranks, **about)
        if how == "start":
            return c.ReportRanks(started=ranks, **about)
        if how == "fail":
            return c.ReportRanks(exited=tuple(Exit(i, 137) for i in ranks[:1]), **about)
        return c.ReportRanks(exited=tuple(Exit(i, 0) for i in ranks), **about)


def run(seed: int) -> Live:
    live = Live()
    live.record(Decision([e.QueueDefined(Queue("q2")), e.NodeReported("n1", NodeInfo("n1", 8))]))
    for thing in history(seed):
        live.do(thing)
        live.world.check()
    return live


def replayed(rows, early=None):
    """The world after some rows, from the beginning or from a snapshot."""
    world, digest, _ = early or Rebuilt(World(), GENESIS)
    return Rebuilt(world, fold(world, rows, digest))


@settings(max_examples=200)
@given(seeds)
def test_invariants_hold_and_replay_equals_the_live_state(seed):
    live = run(seed)
    rows = codec.to_rows(live.log, GENESIS)

    rebuilt = replayed(rows)
    bare = State()
    fold(bare, rows, GENESIS)

    rebuilt.world.check()
    assert state_hash(rebuilt.world) == state_hash(live.world) == state_hash(bare)
    assert rebuilt.world.next_deadline() == live.world.next_deadline()


@given(seeds, st.floats(0, 1))
def test_a_snapshot_and_its_tail_equal_the_whole_log(seed, share):
    live = run(seed)
    rows = codec.to_rows(live.log, GENESIS)
    cut = int(len(rows) * share)
    early = replayed(rows[:cut])

    rebuilt = replayed(rows[cut:], open_snapshot(take_snapshot(early.world, early.hash)))

    rebuilt.world.check()
    assert state_hash(rebuilt.world) == state_hash(live.world)


@given(seeds)
def test_the_same_history_gives_the_same_bytes(seed):
    one, other = run(seed), run(seed)

    assert codec.to_rows(one.log, GENESIS) == codec.to_rows(other.log, GENESIS)


@given(seeds)
def test_a_repeated_report_changes_nothing(seed):
    live = run(seed)
    report = live.about_now(some_report(Random(seed)))
    live.record(decide(live.world, report, live.now))
    position = live.world.position

    live.record(decide(live.world, report, live.now))

    assert live.log[position:] == []


@given(seeds)
def test_with_a_willing_cluster_every_job_comes_to_an_end(seed):
    live = run(seed)
    live.do(c.ReportNode(node=NodeInfo("n1", 8)))
    live.do(c.ReportNode(node=NodeInfo("n2", 8)))
    for name in NODES:
        live.do(c.UncordonNode(node=name))
    live.do(c.DefineQueue(queue=Queue("q2")))
    for job in list(live.world.jobs.values()):
        live.do(c.ResumeJob(namespace="ns", name=job.name))

    for _ in range(30):
        for step in (400.0, "schedule", "start", "finish", "stop"):
            live.do(step)

    left = [job for job in live.world.jobs.values() if not job.finished]
    assert not [job for job in left if job.spec.start_timeout_s > 0], left
    assert all(not job.finished or wanted(job) is None for job in live.world.jobs.values())


@given(seeds)
def test_what_is_wanted_follows_from_the_state_alone(seed):
    live = run(seed)
    twin = World(live.world.image())

    for job in live.world.jobs.values():
        effect = wanted(job)
        assert effect == wanted(twin.jobs[job.id])
        assert isinstance(effect, LaunchGang | StopGang) == (job.id in live.world.devices.live)
