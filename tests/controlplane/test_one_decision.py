"""A job is in at most one decision of a pass, whichever route of the pass leads to it."""

import os
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from controlplane.disciplines.registry import DISCIPLINES
from controlplane.model.policy import Policy, Queue
from controlplane.model.spec import Scheduling
from controlplane.scheduling.decisions import SchedulingDecision, Start
from controlplane.scheduling.scheduling_pass import Pass
from controlplane.scheduling.snapshot import Snapshot
from tests.controlplane.scheduling_worlds import QUEUES, Sandbox, clusters, policies, specs, trees
from tests.controlplane.specification import spec

EXAMPLES = int(os.environ.get("MUSTER_EXAMPLES", "40"))


def decided(box: Sandbox) -> list[SchedulingDecision]:
    """One pass that also explains; each job is in one decision of it."""
    decisions = Pass(Snapshot(box.world), lambda job, code: True).run()
    jobs = Counter(decision.job for decision in decisions)
    assert [job for job, times in jobs.items() if times > 1] == [], decisions
    return decisions


def test_a_group_in_two_queues_starts_once_where_one_of_them_back_fills():
    easy = Queue("easy", discipline="easy")
    box = Sandbox([(8, ""), (8, "")], [easy, Queue("plain")], Policy())
    member = Scheduling(group="g", group_size=2, estimate_s=10.0)
    asks = Scheduling(estimate_s=1_000.0)
    box.submit("filler", spec(workers=1, gpus=4, queue="easy", scheduling=asks))
    box.one_pass()
    box.submit("head", spec(workers=2, gpus=8, queue="easy", scheduling=asks))
    box.submit("m1", spec(workers=1, gpus=2, queue="easy", scheduling=member))
    box.submit("m2", spec(workers=1, gpus=2, queue="plain", scheduling=member))
    starts = [d.job for d in decided(box) if isinstance(d, Start)]
    assert sorted(starts) == ["m1", "m2"]
    box.one_pass()
    assert decided(box)[0].job == "head"


# Small members and large heads: a head waits and leaves room for groups.
asked = st.tuples(
    st.sampled_from(QUEUES),
    st.sampled_from([1, 1, 2, 4, 16]),
    st.sampled_from([5.0, 500.0]),
    st.sampled_from(["", "", "g", "h"]),
)


@given(st.lists(st.sampled_from(DISCIPLINES.names), min_size=4, max_size=4),
       st.lists(asked, min_size=4, max_size=14), st.data())  # fmt: skip
@settings(max_examples=5 * EXAMPLES, deadline=None)
def test_no_job_of_a_group_is_in_two_decisions_of_a_pass(disciplines, jobs, data):
    queues = [Queue(name, discipline=d) for name, d in zip(QUEUES, disciplines, strict=True)]
    box = Sandbox([(8, ""), (8, "")], queues, Policy())
    for number, (queue, gpus, estimate_s, group) in enumerate(jobs):
        asks = Scheduling(estimate_s=estimate_s, group=group, group_size=2 if group else 0)
        ranks = (gpus + 7) // 8
        job = spec(workers=ranks, gpus=gpus // ranks, queue=queue, scheduling=asks)
        box.submit(f"j{number}", job)
        if data.draw(st.integers(0, 2)) == 0:
            look_and_go_on(box, data)
    look_and_go_on(box, data)


@given(clusters, trees(), policies(), st.lists(specs(), min_size=2, max_size=10), st.data())
@settings(max_examples=2 * EXAMPLES, deadline=None)
def test_no_job_is_in_two_decisions_of_a_pass(nodes, queues, policy, jobs, data):
    lines = st.none() | st.sampled_from(DISCIPLINES.names)
    box = Sandbox(nodes, [replace(q, discipline=data.draw(lines)) for q in queues], policy)
    for number, job in enumerate(jobs):
        box.submit(f"j{number}", job)
        if data.draw(st.booleans()):
            look_and_go_on(box, data)
    look_and_go_on(box, data)


def look_and_go_on(box: Sandbox, data) -> None:
    decided(box)
    box.one_pass()
    running = sorted(job for queue in QUEUES for job in box.world.devices.holders.get(queue, ()))
    if running and data.draw(st.booleans()):
        box.finish(data.draw(st.sampled_from(running)))
