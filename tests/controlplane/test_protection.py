"""An evicted job is protected later; protection ends by itself; surplus may go meanwhile."""

from itertools import pairwise

import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st
from msgspec.structs import replace

from controlplane.model import events as e
from controlplane.model.cluster import NodeInfo
from controlplane.model.phases import Phase
from controlplane.model.policy import (
    Policy,
    Preempt,
    Queue,
    Reclaim,
    WithinQueue,
)
from controlplane.model.spec import DoneWhen, JobSpec, Role, Scheduling
from tests.controlplane.instant_world import Arrival, job, run
from tests.controlplane.scheduling_worlds import Sandbox

LOWER = Preempt(within_queue=WithinQueue.LOWER)
EVICTS = Policy(discipline="fit", preempt=LOWER, records_reasons=False)


def ran(policy: Policy, arrivals: list[Arrival]) -> list[e.Recorded]:
    return run([NodeInfo("n1", 4)], policy, arrivals)


def lost(events: list[e.Recorded], name: str) -> list[float]:
    return [
        recorded.event.restart.lost_s
        for recorded in events
        if isinstance(recorded.event, e.JobRestarting) and recorded.event.job == name
    ]


def ended_at(events: list[e.Recorded], name: str) -> float:
    return next(
        recorded.at
        for recorded in events
        if isinstance(recorded.event, e.JobSucceeded) and recorded.event.job == name
    )


def large(name: str, at: float, runs_s: float = 1.0) -> Arrival:
    return Arrival(at, name, job(gpus=4, runs_s=runs_s, priority=9))


def test_the_next_run_after_an_eviction_is_safe_for_twice_as_long():
    arrivals = [Arrival(0.0, "small", job(gpus=4, runs_s=50.0))]
    # One comes 10 s after the small one has started, and then every 20 s, each for 10 s.
    arrivals += [large(f"large-{n}", 10.0 + 20.0 * n, 10.0) for n in range(8)]
    events = ran(EVICTS, arrivals)
    assert lost(events, "small") == pytest.approx([10.0, 20.0, 40.0])
    # Without a second chance it gets nothing done before the last of them has gone.
    eager = ran(replace(EVICTS, second_chance_s_max=0.0), arrivals)
    assert lost(eager, "small") == pytest.approx([10.0] * 8)


def test_waiting_jobs_are_considered_when_the_protection_ends():
    policy = replace(EVICTS, protected_s=30.0)
    events = ran(policy, [Arrival(0.0, "small", job(gpus=4, runs_s=1_000.0)), large("large", 5.0)])
    # Nothing else happens at 30 s than that.
    assert ended_at(events, "large") == pytest.approx(31.0, abs=0.01)
    first = next(r.at for r in events if isinstance(r.event, e.ProtectionEnded))
    assert first == pytest.approx(30.0, abs=0.01)


def test_a_second_chance_has_an_end():
    policy = replace(EVICTS, second_chance_s_max=15.0)
    arrivals = [Arrival(0.0, "small", job(gpus=4, runs_s=500.0))]
    arrivals += [large("one", 100.0, 10.0), large("two", 115.0, 10.0)]
    events = ran(policy, arrivals)
    # It starts again at 110 s and is safe until 125 s.
    assert lost(events, "small") == pytest.approx([100.0, 15.0])


def test_what_a_checkpoint_has_kept_is_not_lost():
    spec = job(gpus=4, runs_s=500.0, scheduling=Scheduling(checkpoint_every_s=30.0))
    events = ran(EVICTS, [Arrival(0.0, "small", spec), large("large", 100.0)])
    assert lost(events, "small") == pytest.approx([10.0], abs=0.01)


@settings(max_examples=30, deadline=None)
@drawn(
    length=st.floats(1.0, 200.0),
    gaps=st.lists(st.floats(0.5, 60.0), min_size=1, max_size=25),
)
def test_a_job_loses_less_than_twice_its_length(length, gaps):
    at, arrivals = 0.0, [Arrival(0.0, "small", job(gpus=4, runs_s=length))]
    for number, gap in enumerate(gaps):
        at += gap
        arrivals.append(large(f"large-{number}", at, 0.25))
    losses = lost(ran(EVICTS, arrivals), "small")
    assert sum(losses) < 2 * length + 1e-6
    assert all(b >= 2 * a * (1 - 1e-9) for a, b in pairwise(losses))


def elastic(queue: str, replicas: int, fewest: int, priority: int = 0) -> JobSpec:
    role = Role(name="worker", replicas=replicas, gpus=1, min_replicas=fewest, max_replicas=8)
    return JobSpec(roles=(role,), done_when=DoneWhen("worker"), queue=queue, priority=priority)


def plain(queue: str, gpus: int, priority: int = 0) -> JobSpec:
    role = Role(name="worker", gpus=gpus)
    return JobSpec(roles=(role,), done_when=DoneWhen("worker"), queue=queue, priority=priority)


def test_a_protected_job_still_gives_up_its_surplus():
    policy = Policy(discipline="fit", preempt=LOWER, protected_s=1e6)
    box = Sandbox([(4, "a")], [Queue("q")], policy)
    box.submit("elastic", elastic("q", 4, 2))
    box.settle()
    box.submit("urgent", plain("q", 2, priority=5))
    box.one_pass()
    box.settle()
    assert box.world.jobs["urgent"].phase is Phase.RUNNING
    assert box.world.jobs["elastic"].phase is Phase.RUNNING
    assert box.world.devices.used["q"] == 4
    # The rest of it is safe.
    box.submit("more", plain("q", 1, priority=5))
    box.settle()
    assert box.world.jobs["more"].phase is Phase.QUEUED


def test_surplus_of_the_own_queue_counts_once_besides_that_of_others():
    both = Preempt(within_queue=WithinQueue.LOWER, reclaim=Reclaim.ANY)
    queues = [
        Queue("lab"),
        Queue("mine", parent="lab", nominal=6, preempt=both),
        Queue("theirs", parent="lab", nominal=2),
    ]
    box = Sandbox([(8, "a")], queues, Policy(discipline="fit"))
    box.submit("elastic", elastic("mine", 4, 1))
    box.submit("guest", plain("theirs", 4))
    box.settle()
    assert box.world.devices.free.total == 0
    # Three of the elastic gang's four are surplus; two more are what the others borrow.
    box.submit("urgent", plain("mine", 5, priority=5))
    box.settle()
    assert box.world.jobs["urgent"].phase is Phase.RUNNING
    assert box.world.jobs["elastic"].phase is Phase.RUNNING


def test_priority_and_shares_together_do_not_go_round_in_circles():
    """A high priority takes its own queue's place, shares take it for a low one of the other."""
    rules = Preempt(within_queue=WithinQueue.LOWER, reclaim=Reclaim.ANY)
    queues = [
        Queue("lab"),
        Queue("a", parent="lab", nominal=5, preempt=rules),
        Queue("b", parent="lab", nominal=0, preempt=rules),
        Queue("pool", parent="lab", nominal=3),
    ]
    # Without a second chance, so that it is the rule itself that ends it.
    policy = replace(EVICTS, model="quota_fair", second_chance_s_max=0.0)
    box = Sandbox([(8, "a")], queues, policy)
    for name, queue, gpus, priority in [
        ("b1", "b", 1, 0),
        ("a1", "a", 4, 0),
        ("b2", "b", 4, 2),
        ("a2", "a", 4, 2),
    ]:
        box.submit(name, plain(queue, gpus, priority))
        box.settle()
    assert box.evictions < 20
