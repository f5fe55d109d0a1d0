"""Back-fill: as a slow reference does it, without delaying what is planned, and without looking twice."""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.model.policy import Policy, Queue
from controlplane.model.spec import Role, Scheduling
from controlplane.scheduling.decisions import KeepWaiting
from controlplane.scheduling.scheduling_pass import Pass
from controlplane.scheduling.snapshot import Snapshot
from tests.controlplane.scheduling_worlds import Sandbox
from tests.controlplane.slow_backfill import SlowBackfill, started
from tests.controlplane.specification import spec

EXAMPLES = int(os.environ.get("MUSTER_EXAMPLES", "40"))
EASY, CONSERVATIVE = "easy", "conservative"

nodes = st.lists(st.sampled_from([1, 2, 4, 8, 24]), min_size=1, max_size=4)
jobs = st.lists(
    st.tuples(
        st.integers(1, 3),
        st.sampled_from([1, 1, 2, 4, 8]),
        st.sampled_from([None, 2.0, 3.5, 10.0, 40.0, 300.0]),
        st.integers(0, 1),
    ),
    min_size=2,
    max_size=14,
)


def gang(ranks: int, gpus: int, estimate_s: float | None, priority: int):
    asks = Scheduling(estimate_s=estimate_s)
    return spec(workers=ranks, gpus=gpus, priority=priority, scheduling=asks)


@given(nodes, st.sampled_from([EASY, CONSERVATIVE]), st.integers(1, 4), jobs, jobs, st.data())
@settings(max_examples=5 * EXAMPLES, deadline=None)
def test_back_fill_agrees_with_a_slow_reference(sizes, discipline, most, early, late, data):
    policy = Policy(discipline=discipline, planned_max=most, estimate_s_default=20.0)
    box = Sandbox([(n, "") for n in sizes], [], policy)
    for number, job in enumerate([*early, *late]):
        box.submit(f"j{number}", gang(*job))
        if data.draw(st.booleans()):
            agree(box)
            box.one_pass()
        running = sorted(box.world.devices.holders.get("default", ()))
        if running and data.draw(st.booleans()):
            box.finish(data.draw(st.sampled_from(running)))
    agree(box)


def agree(box: Sandbox) -> None:
    if box.world.waiting.queues.get("default"):
        expected = SlowBackfill(box.world).starts()
        assert started(box.look()) == expected


@given(nodes, st.sampled_from([EASY, CONSERVATIVE]), jobs)
@settings(max_examples=2 * EXAMPLES, deadline=None)
def test_a_backfilled_job_delays_no_planned_start(sizes, discipline, waiting):
    """Planned again right after the pass, no planned job starts later than promised."""
    box = Sandbox([(n, "") for n in sizes], [], Policy(discipline=discipline))
    for number, job in enumerate(waiting):
        box.submit(f"j{number}", gang(*job))
    scheduling = Pass(Snapshot(box.world), lambda job, code: True)
    scheduling.run()
    promised = {p.job: p.starts_at for p in scheduling.planner.planned}
    before = box.world.at
    box.one_pass()
    # As of the first pass, so that no job that has just started is overdue.
    again = Pass(Snapshot(box.world, before), lambda job, code: True)
    again.run()
    # The sandbox's clock goes on by a second an event.
    slack = box.world.at
    for planned in again.planner.planned:
        if discipline is EASY or planned.job == again.planner.planned[0].job:
            assert planned.starts_at <= promised[planned.job] + slack


def full_box(discipline: str = EASY) -> Sandbox:
    """Eight GPUs of which six are taken for a hundred seconds, and a head that needs all eight."""
    box = Sandbox([(8, "")], [], Policy(discipline=discipline))
    box.submit("runs", gang(1, 6, 100.0, 0))
    box.one_pass()
    box.submit("head", gang(1, 8, 50.0, 0))
    return box


def test_one_that_ends_in_time_goes_past_one_that_does_not():
    box = full_box()
    box.submit("long", gang(1, 2, 500.0, 0))
    box.submit("short", gang(1, 2, 20.0, 0))
    assert started(box.look()) == ["short"]


def test_a_head_waits_for_gangs_with_named_nodes_and_parts_of_devices_too():
    box = Sandbox([(8, "")], [], Policy(discipline=EASY))
    roles = (Role(name="Worker", gpus=7, node="n0"), Role(name="Part", gpu_share=500))
    box.submit("runs", spec(roles=roles, scheduling=Scheduling(estimate_s=100.0)))
    box.one_pass()
    box.submit("head", gang(1, 8, 50.0, 0))
    scheduling = Pass(Snapshot(box.world), lambda job, code: True)
    scheduling.run()
    assert [planned.job for planned in scheduling.planner.planned] == ["head"]


def test_a_job_that_is_not_backfilled_gets_its_reason_once():
    box = full_box()
    box.submit("long", gang(1, 2, 500.0, 0))
    box.submit("large", gang(1, 4, 5.0, 0))

    def held() -> list[tuple[str, str]]:
        scheduling = Pass(
            Snapshot(box.world), lambda j, code: j.wait_reason != code, explain_all=False
        )
        return [(d.job, d.reasons[0].code) for d in scheduling.run() if isinstance(d, KeepWaiting)]

    reasons = [
        ("head", "insufficient_capacity"),
        ("long", "would_delay_planned_start"),
        ("large", "insufficient_capacity"),
    ]
    assert held() == reasons
    from controlplane.model.events import GangWaiting

    for job, code in reasons:
        box.record(GangWaiting(job, code))
    box.world.check()
    assert held() == []
    box.submit("longer", gang(1, 2, 600.0, 0))
    assert held() == [("longer", "would_delay_planned_start")]


def test_another_queues_head_is_not_delayed_either():
    """Heads of all queues are planned before any job is backfilled past one of them."""
    queues = [Queue("default"), Queue("other")]
    box = Sandbox([(8, "")], queues, Policy(discipline=EASY))
    box.submit("runs", gang(1, 5, 100.0, 0))
    box.one_pass()
    box.submit("head", gang(1, 8, 50.0, 0))
    box.submit(
        "head2", spec(workers=1, gpus=4, queue="other", scheduling=Scheduling(estimate_s=9.0))
    )
    # It would end before the first head starts, but it would not if it took what the other needs.
    box.submit("past", gang(1, 3, 120.0, 0))
    assert started(box.look()) == []


def test_a_group_goes_past_whole_or_not_at_all():
    box = full_box()

    def member(gpus: int, size: int):
        asks = Scheduling(estimate_s=10.0, group="g", group_size=size)
        return spec(workers=1, gpus=gpus, scheduling=asks)

    box.submit("a", member(1, 2))
    assert started(box.look()) == []
    box.submit("b", member(1, 2))
    assert started(box.look()) == ["a", "b"]


@pytest.mark.parametrize("discipline", [EASY, CONSERVATIVE])
def test_a_changed_estimate_of_the_policy_reaches_running_jobs(discipline):
    box = full_box(discipline)
    from controlplane.model.events import PolicySet

    box.record(PolicySet(Policy(discipline=discipline, estimate_s_default=7.0)))
    box.world.check()
