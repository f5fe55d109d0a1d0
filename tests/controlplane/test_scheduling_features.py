"""Shared devices, named devices, quarantine, drains, repair, reasons in the log: one by one."""

from statistics import mean

import pytest

from controlplane.decisions.scheduling_events import enact
from controlplane.messages import job_text
from controlplane.model import commands as c
from controlplane.model import events as e
from controlplane.model.cluster import NodeInfo
from controlplane.model.phases import Phase, RankState
from controlplane.model.policy import Policy, Preempt, Queue, WithinQueue
from controlplane.model.reasons import CordonReason, JobRemovalReason, LossReason
from controlplane.model.spec import Repair, Role, Scheduling, StartPolicy, TopologyAsk
from controlplane.queries.queries import why
from controlplane.scheduling.explain.fragmentation import by_size
from controlplane.scheduling.scheduling_pass import Pass
from controlplane.scheduling.snapshot import Snapshot
from controlplane.state.world import World
from tests.controlplane.held_waits import held_waits
from tests.controlplane.specification import Given, node, spec, submit


def passed(given: Given, *, everyone: bool = False) -> list[e.Event]:
    """One pass, and the events that come of it."""
    recorded: list[e.Event] = []

    def explains(job, code):
        return job.wait_reason != code

    for decision in Pass(Snapshot(given.world, given.now), explains, explain_all=everyone).run():
        events = enact(given.world, decision, given.now)
        given.happened(*events)
        recorded += events
    return recorded


def started(given: Given, job: str) -> None:
    attempt = given.job(job).attempt
    ranks = tuple(range(len(attempt.ranks)))
    given.when(c.ReportRanks(job=job, attempt=attempt.number, started=ranks))


def test_ranks_share_a_device_and_leave_whole_nodes_whole():
    share = (Role(name="Worker", replicas=2, gpu_share=400),)
    given = Given(node("n1", 2), node("n2", 2)).when(
        submit("a", "j1", spec(roles=share)), submit("b", "j2", spec(roles=share))
    )
    passed(given)
    slots = [slot for job in ("j1", "j2") for slot in given.job(job).attempt.placement]
    assert {slot.node for slot in slots} == {"n1"}
    assert [slot.devices for slot in slots] == [(0,), (0,), (1,), (1,)]
    assert given.world.devices.free.shared == {0: {0: 800, 1: 800}}
    given.when(submit("c", "j3", spec(workers=1, gpus=2)))
    passed(given)
    assert given.job("j3").attempt.placement[0].node == "n2"


def test_memory_is_a_part_of_a_device_of_known_size():
    big = e.NodeReported("n1", NodeInfo("n1", 1, gpu_memory_mib=40_000))
    asks = (Role(name="Worker", gpu_memory_mib=30_000),)
    given = Given(big).when(
        submit("a", "j1", spec(roles=asks)), submit("b", "j2", spec(roles=asks))
    )
    passed(given)
    assert given.job("j1").attempt.shares == (750,)
    assert given.job("j2").phase is Phase.QUEUED


def test_a_role_runs_on_the_node_and_device_it_names():
    pinned = (Role(name="Worker", gpus=1, node="n2", devices=(0,)),)
    given = Given(node("n1"), node("n2")).when(
        submit("a", "j1", spec(roles=pinned)), submit("b", "j2", spec(roles=pinned))
    )
    passed(given)
    assert given.job("j1").attempt.placement[0].node == "n2"
    assert given.job("j1").attempt.placement[0].devices == (0,)
    assert given.job("j2").phase is Phase.QUEUED


def test_a_node_that_is_lost_too_often_is_put_in_quarantine():
    given = Given(e.PolicySet(Policy(quarantine_after=2)), node())
    given.when(c.ReportNodeLost(node="n1"), c.ReportNode(node=NodeInfo("n1", 8)))
    assert not given.world.nodes["n1"].cordoned
    given.later(60.0).when(c.ReportNodeLost(node="n1"), c.ReportNode(node=NodeInfo("n1", 8)))
    assert given.world.nodes["n1"].cordoned
    assert given.world.nodes["n1"].cordon_reason is CordonReason.QUARANTINED
    given.when(c.UncordonNode(node="n1"))
    assert given.world.nodes["n1"].losses == ()


def test_a_node_that_is_given_back_to_its_pool_was_not_lost():
    given = Given(e.PolicySet(Policy(quarantine_after=2)), node())
    for _ in range(4):
        back = c.ReportNodeLost(node="n1", reason=LossReason.GIVEN_BACK)
        given.when(back, c.ReportNode(node=NodeInfo("n1", 8)))
    assert not given.world.nodes["n1"].cordoned
    given.when(c.ReportNodeLost(node="n1"))
    assert not given.world.nodes["n1"].cordoned


def test_losses_of_another_day_do_not_count():
    given = Given(e.PolicySet(Policy(quarantine_after=2)), node())
    given.when(c.ReportNodeLost(node="n1"), c.ReportNode(node=NodeInfo("n1", 8)))
    given.later(90_000.0).when(c.ReportNodeLost(node="n1"))
    assert not given.world.nodes["n1"].cordoned


def repaired(**more: object) -> Scheduling:
    return Scheduling(repair=Repair.REPLACE, recovery_timeout_s=300.0, **more)


def test_a_lost_rank_is_replaced_and_the_others_run_on():
    given = Given(node("n1"), node("n2"), node("n3"))
    given.when(submit(of=spec(workers=2, gpus=8, scheduling=repaired())))
    passed(given)
    started(given, "j1")
    given.when(c.ReportNodeLost(node="n2"))
    assert given.job().phase is Phase.RUNNING
    assert [w.job for w in held_waits(given.world)] == ["j1"]
    given.when(c.ReportRanks(job="j1", attempt=1, gone=(1,)))
    events = passed(given)
    assert [type(event) for event in events] == [e.RanksReplaced]
    assert given.job().attempt.placement[1].node == "n3"
    given.when(c.ReportRanks(job="j1", attempt=1, started=(1,), incarnation=1))
    assert given.job().degraded_since is None
    assert given.job().restarts == ()


def test_a_node_that_is_lost_again_takes_nothing_from_a_gang_that_it_left():
    given = Given(node("n1"), node("n2"), node("n3"))
    given.when(submit(of=spec(workers=2, gpus=8, scheduling=repaired())))
    passed(given)
    started(given, "j1")
    given.when(c.ReportNodeLost(node="n2"), c.ReportNode(node=NodeInfo("n2", 8)))
    assert given.job().attempt.ranks[1].state is RankState.LOST
    given.when(c.ReportNodeLost(node="n2")).then_kinds(e.NodeLost)


def test_a_gang_without_a_replacement_lets_go_in_the_end():
    given = Given(node("n1"), node("n2"))
    given.when(submit(of=spec(workers=2, gpus=8, scheduling=repaired())))
    passed(given)
    started(given, "j1")
    given.when(c.ReportNodeLost(node="n2"), c.ReportRanks(job="j1", attempt=1, gone=(1,)))
    assert passed(given) == []
    given.later(299.0).when_time_comes().then()
    given.later(1.0).when_time_comes()
    assert given.job().phase is Phase.RESTARTING
    assert "not replaced within 300 s" in job_text(given.job())


def test_a_gang_bound_to_a_rack_without_room_starts_again_at_once():
    racks = [e.NodeReported(f"n{i}", NodeInfo(f"n{i}", 8, rack=f"r{i // 2}")) for i in range(4)]
    near = TopologyAsk(required="rack")
    given = Given(*racks).when(
        submit(of=spec(workers=2, gpus=8, scheduling=repaired(topology=near)))
    )
    passed(given)
    started(given, "j1")
    lost = given.job().attempt.placement[1].node
    given.when(c.ReportNodeLost(node=lost), c.ReportRanks(job="j1", attempt=1, gone=(1,)))
    events = passed(given)
    assert e.JobRestarting in [type(event) for event in events]


def test_a_gang_that_never_comes_up_is_put_to_sleep_and_can_be_woken():
    asks = StartPolicy(backoff_s_first=60.0, limit=1)
    given = Given(node()).when(submit(of=spec(gpus=4, start_timeout_s=100.0, start=asks)))
    for _ in range(2):
        passed(given)
        given.later(100.0).when_time_comes()
        gone = given.job().attempt
        given.when(c.ReportRanks(job="j1", attempt=gone.number, gone=(0, 1)))
        given.later(60.0).when_time_comes()
    assert (given.job().phase, given.job().reason) == (Phase.SUSPENDED, "deactivated")
    given.when(c.ResumeJob(namespace="default", name="train")).when_time_comes()
    assert given.job().phase is Phase.QUEUED


def test_a_preempted_job_keeps_its_place_and_its_restarts():
    rules = Preempt(within_queue=WithinQueue.LOWER)
    given = Given(e.PolicySet(Policy(preempt=rules)), node())
    given.when(submit("a", "j1", spec(workers=1, gpus=8)))
    passed(given)
    started(given, "j1")
    given.when(
        submit("b", "j2", spec(workers=1, gpus=8)),
        submit("c", "j3", spec(workers=1, gpus=8, priority=5)),
    )
    passed(given)
    assert given.job("j1").restarts[0].cause.value == "preemption"
    assert given.job("j3").wait_reason == "waiting_for_victims"
    given.when(c.ReportRanks(job="j1", attempt=1, gone=(0,)))
    assert given.job("j1").phase is Phase.QUEUED
    assert [place[3] for place in given.world.waiting.keys("default")] == ["j3", "j1", "j2"]
    passed(given)
    assert given.job("j3").phase is Phase.STARTING
    assert given.job("j1").failures == 0


def test_capacity_taken_by_a_start_is_promised_to_no_other_job():
    rules = Preempt(within_queue=WithinQueue.LOWER)
    policy = Policy(preempt=rules, discipline="fit")
    given = Given(e.PolicySet(policy), *(node(f"n{i}", 4) for i in (1, 2, 3)))
    for number in (2, 3):
        low = (Role(name="Worker", gpus=4, node=f"n{number}"),)
        given.when(submit(f"low-{number}", f"low{number}", spec(roles=low)))
    passed(given)
    urgent = (Role(name="Worker", gpus=4, node="n2"),)
    given.when(
        submit("a", "j1", spec(roles=urgent, priority=9)),
        submit("b", "j2", spec(workers=1, gpus=4, priority=8)),
        submit("c", "j3", spec(workers=1, gpus=4, priority=7)),
    )
    passed(given)
    assert given.job("j2").attempt.placement[0].node == "n1"
    assert given.job("low2").phase is Phase.RESTARTING
    assert given.job("low3").phase is Phase.RESTARTING


def test_a_reason_is_recorded_when_it_changes_and_not_again():
    given = Given(e.PolicySet(Policy(discipline="fit")), node())
    given.when(
        submit("a", "j1", spec(workers=1, gpus=6)), submit("b", "j2", spec(workers=1, gpus=4))
    )
    kinds = [type(event) for event in passed(given)]
    assert kinds == [e.GangPlaced, e.GangWaiting]
    assert given.job("j2").wait_reason == "insufficient_capacity"
    assert passed(given) == []


def test_why_shows_the_quota_of_a_tree():
    queues = [
        Queue("lab"),
        Queue("left", parent="lab", nominal=2),
        Queue("right", parent="lab", nominal=2),
    ]
    given = Given(node(), *map(e.QueueDefined, queues))
    given.when(submit("a", "j1", spec(workers=1, gpus=3, queue="left")))
    given.when(submit("b", "j2", spec(workers=1, gpus=2, queue="right")))
    passed(given)
    assert given.job("j1").phase is Phase.QUEUED or given.job("j2").phase is Phase.QUEUED
    waiting = next(j for j in ("j1", "j2") if given.job(j).phase is Phase.QUEUED)
    reason = why(given.world, given.job(waiting)).reasons[0]
    assert (reason.code, reason.tier) == ("insufficient_quota", "quota")
    assert reason.needed is not None
    assert reason.available is not None


def test_fragmentation_is_what_ranks_of_a_size_cannot_use():
    given = Given(node("n1", 8), node("n2", 8))
    assert mean(by_size(given.world.devices.free).values()) == 0.0
    given.when(
        submit("a", "j1", spec(workers=1, gpus=5)), submit("b", "j2", spec(workers=1, gpus=5))
    )
    passed(given)
    sizes = by_size(given.world.devices.free)
    assert sizes[1] == 0.0
    assert sizes[2] == 1 - 4 / 6
    assert sizes[4] == sizes[8] == 1.0


def test_a_policy_change_orders_the_line_anew():
    given = Given(node()).when(submit("hold", "j0", spec(workers=1, gpus=8)))
    passed(given)
    long, short = Scheduling(estimate_s=100.0), Scheduling(estimate_s=1.0)
    given.when(
        submit("a", "j1", spec(workers=1, gpus=8, scheduling=long)),
        submit("b", "j2", spec(workers=1, gpus=8, scheduling=short)),
    )
    assert [place[3] for place in given.world.waiting.keys("default")] == ["j1", "j2"]
    given.when(c.SetPolicy(policy=Policy(discipline="sjf")))
    assert [place[3] for place in given.world.waiting.keys("default")] == ["j2", "j1"]


def test_memory_is_charged_by_the_device_that_is_there():
    """Half of a device of 16 GiB is half a GPU of the quota, not a tenth as of a larger one."""
    part = (Role(name="Worker", gpu_memory_mib=8_192),)
    for limits in ({"gpus_max": 1}, {"nominal": 1}):
        info = NodeInfo("n1", 4, gpu_memory_mib=16_384)
        given = Given(e.QueueDefined(Queue("default", **limits)), e.NodeReported("n1", info))
        for name in ("a", "b", "c"):
            given.when(submit(name, name, spec(roles=part)))
        passed(given)
        placed = [name for name in ("a", "b", "c") if given.job(name).attempt is not None]
        assert placed == ["a", "b"], limits
        assert given.world.devices.used_parts["default"] == 1_000


def test_another_kind_of_device_changes_what_memory_costs():
    part = (Role(name="Worker", gpu_memory_mib=8_192),)
    given = Given(e.NodeReported("n1", NodeInfo("n1", 4, gpu_memory_mib=81_920)))
    given.when(submit("a", "a", spec(roles=part)))
    assert Snapshot(given.world).gang("a").milli == 100
    given.happened(e.NodeReported("n2", NodeInfo("n2", 4, gpu_memory_mib=16_384)))
    # It may get to either, so the quota is asked for what it could cost at most.
    assert Snapshot(given.world).gang("a").milli == 500


def test_usage_fades_and_outlives_the_jobs_that_had_it():
    """A queue whose jobs are gone and forgotten still comes after one that had nothing."""
    for model in ("progressive_filling", "deserved_plus_weight", "quota_fair", "quota_classic"):
        policy = Policy(discipline="fit", model=model, usage_halflife_s=1_000.0)
        queues = [Queue("greedy", nominal=4), Queue("modest", nominal=4)]
        given = Given(
            e.PolicySet(policy),
            *map(e.QueueDefined, queues),
            e.NodeReported("n1", NodeInfo("n1", 4)),
        )
        given.when(submit("old", "old", spec(workers=1, gpus=4, queue="greedy")))
        passed(given)
        started(given, "old")
        given.later(500.0)
        given.when(c.ReportRanks(job="old", attempt=1, exited=(c.Exit(0, 0),)))
        given.happened(e.JobRemoved("old", JobRemovalReason.DELETED))
        gpu_s, _ = given.world.usage["greedy"]
        assert gpu_s == pytest.approx(4 * 500.0)
        twin = World(given.world.image())
        assert twin.usage == given.world.usage
        given.later(1_000.0)
        assert Snapshot(given.world, given.now).decayed_usage("greedy") == pytest.approx(1_000.0)
        # Both ask for all there is; who had less lately gets it, though it came later.
        given.when(submit("g", "g", spec(workers=1, gpus=4, queue="greedy")))
        given.when(submit("m", "m", spec(workers=1, gpus=4, queue="modest")))
        passed(given)
        assert given.job("m").attempt is not None, model
        assert given.job("g").attempt is None, model


@pytest.mark.parametrize("first", ["q1", "q2"])
def test_among_idle_queues_the_share_after_admission_decides(first):
    """One GPU; the queues deserve 1 and 2, so the job of the second uses the smaller part of its own."""
    policy = Policy(model="deserved_plus_weight")
    queues = [e.QueueDefined(Queue("q1", nominal=1)), e.QueueDefined(Queue("q2", nominal=2))]
    second = "q2" if first == "q1" else "q1"
    given = Given(e.PolicySet(policy), *queues, node("n1", 1)).when(
        submit("a", first, spec(workers=1, gpus=1, queue=first)),
        submit("b", second, spec(workers=1, gpus=1, queue=second)),
    )
    passed(given)
    assert given.job("q2").attempt is not None
    assert given.job("q1").phase is Phase.QUEUED
