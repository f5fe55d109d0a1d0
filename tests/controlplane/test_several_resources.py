"""Evictions, growth and groups look at everything that has a quota, not at GPUs alone."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from controlplane.model.policy import (
    FlavorQuota,
    Policy,
    Preempt,
    Queue,
    Reclaim,
    WithinQueue,
)
from controlplane.model.spec import Role, Scheduling
from controlplane.scheduling.decisions import Evict, Start
from controlplane.scheduling.quota.tree import RESOURCE
from controlplane.scheduling.snapshot import Snapshot
from tests.controlplane.scheduling_worlds import Sandbox
from tests.controlplane.test_resource_quotas import job, queue

FIT = Policy(discipline="fit")
CLASSIC_AND_FAIR = ["quota_classic", "quota_fair"]
RECLAIMS = Preempt(reclaim=Reclaim.ANY)


def evicted(box: Sandbox) -> list[str]:
    return [d.job for d in box.look() if isinstance(d, Evict)]


@pytest.mark.parametrize("model", CLASSIC_AND_FAIR)
def test_a_borrower_of_the_missing_resource_is_preempted_regardless_of_its_gpus(model):
    queues = [
        Queue("lab"),
        queue("mine", 4, 4, parent="lab", preempt=RECLAIMS),
        queue("theirs", 4, 4, parent="lab"),
    ]
    box = Sandbox([(16, "")], queues, replace(FIT, model=model))
    box.submit("own", job("theirs", "4", gpus=1))
    box.submit("borrows", job("theirs", "3", gpus=1))
    box.settle()
    box.submit("mine", job("mine", "4", gpus=1))
    assert evicted(box) == ["borrows"]


@pytest.mark.parametrize("model", CLASSIC_AND_FAIR)
def test_a_borrower_of_gpus_is_not_preempted_when_cpus_are_missing(model):
    queues = [
        Queue("lab"),
        queue("mine", 4, 4, parent="lab", preempt=RECLAIMS),
        queue("cpus", 4, 2, parent="lab"),
        queue("gpus", 2, 2, parent="lab"),
    ]
    box = Sandbox([(16, "")], queues, replace(FIT, model=model))
    box.submit("many-gpus", job("gpus", "1", gpus=4))
    box.submit("many-cpus", job("cpus", "5", gpus=1))
    box.settle()
    box.submit("mine", job("mine", "3", gpus=1))
    assert evicted(box) == ["many-cpus"]


def test_the_dominant_share_decides_the_victim():
    """One has borrowed more GPUs, the other a larger part of the CPUs: that one gives way."""
    queues = [
        Queue("lab"),
        queue("mine", 4, 4, parent="lab", preempt=RECLAIMS),
        queue("gpus", 0, 0, parent="lab"),
        queue("cpus", 0, 0, parent="lab"),
        queue("pool", 16, 16, parent="lab"),
    ]
    box = Sandbox([(32, "")], queues, replace(FIT, model="quota_fair"))
    for number in range(4):
        box.submit(f"gpus-{number}", job("gpus", "1", gpus=2))
        box.submit(f"cpus-{number}", job("cpus", "4", gpus=1))
    box.settle()
    box.submit("mine", job("mine", "4", gpus=1))
    victims = evicted(box)
    assert len(victims) == 1
    assert victims[0].startswith("cpus")


jobs = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(1, 4), st.integers(1, 3), st.integers(0, 2)),
    min_size=1,
    max_size=9,
)
limits = st.integers(0, 6)


@given(jobs, limits, limits, st.sampled_from([("final",), ("initial",), ("final", "initial")]))
@settings(max_examples=80, deadline=None)
def test_fair_evictions_of_several_resources_come_to_rest(drawn, a, b, strategies):
    rules = Preempt(within_queue=WithinQueue.LOWER, reclaim=Reclaim.ANY)
    queues = [
        Queue("lab"),
        queue("a", 3, a, parent="lab", preempt=rules),
        queue("b", 3, b, parent="lab", preempt=rules),
        queue("pool", 2, 3, parent="lab"),
    ]
    # No job is protected: the rules alone make it come to rest.
    policy = replace(FIT, model="quota_fair", strategies=strategies, second_chance_s_max=0.0)
    box = Sandbox([(8, ""), (4, "")], queues, policy)
    for number, (name, cpu, gpus, priority) in enumerate(drawn):
        box.submit(f"j{number}", job(name, str(cpu), gpus=gpus, priority=priority))
        box.settle(200)
        for key in ("", RESOURCE + "cpu"):
            root = Snapshot(box.world).tree(key).branches["lab"]
            assert root.used <= root.subtree


# ---------------------------------------------------------------- growth


def elastic(queue: str, cpu: str, most: int, **more):
    spec = job(queue, cpu, gpus=1, ranks=most, **more)
    return replace(spec, roles=(replace(spec.roles[0], min_replicas=1, max_replicas=most),))


def grown(box: Sandbox, name: str) -> int:
    """How many ranks the gang has once it has grown as far as it can."""
    for _ in range(3):
        box.one_pass()
    return box.world.jobs[name].attempt.with_devices


def test_growth_stays_within_quotas_of_other_resources():
    box = Sandbox([(8, "")], [queue("q", 8, 6)], FIT)
    box.submit("first", job("q", "4"))
    box.settle()
    box.submit("grows", elastic("q", "1", 6))
    assert grown(box, "grows") == 2
    box.finish("first")
    assert grown(box, "grows") == 6
    assert Snapshot(box.world).tree(RESOURCE + "cpu").branches["q"].used == 6_000


def test_growth_stays_on_nodes_that_the_gang_takes():
    box = Sandbox([(2, "a"), (8, "b")], [Queue("q")], FIT)
    asks = Scheduling(topology=type(Scheduling().topology)(required="rack"))
    filler = replace(job("q", "1"), roles=(Role(name="worker", gpus=1, node="n0"),))
    filler2 = replace(job("q", "1"), roles=(Role(name="worker", gpus=8, node="n1"),))
    box.submit("filler", filler)
    box.submit("filler2", filler2)
    box.settle()
    box.submit("grows", elastic("q", "1", 4, scheduling=asks))
    assert grown(box, "grows") == 1
    box.finish("filler2")
    # There is room in the other rack, which is not the one that it is bound to.
    assert grown(box, "grows") == 1
    box.finish("filler")
    assert grown(box, "grows") == 2
    assert {slot.node for slot in box.world.jobs["grows"].attempt.placement} == {"n0"}


# ---------------------------------------------------------------- groups


def member(queue: str, cpu: str, gpus: int = 1):
    return job(queue, cpu, gpus=gpus, scheduling=Scheduling(group="g", group_size=2))


def starts(box: Sandbox) -> list[str]:
    return [d.job for d in box.look() if isinstance(d, Start)]


def test_a_group_has_quota_of_everything_for_all_of_it_or_waits():
    box = Sandbox([(16, "")], [queue("q", 8, 6)], FIT)
    box.submit("a", member("q", "4"))
    box.submit("b", member("q", "4"))
    assert starts(box) == []
    box.submit("c", job("q", "6"))
    assert starts(box) == ["c"]


def test_a_group_stays_below_the_ceiling_of_its_queue():
    box = Sandbox([(16, "")], [Queue("q", gpus_max=6)], FIT)
    box.submit("a", member("q", "1", gpus=4))
    box.submit("b", member("q", "1", gpus=4))
    assert starts(box) == []


def test_a_group_uses_the_quota_of_flavours():
    flavors = (FlavorQuota("fast", nominal=2), FlavorQuota("slow", nominal=2))
    box = Sandbox([], [Queue("q", flavors=flavors)], FIT)
    from controlplane.model.cluster import NodeInfo
    from controlplane.model.events import NodeReported

    for name in ("fast", "slow"):
        box.record(NodeReported(name, NodeInfo(name, 8, gpu_type=name)))
    box.submit("a", member("q", "1", gpus=2))
    box.submit("b", member("q", "1", gpus=2))
    flavor_of = {d.job: d.fit.flavor for d in box.look() if isinstance(d, Start)}
    assert flavor_of == {"a": "fast", "b": "slow"}
