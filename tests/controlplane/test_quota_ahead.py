"""Planned starts regard quota that is given back; the quick timeline agrees with the plain one."""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.lifecycle.job import Job
from controlplane.model.events import JobCancelled
from controlplane.model.policy import Policy, Queue, ResourceQuota
from controlplane.model.spec import DoneWhen, JobSpec, Role, Scheduling
from controlplane.scheduling.backfill.bitset_timeline import BitsetTimeline
from controlplane.scheduling.backfill.planner import Planner
from controlplane.scheduling.backfill.timeline import Timeline
from controlplane.scheduling.cluster_view import ClusterView
from controlplane.scheduling.placement.fit import Fit, fit
from controlplane.scheduling.quota.tree import QuotaTree
from controlplane.scheduling.scheduling_pass import Pass
from controlplane.scheduling.snapshot import Snapshot, held_milli
from controlplane.state.devices import mask_of
from tests.controlplane.scheduling_worlds import Sandbox
from tests.controlplane.slow_backfill import started

EXAMPLES = int(os.environ.get("MUSTER_EXAMPLES", "40"))
EASY = "easy"
TEMPLATE = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "4"}}}]}}


def job(queue: str, gpus: int, runs_s: float, ranks: int = 1, **role: object) -> JobSpec:
    return JobSpec(
        roles=(Role(name="worker", replicas=ranks, gpus=gpus, **role),),
        done_when=DoneWhen("worker"),
        queue=queue,
        scheduling=Scheduling(estimate_s=runs_s),
    )


def planned(box: Sandbox) -> dict[str, float]:
    """Who waits for a planned start, and how many seconds from now on that is."""
    scheduling = Pass(Snapshot(box.world), lambda job, code: True)
    scheduling.run()
    return {p.job: p.starts_at - box.world.at for p in scheduling.planner.planned}


def test_a_head_that_waits_for_its_ceiling_is_planned_when_that_is_free():
    box = Sandbox([(16, "")], [Queue("q", gpus_max=8)], Policy(discipline=EASY))
    box.submit("runs", job("q", 6, 100.0))
    box.one_pass()
    box.submit("head", job("q", 8, 50.0))
    # There are devices for all of them; what is scarce is what the queue may hold.
    box.submit("long", job("q", 2, 500.0))
    box.submit("short", job("q", 2, 50.0))
    assert 80.0 < planned(box)["head"] <= 100.0
    assert started(box.look()) == ["short"]


def test_a_head_that_waits_for_quota_of_its_tree_is_planned_when_that_is_given_back():
    queues = [
        Queue("lab"),
        Queue("left", parent="lab", nominal=4),
        Queue("right", parent="lab", nominal=4),
    ]
    box = Sandbox([(32, "")], queues, Policy(discipline=EASY))
    box.submit("borrows", job("right", 6, 200.0))
    box.one_pass()
    box.submit("head", job("left", 8, 50.0))
    box.submit("long", job("left", 2, 900.0))
    box.submit("short", job("left", 2, 100.0))
    assert 180.0 < planned(box)["head"] <= 200.0
    assert started(box.look()) == ["short"]


def test_a_head_that_waits_for_cpus_of_its_queue_is_planned_when_those_are_free():
    queues = [Queue("q", resources=(ResourceQuota("cpu", nominal=12),))]
    box = Sandbox([(32, "")], queues, Policy(discipline=EASY))
    box.submit("runs", job("q", 1, 100.0, ranks=2, template=TEMPLATE))
    box.one_pass()
    box.submit("head", job("q", 1, 50.0, ranks=3, template=TEMPLATE))
    box.submit("long", job("q", 1, 900.0, template=TEMPLATE))
    box.submit("short", job("q", 1, 50.0, template=TEMPLATE))
    assert 80.0 < planned(box)["head"] <= 100.0
    assert started(box.look()) == ["short"]


def test_a_head_that_no_end_can_help_stands_in_nobodys_way():
    box = Sandbox([(16, "")], [Queue("q", gpus_max=8)], Policy(discipline=EASY))
    box.submit("runs", job("q", 4, 100.0))
    box.one_pass()
    box.submit("head", job("q", 9, 50.0))
    box.submit("long", job("q", 4, 900.0))
    assert planned(box) == {}
    assert started(box.look()) == ["long"]


def test_conservative_plans_stand_in_line_for_quota_too():
    policy = Policy(discipline="conservative")
    box = Sandbox([(32, "")], [Queue("q", gpus_max=4)], policy)
    box.submit("runs", job("q", 4, 100.0))
    box.one_pass()
    for number in range(3):
        box.submit(f"w{number}", job("q", 4, 50.0))
    box.submit("small", job("q", 1, 10.0))
    starts = planned(box)
    assert 80.0 < starts["w0"] <= 100.0
    assert starts["w1"] - starts["w0"] == 50.0
    assert starts["w2"] - starts["w1"] == 50.0
    assert starts["small"] - starts["w2"] == 50.0


sizes = st.integers(1, 6)
running = st.lists(
    st.tuples(st.sampled_from(["left", "right", "inner"]), sizes, st.floats(5.0, 500.0)),
    min_size=1,
    max_size=10,
)
quotas = st.none() | st.integers(0, 8)


@given(
    st.lists(st.sampled_from([2, 4, 8]), min_size=1, max_size=4),
    st.tuples(quotas, quotas, quotas, quotas, quotas),
    running,
    st.tuples(st.sampled_from(["left", "right", "inner"]), sizes, st.floats(5.0, 500.0)),
)
@settings(max_examples=4 * EXAMPLES, deadline=None)
def test_the_head_is_planned_when_counting_gives_that_time(nodes, limits, early, head):
    nominal, borrow, lend, ceiling, inner = limits
    queues = [
        Queue("lab", gpus_max=ceiling),
        Queue("left", parent="lab", nominal=nominal, borrow_max=borrow, lend_max=lend),
        Queue("floor", parent="lab"),
        Queue("inner", parent="floor", nominal=inner),
        Queue("right", parent="lab", nominal=3),
    ]
    box = Sandbox([(n, "") for n in nodes], queues, Policy(discipline=EASY))
    for number, (queue, gpus, runs_s) in enumerate(early):
        box.submit(f"r{number}", job(queue, gpus, runs_s))
    box.one_pass()
    waiting = [place[3] for line in box.world.waiting.queues.values() for place in list(line.order)]
    for name in waiting:
        box.record(JobCancelled(name))
    box.submit("head", job(*head))
    starts = planned(box)
    at = by_counting(box)
    if "head" in started(box.look()):
        assert at == box.world.at
    else:
        assert starts.get("head") == pytest.approx(None if at is None else at - box.world.at)


def length(job: Job, now: float) -> float:
    """How long a job is expected to run: its estimate, doubled until that lies in the future."""
    expected_s = job.spec.scheduling.estimate_s
    while job.attempt.placed_at + expected_s <= now:
        expected_s *= 2
    return expected_s


def by_counting(box: Sandbox) -> float | None:
    """The first end after which quota and devices are there for the head, from scratch each time."""
    world, now = box.world, box.world.at
    gang = Snapshot(world).gang("head")
    running = [world.jobs[i] for queue in world.devices.holders.values() for i in queue]
    ends = {j.id: j.attempt.placed_at + length(j, now) for j in running}
    for at in sorted({now, *ends.values()}):
        tree, free = QuotaTree(world.queues), world.devices.free.copy()
        for other in running:
            if ends[other.id] > at:
                tree.add(other.spec.queue, held_milli(other.attempt))
            else:
                for slot in other.attempt.placement:
                    free.release(world.nodes[slot.node].ordinal, mask_of(slot.devices))
        enough = gang.milli <= min(tree.available(gang.queue), tree.below_ceiling(gang.queue))
        if enough and fit(ClusterView(world), free, gang) is not None:
            return at
    return None


@given(
    st.lists(st.sampled_from([1, 2, 4, 8, 12]), min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 8), st.floats(1.0, 90.0)), max_size=8),
    st.lists(
        st.tuples(st.integers(1, 4), st.integers(1, 8), st.floats(1.0, 90.0)),
        min_size=1,
        max_size=12,
    ),
)
@settings(max_examples=4 * EXAMPLES, deadline=None)
def test_both_timelines_find_the_same_starts(nodes, early, late):
    box = Sandbox([(n, "") for n in nodes], [], Policy(discipline="conservative"))
    for number, (ranks, gpus, runs_s) in enumerate(early):
        box.submit(f"r{number}", job("default", gpus, runs_s, ranks))
    box.one_pass()
    snapshot = Snapshot(box.world)
    planner = Planner(snapshot)
    plain = Timeline(snapshot, box.world.planned_ends.order, planner._leaves)
    quick = BitsetTimeline(snapshot, box.world.planned_ends.order, planner._devices_of)
    for number, (ranks, gpus, runs_s) in enumerate(late):
        box.submit(f"w{number}", job("default", gpus, runs_s, ranks))
        gang = snapshot.gang(f"w{number}")
        start = plain.earliest(gang, "", runs_s, 0)
        assert quick.earliest(gang, "", runs_s, 0) == start
        if start is not None:
            at, place = start
            assert isinstance(place, Fit)
            plain.add(at, at + runs_s, place)
            quick.add(at, at + runs_s, place)
