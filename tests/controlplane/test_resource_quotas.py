"""Quotas of what pods request besides GPUs: kept, borrowed, reclaimed, shared by dominant resource."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from controlplane.messages import wait_text
from controlplane.model.policy import (
    Policy,
    Preempt,
    Queue,
    Reclaim,
    ResourceQuota,
    WithinQueue,
)
from controlplane.model.spec import DoneWhen, JobSpec, Role
from controlplane.scheduling.decisions import Claim, Evict, KeepWaiting, Start
from controlplane.scheduling.quota.tree import RESOURCE
from controlplane.scheduling.scheduling_pass import Pass
from controlplane.scheduling.snapshot import Snapshot
from tests.controlplane.scheduling_worlds import Sandbox

FIT = Policy(discipline="fit")


def job(queue: str, cpu: str, gpus: int = 1, memory: str = "1Gi", **more) -> JobSpec:
    requests = {"cpu": cpu, "memory": memory}
    pod = {"spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]}}
    role = Role(name="worker", replicas=more.pop("ranks", 1), gpus=gpus, template=pod)
    return JobSpec(roles=(role,), done_when=DoneWhen("worker"), queue=queue, **more)


def queue(name: str, gpus: int, cpu: float, **more) -> Queue:
    resources = (ResourceQuota("cpu", cpu, borrow_max=more.pop("borrow_cpu", None)),)
    return Queue(name, nominal=gpus, resources=resources, **more)


def starts(box: Sandbox) -> list[str]:
    return [d.job for d in box.look() if isinstance(d, Start)]


def test_what_pods_request_is_kept_within_the_quota():
    box = Sandbox([(8, "")], [queue("a", 8, 10)], FIT)
    box.submit("one", job("a", "4500m"))
    box.submit("two", job("a", "4", ranks=1))
    box.submit("three", job("a", "2"))
    box.submit("four", job("a", "1500m"))
    assert starts(box) == ["one", "two", "four"]


def test_a_queue_that_states_no_quota_of_it_has_none():
    box = Sandbox([(8, "")], [Queue("a", nominal=8), queue("b", 8, 1)], FIT)
    box.submit("a", job("a", "400"))
    box.submit("b", job("b", "2"))
    assert starts(box) == ["a"]


def test_idle_quota_is_borrowed_up_to_the_limit():
    queues = [
        Queue("lab"),
        queue("a", 4, 4, parent="lab", borrow_cpu=2),
        queue("b", 4, 8, parent="lab"),
    ]
    box = Sandbox([(8, "")], queues, FIT)
    box.submit("seven", job("a", "7"))
    box.submit("six", job("a", "6"))
    assert starts(box) == ["six"]


def test_a_reason_names_the_resource_that_is_missing():
    box = Sandbox([(8, "")], [queue("a", 8, 4)], FIT)
    box.submit("big", job("a", "6"))
    held = [
        d for d in Pass(Snapshot(box.world), lambda j, c: True).run() if isinstance(d, KeepWaiting)
    ]
    reason = held[0].reasons[0]
    assert reason.code == "insufficient_quota"
    assert "request 6 of cpu" in wait_text(reason)
    assert "4 more now" in wait_text(reason)


def test_victims_are_those_that_free_what_is_missing():
    """There are GPUs to spare; what is missing is CPU, and the one that has it goes."""
    rules = Preempt(within_queue=WithinQueue.LOWER)
    box = Sandbox([(8, "")], [queue("a", 8, 8, preempt=rules)], FIT)
    box.submit("little", job("a", "1", gpus=1))
    box.submit("much", job("a", "6", gpus=1))
    box.settle()
    box.submit("urgent", job("a", "5", gpus=1, priority=5))
    decisions = box.look()
    assert [d.job for d in decisions if isinstance(d, Evict)] == ["much"]
    assert [d.job for d in decisions if isinstance(d, Claim)] == ["urgent"]


def test_borrowed_cpu_is_taken_back():
    rules = Preempt(reclaim=Reclaim.ANY)
    queues = [
        Queue("lab"),
        queue("a", 4, 4, parent="lab", preempt=rules),
        queue("b", 4, 4, parent="lab"),
    ]
    box = Sandbox([(8, "")], queues, FIT)
    box.submit("b1", job("b", "4", gpus=4))
    box.submit("b2", job("b", "3", gpus=1))
    box.settle()
    box.submit("a1", job("a", "4", gpus=4))
    box.settle()
    assert box.world.jobs["a1"].attempt is not None
    assert box.evictions == 1


@pytest.mark.parametrize("model", ["progressive_filling", "quota_fair"])
def test_the_dominant_resource_decides_which_job_is_next(model):
    """One queue wants much CPU for each GPU, the other little: neither gets more than half of what
    it wants most. (As in the paper: 9 CPUs and 18 of memory, tasks of 1 and 4, and of 3 and 1.)
    """
    queues = [
        Queue("lab"),
        queue("cpu-hungry", 0, 0, parent="lab"),
        queue("gpu-hungry", 0, 0, parent="lab"),
        queue("pool", 18, 9, parent="lab"),
    ]
    box = Sandbox([(18, "")], queues, replace(FIT, model=model))
    for number in range(10):
        box.submit(f"c{number}", job("cpu-hungry", "3", gpus=1))
        box.submit(f"g{number}", job("gpu-hungry", "1", gpus=4))
    started = starts(box) if model == "quota_fair" else starts(box)[:5]
    counts = {kind: sum(name.startswith(kind) for name in started) for kind in "cg"}
    assert counts == {"c": 2, "g": 3}


small = st.integers(0, 6)


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 4), st.integers(1, 3), st.integers(0, 2)), min_size=1, max_size=8),
    small,
    small,
    st.none() | small,
    st.booleans(),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_no_quota_of_any_resource_is_exceeded_and_passes_come_to_rest(jobs, a, b, borrow, evicts):
    rules = Preempt(within_queue=WithinQueue.LOWER, reclaim=Reclaim.ANY) if evicts else None
    queues = [
        Queue("lab"),
        queue("a", 6, a, parent="lab", borrow_cpu=borrow, preempt=rules),
        queue("b", 6, b, parent="lab", preempt=rules),
    ]
    box = Sandbox([(8, ""), (4, "")], queues, FIT)
    for number, (name, cpu, gpus, priority) in enumerate(jobs):
        box.submit(f"j{number}", job(name, str(cpu), gpus=gpus, priority=priority))
        box.settle()
        tree = Snapshot(box.world).tree(RESOURCE + "cpu")
        root = tree.branches["lab"]
        assert root.used <= root.subtree
        branch = tree.branches["a"]
        assert borrow is None or branch.used <= branch.subtree + borrow * 1_000
