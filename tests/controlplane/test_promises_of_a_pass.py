"""Failures of random worlds, each as small as it still fails: ceilings, shares, fences, repairs."""

import pytest

from controlplane.decisions.autonomous import one_pass
from controlplane.model import commands as c
from controlplane.model import events as e
from controlplane.model.cluster import NodeInfo
from controlplane.model.policy import (
    FlavorQuota,
    Policy,
    Preempt,
    Queue,
    WithinQueue,
)
from controlplane.model.spec import Repair, Role, Scheduling, TopologyAsk
from controlplane.scheduling.quota_models.quota_model import QUOTA_MODELS
from tests.controlplane.specification import Given, node, on, spec, submit

REPLACE = Scheduling(repair=Repair.REPLACE)


def passed(given: Given) -> list[e.Event]:
    """One pass with growth, as the engine makes it."""
    events: list[e.Event] = []
    for decided in one_pass(given.world, given.now):
        given.happened(*decided.events)
        events += decided.events
    return events


def comes_up(given: Given, job: str) -> None:
    attempt = given.job(job).attempt
    ranks = tuple(range(len(attempt.ranks)))
    given.when(c.ReportRanks(job=job, attempt=attempt.number, started=ranks))


def loses(given: Given, name: str, job: str, *ranks: int) -> None:
    """A node goes with some ranks of a job."""
    given.when(c.ReportNodeLost(node=name), c.ReportRanks(job=job, attempt=1, gone=ranks))


def used(given: Given, queue: str = "default") -> int:
    return given.world.devices.used.get(queue, 0)


def queue(name: str = "default", **fields: object) -> e.QueueDefined:
    return e.QueueDefined(Queue(name, **fields))


# ---------------------------------------------------------------- ceilings


def test_a_repair_waits_for_quota_that_another_gang_has_by_now():
    given = Given(node("n1", 1), node("n2", 1), queue(gpus_max=2))
    given.when(submit(of=spec(workers=2, gpus=1, scheduling=REPLACE)))
    passed(given)
    comes_up(given, "j1")
    loses(given, "n2", "j1", 1)
    # There is room for another gang on a node that the lost rank cannot have.
    given.when(c.ReportNode(node=NodeInfo("n3", 1, taints=("spot",))))
    tolerant = spec(workers=1, gpus=1, scheduling=Scheduling(tolerates=("spot",)))
    given.when(submit("other", "j2", tolerant))
    passed(given)
    assert given.job("j2").attempt.placement == on(("n3", (0,)))
    given.when(c.ReportNode(node=NodeInfo("n4", 1)))
    assert passed(given) == []
    assert used(given) == 2
    given.when(c.CancelJob(namespace="default", name="other"))
    given.when(c.ReportRanks(job="j2", attempt=1, gone=(0,)))
    assert [type(event) for event in passed(given)] == [e.RanksReplaced]


def test_growth_counts_what_a_repair_in_the_same_pass_took():
    given = Given(node("n1", 4), node("n2", 1), queue(gpus_max=4, nominal=4))
    elastic = (Role(name="Worker", replicas=4, gpus=1, min_replicas=1, max_replicas=4),)
    given.when(submit(of=spec(workers=2, gpus=1, scheduling=REPLACE)))
    given.when(submit("grows", "j2", spec(roles=elastic)))
    given.happened(e.GangPlaced("j1", 1, on(("n1", (0,)), ("n2", (0,)))))
    given.happened(e.GangPlaced("j2", 1, on(("n1", (1,)))))
    comes_up(given, "j1")
    comes_up(given, "j2")
    loses(given, "n2", "j1", 1)
    # One that waits elsewhere makes the pass look at quotas before anything of it has happened.
    given.happened(queue("elsewhere", nominal=0))
    given.when(submit("waits", "j3", spec(workers=1, gpus=1, queue="elsewhere")))
    given.when(c.ReportNode(node=NodeInfo("n3", 4)))
    kinds = [type(event) for event in passed(given)]
    assert kinds == [e.RanksReplaced, e.GangWaiting, e.RanksAdded]
    assert used(given) == 3 + 1


@pytest.mark.parametrize("model", QUOTA_MODELS.names)
def test_a_ceiling_counts_all_flavours_together(model: str):
    flavors = (FlavorQuota("A100", 4), FlavorQuota("V100", 4))
    kinds = [
        e.NodeReported(f"n-{kind}", NodeInfo(f"n-{kind}", 4, kind)) for kind in ("A100", "V100")
    ]
    given = Given(*kinds, e.PolicySet(Policy(model=model)), queue(gpus_max=5, flavors=flavors))
    given.when(
        *[
            submit(
                f"t{i}", f"j{i}", spec(workers=1, gpus=2, scheduling=Scheduling(flavors=(kind,)))
            )
            for i, kind in enumerate(("A100", "V100", "A100", "V100"))
        ]
    )
    passed(given)
    assert used(given) == 4


@pytest.mark.parametrize("model", ["quota_classic", "quota_fair"])
def test_a_requested_flavor_counts_in_the_common_quota_where_there_is_none_by_flavor(model):
    given = Given(
        e.NodeReported("n1", NodeInfo("n1", 8, "V100")),
        e.PolicySet(Policy(model=model, discipline="fit")),
        queue("lab", nominal=2),
        queue("team", parent="lab", nominal=2),
        queue("alone", nominal=2),
    )
    scheduling = Scheduling(flavors=("V100",))
    for name in ("team", "alone"):
        for i in range(5):
            one = spec(workers=1, gpus=1, queue=name, scheduling=scheduling)
            given.when(submit(f"{name}-{i}", f"{name}-{i}", one))
    passed(given)
    assert (used(given, "team"), used(given, "alone")) == (4, 2)


# ---------------------------------------------------------------- shares


def test_a_share_that_is_promised_is_not_given_to_another():
    """One waits for a victim's part of a device, and the rest of that device is its own, too."""
    rules = Preempt(within_queue=WithinQueue.LOWER)
    given = Given(e.PolicySet(Policy(discipline="fit", preempt=rules)), node("n1", 1))
    small = (Role(name="Worker", gpu_share=500),)
    large = (Role(name="Worker", gpu_share=800),)
    given.when(submit("low", "j1", spec(roles=small)))
    passed(given)
    given.when(
        submit("high", "j2", spec(roles=large, priority=5)),
        submit("late", "j3", spec(roles=small)),
    )
    passed(given)
    assert given.job("j2").wait_reason == "waiting_for_victims"
    assert given.job("j3").attempt is None
    given.when(c.ReportRanks(job="j1", attempt=1, gone=(0,)))
    passed(given)
    assert given.job("j2").attempt.shares == (800,)


def test_a_rank_with_a_share_is_replaced_with_a_share():
    given = Given(node("n1", 1), node("n2", 1))
    shares = (Role(name="Worker", replicas=2, gpu_share=600),)
    given.when(submit(of=spec(roles=shares, scheduling=REPLACE)))
    passed(given)
    comes_up(given, "j1")
    lost = given.job().attempt.placement[1].node
    loses(given, lost, "j1", 1)
    given.when(c.ReportNode(node=NodeInfo("n3", 1)))
    passed(given)
    assert given.job().attempt.placement[1:] == on(("n3", (0,)))


def test_a_rank_that_names_its_device_waits_for_it():
    given = Given(node("n1", 2), node("n2", 4))
    pinned = (Role(name="Worker", gpus=1, node="n1", devices=(1,)),)
    given.when(submit(of=spec(roles=pinned, scheduling=REPLACE)))
    passed(given)
    comes_up(given, "j1")
    loses(given, "n1", "j1", 0)
    assert passed(given) == []
    given.when(c.ReportNode(node=NodeInfo("n1", 2)))
    assert [type(event) for event in passed(given)] == [e.RanksReplaced]
    assert given.job().attempt.placement == on(("n1", (1,)))


# ---------------------------------------------------------------- domains


def racked(*racks: str) -> list[e.NodeReported]:
    return [
        e.NodeReported(f"n{i}", NodeInfo(f"n{i}", 4, rack=rack)) for i, rack in enumerate(racks)
    ]


def grouped(**more: object) -> Scheduling:
    return Scheduling(group="both", group_size=2, **more)


def test_gangs_of_a_group_do_not_share_a_rack_that_one_has_for_itself():
    alone = TopologyAsk(required="rack", exclusive=True)
    given = Given(*racked("r0", "r0"))
    given.when(
        submit("a", "j1", spec(workers=1, gpus=2, scheduling=grouped(topology=alone))),
        submit("b", "j2", spec(workers=1, gpus=2, scheduling=grouped())),
    )
    passed(given)
    assert given.job("j1").attempt is None
    given.happened(e.NodeReported("n9", NodeInfo("n9", 4, rack="r9")))
    passed(given)
    nodes = [given.job(job).attempt.placement[0].node for job in ("j1", "j2")]
    assert sorted(node == "n9" for node in nodes) == [False, True]


@pytest.mark.parametrize("exclusive", [False, True])
def test_a_gang_bound_to_a_domain_that_lost_all_ranks_is_placed_anew(exclusive: bool):
    """Each lost rank for itself would find a place, and they would not be near each other."""
    given = Given(*racked("r0", "r1", "r2"))
    near = TopologyAsk(required="node", exclusive=exclusive)
    bound = Scheduling(topology=near, repair=Repair.REPLACE)
    given.when(submit(of=spec(workers=2, gpus=2, scheduling=bound)))
    passed(given)
    comes_up(given, "j1")
    lost = given.job().attempt.placement[0].node
    loses(given, lost, "j1", 0, 1)
    kinds = {type(event) for event in passed(given)}
    assert e.RanksReplaced not in kinds
    assert e.JobRestarting in kinds


def test_a_gang_that_has_a_rack_for_itself_is_repaired_there():
    given = Given(*racked("r0", "r0", "r0"))
    alone = TopologyAsk(required="rack", exclusive=True)
    asks = Scheduling(topology=alone, repair=Repair.REPLACE)
    given.when(submit(of=spec(workers=2, gpus=4, scheduling=asks)))
    passed(given)
    comes_up(given, "j1")
    loses(given, given.job().attempt.placement[1].node, "j1", 1)
    assert [type(event) for event in passed(given)] == [e.RanksReplaced]


# ---------------------------------------------------------------- protection


def test_a_gang_is_safe_for_as_long_as_was_recorded_when_it_started():
    """A policy that protects for a shorter time holds for gangs that start under it."""
    rules = Preempt(within_queue=WithinQueue.LOWER)
    given = Given(e.PolicySet(Policy(preempt=rules, protected_s=60.0)), node("n1", 1))
    given.when(submit("low", "j1", spec(workers=1, gpus=1)))
    passed(given)
    given.happened(e.PolicySet(Policy(preempt=rules)))
    given.when(submit("high", "j2", spec(workers=1, gpus=1, priority=5)))
    given.later(59.0)
    assert e.JobRestarting not in map(type, passed(given))
    given.later(1.0).when_time_comes().then(e.ProtectionEnded("j1", 1))
    assert e.JobRestarting in map(type, passed(given))
