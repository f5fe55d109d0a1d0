"""Whole worlds that are stopped and started again: the log must not show that they were.

A story is a cluster file and what people ask, and when. It runs once without a stop; then the
process ends behind some step of the engine, and another one begins with nothing but the log.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any

from adapters.clocks.simpy_clock import SimpyClock, as_process
from adapters.logs.memory_log import MemoryLog
from adapters.simulated_cluster.cluster import SimulatedCluster
from adapters.simulated_cluster.recovery import catch_up
from adapters.simulated_cluster.workload import Training, Workload, hints_of
from controlplane.disciplines.registry import DISCIPLINES
from controlplane.engine import Engine, EngineOptions
from controlplane.model import commands as c
from controlplane.model import events as e
from controlplane.model.faults import NodeFaultKind, NodeFaultSpec
from controlplane.model.policy import Policy, Preempt, WithinQueue
from controlplane.model.spec import (
    DoneWhen,
    JobSpec,
    Repair,
    RestartPolicy,
    RestartRule,
    RestartScope,
    Role,
    Scheduling,
)
from controlplane.queries.queries import gpus_wanted
from controlplane.state.world import World
from simulator.kernel.virtual_time import VirtualTime
from simulator.network.topology import parse_cluster

Events = Sequence[e.Recorded]
OPTIONS = EngineOptions(resync_s=None, snapshot_every=None)


@dataclass(frozen=True, slots=True)
class Story:
    cluster: dict[str, Any]
    # What is asked, and when; no two at the same time.
    asked: tuple[tuple[float, c.AnyCommand], ...]
    until: float
    origin: float = 0.0


@dataclass(slots=True)
class RecordedStory:
    events: list[e.Recorded] = field(default_factory=list)
    # How many events there were behind each step.
    ends: list[int] = field(default_factory=list)

    def hear(self, batch: Sequence[e.Recorded]) -> None:
        self.events += batch
        self.ends.append(len(self.events))


def live(story: Story, past: Events = ()) -> RecordedStory:
    """Runs a story to its end, from the beginning or behind a `past` of which there is the log."""
    lived = RecordedStory(list(past))
    env = VirtualTime()
    engines: list[Engine] = []
    cluster = SimulatedCluster(
        env,
        parse_cluster(story.cluster),
        origin=story.origin,
        waiting_gpus=lambda: gpus_wanted(engines[0].world),
    )
    world = World()
    if past:
        catch_up(cluster, world, past)
    clock = SimpyClock(env, origin=story.origin)

    def hear(batch: Sequence[e.Recorded]) -> None:
        lived.hear(batch)
        for recorded in batch:
            if isinstance(recorded.event, e.FaultInjected):
                cluster.inject(recorded)

    engine = Engine(clock, MemoryLog(past), cluster, OPTIONS, hear)
    engines.append(engine)
    as_process(env, engine.run())
    for at, command in story.asked:
        if at > env.now or (at == env.now and command.id not in world.receipts):
            env.call_at(at, partial(engine.submit, command))
    env.run(until=story.until)
    return lived


def without_starts(events: Events) -> list[tuple[float, e.Event, str, str]]:
    """What counts: a start records itself, and shifts the positions behind it."""
    return [
        (x.at, x.event, x.cause, x.actor)
        for x in events
        if not isinstance(x.event, e.EngineStarted)
    ]


def first_difference(one: Events, other: Events) -> str:
    """Where two logs part, for people; empty if they do not."""
    a, b = without_starts(one), without_starts(other)
    for index, (mine, its) in enumerate(zip(a, b, strict=False)):
        if mine != its:
            return f"event {index}:\n  {mine}\n  {its}"
    if len(a) != len(b):
        longer = a if len(a) > len(b) else b
        return f"{len(a)} and {len(b)} events; then {longer[min(len(a), len(b))]}"
    return ""


# ------------------------------------------------------------------------------ stories by chance


def story_of(seed: int) -> Story:
    """Faults, pools, training with checkpoints, elastic gangs, repairs and preemption."""
    dice = Random(f"restarts/{seed}")
    asked: list[tuple[float, c.AnyCommand]] = [(1.0, _policy(dice))]
    at = 5.0
    jobs = dice.randint(8, 16)
    for number in range(jobs):
        at += dice.expovariate(1 / 200.0)
        asked.append((at, _submission(number, dice)))
    asked += [
        (dice.uniform(100.0, at + 3_000.0), _request(number, jobs, dice))
        for number in range(dice.randint(4, 12))
    ]
    asked.sort(key=lambda each: each[0])
    return Story(_cluster(dice, seed), tuple(asked), until=at + 40_000.0)


def with_faults(story: Story, seed: int) -> Story:
    """The story, with faults that a person asks for."""
    dice = Random(f"faults/{seed}")
    asked = []
    for number in range(8):
        kind = dice.choice(list(NodeFaultKind))
        fault = NodeFaultSpec(
            kind,
            dice.choice([None, 300.0, 2_000.0]) if number > 5 else dice.uniform(100.0, 2_000.0),
            factor=1.0 if kind.takes_node else dice.choice([0.1, 0.5]),
            notice_s=120.0 if kind is NodeFaultKind.SPOT_RECLAIM else 0.0,
        )
        node = f"{dice.choice('ab')}-{dice.randrange(3)}"
        command = c.InjectFault(
            id=f"fault-{number}", actor="eve", node=node, fault=fault, delay_s=0.25
        )
        asked.append((dice.uniform(200.0, 8_000.0), command))
    every = sorted((*story.asked, *asked), key=lambda each: each[0])
    return replace(story, asked=tuple(every))


def _cluster(dice: Random, seed: int) -> dict[str, Any]:
    rack = {"nodes": 3, "gpus": 4, "gpu_type": "P100", "link": "pcie3", "net": "25GbE"}
    faults: dict[str, Any] = {
        "script": [
            {"at_s": 2_000, "node": "a-1", "kind": "link", "factor": 0.3, "repair_s": 3_000},
            {"at_s": 3_000, "node": "a-2", "kind": "slow", "factor": 0.6, "repair_s": 2_000},
            {"at_s": 1_500, "node": "a-0", "kind": "crash", "repair_s": 700},
        ]
    }
    if dice.random() < 0.7:
        faults["node_mtbf_s"] = dice.choice([4_000, 12_000])
        faults["node_repair_s"] = 400
    if dice.random() < 0.5:
        faults["maintenance"] = [{"rack": "b", "at_s": 4_000, "duration_s": 900}]
    document: dict[str, Any] = {
        "racks": [rack | {"name": "a"}, rack | {"name": "b"}],
        "fabric": {"oversubscription": 2},
        "faults": faults,
        "start_delay_s": dice.choice([0, 5]),
        "start_jitter_s": dice.choice([0, 3]),
        "stop_delay_s": dice.choice([0, 2]),
        "seed": seed,
    }
    if dice.random() < 0.7:
        document["racks"].append(rack | {"name": "cloud"})
        pool = {"rack": "cloud", "least": dice.choice([0, 1]), "most": 3, "price_h": 3.0}
        document["pools"] = [pool | {"idle_s": dice.choice([60, 600]), "delay_s": 120}]
        if dice.random() < 0.5:
            document["pools"][0]["spot"] = True
            faults["spot"] = {"rack": "cloud", "mean_s": 3_000, "notice_s": 120}
    return document


def _policy(dice: Random) -> c.SetPolicy:
    # Dice of its own, so that the rest of a world is what it is without a limit.
    own = Random()
    own.setstate(dice.getstate())
    starts = own.choice([None, 1, 2])
    return c.SetPolicy(
        id="policy",
        actor="root",
        policy=Policy(
            discipline=dice.choice(DISCIPLINES.names),
            preempt=Preempt(within_queue=dice.choice(list(WithinQueue))),
            protected_s=dice.choice([0.0, 300.0]),
            quarantine_after=dice.choice([None, 3]),
            starts_per_cycle_max=starts,
            cycle_s=60.0,
        ),
    )


def _submission(number: int, dice: Random) -> c.SubmitJob:
    trains = dice.random() < 0.6
    elastic = dice.random() < 0.3
    worker = Role(
        name="Worker",
        replicas=dice.choice([1, 2, 3, 4]),
        gpus=dice.choice([1, 2, 4]),
        restart=dice.choice([RestartRule.ON_FAILURE, RestartRule.ALWAYS]),
        min_replicas=1 if elastic else None,
        max_replicas=5 if elastic else None,
    )
    server = Role(
        name="PS",
        replicas=dice.choice([0, 1]),
        restart=RestartRule.ON_FAILURE,
        is_server=True,
        starts_after=dice.choice(["", "Worker"]),
    )
    roles = (worker,) if elastic or dice.random() < 0.7 else (worker, server)
    training = Training(
        model=dice.choice(["resnet50", "vgg16", "alexnet"]),
        steps=dice.randrange(1_000, 20_000),
        checkpoint_s=dice.choice([0.0, 300.0]),
        checkpoint_write_s=10.0,
    )
    fixed = Workload(
        duration_s=dice.uniform(10.0, 4_000.0),
        exit_code=dice.choice([0, 1, 137]),
        failing_attempts=1,
    )
    spec = JobSpec(
        roles=roles,
        done_when=DoneWhen("Worker"),
        priority=dice.randint(0, 2),
        restart=RestartPolicy(
            limit=20,
            backoff_s_max=100.0,
            scope=dice.choice([RestartScope.GANG, RestartScope.GANG, RestartScope.RANK]),
        ),
        hints=hints_of(Workload(training=training) if trains else fixed),
        scheduling=Scheduling(repair=dice.choice([Repair.RESTART, Repair.REPLACE])),
    )
    return c.SubmitJob(
        id=f"submit-{number}",
        actor="ann",
        job=f"id-{number}",
        namespace="t",
        name=f"job-{number}",
        spec=spec,
    )


def _request(number: int, jobs: int, dice: Random) -> c.AnyCommand:
    who = {"id": f"request-{number}", "actor": "bob"}
    job = {"namespace": "t", "name": f"job-{dice.randrange(jobs)}"}
    node = dice.choice(["a-0", "b-1"])
    drawn = dice.randrange(6)
    if drawn == 0:
        return c.SuspendJob(**who, **job)
    if drawn == 1:
        return c.ResumeJob(**who, **job)
    if drawn == 2:
        return c.ScaleJob(**who, **job, role="Worker", replicas=dice.randint(1, 4))
    if drawn == 3:
        return c.CancelJob(**who, **job)
    if drawn == 4:
        return c.DrainNode(**who, node=node)
    return c.UncordonNode(**who, node=node)
