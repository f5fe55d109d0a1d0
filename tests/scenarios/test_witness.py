"""The witness itself: it notices each broken promise, and nothing where none is broken."""

import pytest

from controlplane.model import commands as c
from controlplane.model import events as e
from controlplane.model.cluster import NodeInfo, Slot
from controlplane.model.failures import Cause, Restart
from controlplane.model.policy import Policy, Queue
from controlplane.model.reasons import FailureReason, WaitReason
from controlplane.model.spec import JobSpec, Role, Scheduling, TopologyAsk
from tests.controlplane.specification import on, spec
from tests.scenarios.witness import Witness


class Log:
    """Events one after the other, each as a step of its own unless they come together."""

    def __init__(self, *past: e.Event) -> None:
        self.witness = Witness()
        self.position = 0
        for event in past:
            self.add(event)

    def add(self, *events: e.Event, at: float = 0.0, cause: str = "") -> "Log":
        batch = []
        for event in events:
            self.position += 1
            batch.append(e.Recorded(self.position, at, event, cause))
        self.witness.see(batch)
        return self

    def breaks(self, promise: str, *events: e.Event, at: float = 0.0) -> None:
        with pytest.raises(AssertionError, match=promise):
            self.add(*events, at=at)


def nodes(*gpus: int) -> list[e.NodeReported]:
    return [
        e.NodeReported(f"n{i}", NodeInfo(f"n{i}", count, rack=f"r{i}"))
        for i, count in enumerate(gpus)
    ]


def submitted(job: str, of: JobSpec) -> e.JobSubmitted:
    return e.JobSubmitted(job, "default", job, of)


def single(**changes: object) -> JobSpec:
    return spec(workers=1, gpus=1, **changes)


STRICT = e.PolicySet(Policy(discipline="fifo"))


def test_a_device_with_two_owners():
    log = Log(*nodes(2), submitted("a", single()), submitted("b", single()))
    log.add(e.GangPlaced("a", 1, on(("n0", (0,)))))
    log.breaks("given away more than once", e.GangPlaced("b", 1, on(("n0", (0,)))))


def test_a_shared_device_beyond_its_whole():
    share = spec(roles=(Role(name="Worker", gpu_share=600),))
    log = Log(*nodes(2), submitted("a", share), submitted("b", share))
    log.add(e.GangPlaced("a", 1, on(("n0", (0,))), (600,)))
    log.breaks("given away more than once", e.GangPlaced("b", 1, on(("n0", (0,))), (600,)))


def test_devices_that_are_given_back_without_a_report():
    log = Log(*nodes(2), submitted("a", single()), e.GangPlaced("a", 1, on(("n0", (0,)))))
    log.breaks("nothing reported", e.RanksGone("a", 1, (0,)))
    log.witness.see_report(c.ReportRanks(job="a", attempt=1, gone=(0,)))
    log.add(e.RanksGone("a", 1, (0,)))


def test_a_gang_that_is_not_whole():
    log = Log(*nodes(2), submitted("a", spec(workers=2, gpus=1)))
    log.breaks("1 ranks of 2", e.GangPlaced("a", 1, on(("n0", (0,)))))


def test_a_gang_on_a_node_that_takes_no_work():
    log = Log(*nodes(2), submitted("a", single()), e.NodeCordoned("n0"))
    log.breaks("takes no work", e.GangPlaced("a", 1, on(("n0", (0,)))))


def test_ranks_that_are_not_near_each_other():
    asks = Scheduling(topology=TopologyAsk(required="rack"))
    log = Log(*nodes(1, 1), submitted("a", spec(workers=2, gpus=1, scheduling=asks)))
    log.breaks("asks for one rack", e.GangPlaced("a", 1, on(("n0", (0,)), ("n1", (0,)))))


def test_a_gang_in_a_domain_that_another_has_for_itself():
    alone = Scheduling(topology=TopologyAsk(required="rack", exclusive=True))
    log = Log(*nodes(2), submitted("a", single(scheduling=alone)), submitted("b", single()))
    log.add(e.GangPlaced("a", 1, on(("n0", (0,)))))
    log.breaks("are both in", e.GangPlaced("b", 1, on(("n0", (1,)))))


def test_a_queue_above_a_ceiling_of_its_parent():
    log = Log(*nodes(2), e.QueueDefined(Queue("lab", gpus_max=1)))
    log.add(e.QueueDefined(Queue("team", parent="lab", nominal=8)))
    log.add(submitted("a", single(queue="team")), submitted("b", single(queue="team")))
    log.add(e.GangPlaced("a", 1, on(("n0", (0,)))))
    log.breaks("takes lab to 2000 of gpus_max 1000", e.GangPlaced("b", 1, on(("n0", (1,)))))


def test_a_queue_that_borrows_more_than_it_may():
    log = Log(*nodes(4), e.QueueDefined(Queue("lab", nominal=4)))
    log.add(e.QueueDefined(Queue("team", parent="lab", nominal=1, borrow_max=0)))
    log.add(submitted("a", single(queue="team")), submitted("b", single(queue="team")))
    log.add(e.GangPlaced("a", 1, on(("n0", (0,)))))
    log.breaks("takes team to 2000 of 1000", e.GangPlaced("b", 1, on(("n0", (1,)))))


def test_a_queue_that_takes_what_another_does_not_lend():
    log = Log(*nodes(4), e.QueueDefined(Queue("lab")))
    log.add(e.QueueDefined(Queue("keeps", parent="lab", nominal=3, lend_max=0)))
    log.add(e.QueueDefined(Queue("team", parent="lab", nominal=1)))
    log.add(submitted("a", single(queue="team")), submitted("b", single(queue="team")))
    log.add(e.GangPlaced("a", 1, on(("n0", (0,)))))
    log.breaks("takes lab to 2000 of 1000", e.GangPlaced("b", 1, on(("n0", (1,)))))


def test_a_younger_job_that_starts_before_an_older_one_in_a_strict_line():
    log = Log(STRICT, *nodes(2), submitted("a", single()), submitted("b", single()))
    log.breaks("a stands ahead of it", e.GangPlaced("b", 1, on(("n0", (0,)))))


def test_a_gang_that_grows_while_another_waits():
    elastic = spec(roles=(Role(name="Worker", replicas=2, gpus=1, min_replicas=1),))
    log = Log(*nodes(4), submitted("a", elastic), e.GangPlaced("a", 1, on(("n0", (0,)))))
    log.add(submitted("b", single()))
    log.breaks("of its queue still wait", e.RanksAdded("a", 1, 1, on(("n0", (1,)))))


def test_a_device_that_is_idle_while_a_job_that_may_go_past_waits():
    log = Log(e.PolicySet(Policy(discipline="fit")), *nodes(1))
    log.breaks("waits for 1 GPUs", submitted("a", single()))


def evicted(job: str) -> e.JobRestarting:
    return e.JobRestarting(job, Restart(0.0, 1, Cause.PREEMPTION, False), 0, 0.0)


def test_an_eviction_where_none_is_allowed():
    log = Log(*nodes(1), submitted("a", single()), e.GangPlaced("a", 1, on(("n0", (0,)))))
    log.breaks("which the policy forbids", evicted("a"))


def test_an_eviction_of_a_gang_that_is_safe():
    log = Log(*nodes(1), submitted("a", single()))
    log.add(e.GangPlaced("a", 1, on(("n0", (0,))), safe_until=60.0))
    log.breaks("is safe until 60", evicted("a"), at=59.0)


def test_a_group_that_starts_without_one_of_its_gangs():
    asks = Scheduling(group="g", group_size=2)
    log = Log(*nodes(2), submitted("a", single(scheduling=asks)))
    log.add(submitted("b", single(scheduling=asks)))
    log.breaks("was started without", e.GangPlaced("a", 1, on(("n0", (0,)))))


def test_a_job_that_ends_twice():
    log = Log(*nodes(1), submitted("a", single()), e.JobCancelled("a"))
    log.breaks("ended twice", e.JobFailed("a", FailureReason.CANNOT_RUN))


def test_a_job_that_waits_and_still_holds_devices():
    log = Log(*nodes(1), submitted("a", single()), e.GangPlaced("a", 1, (Slot("n0", (0,)),)))
    log.breaks("holds devices of its last attempt", e.JobRequeued("a"))


def limited(most: int, cycle_s: float = 10.0) -> e.PolicySet:
    return e.PolicySet(Policy(starts_per_cycle_max=most, cycle_s=cycle_s))


def placed(job: str, device: int) -> e.GangPlaced:
    return e.GangPlaced(job, 1, on(("n0", (device,))))


def test_more_starts_than_a_cycle_may_have():
    names = ("a", "b", "c")
    log = Log(limited(2), *nodes(4), *(submitted(name, single()) for name in names))
    log.add(placed("a", 0)).add(placed("b", 1), at=5.0)
    log.breaks("at most 2 may", placed("c", 2), at=9.9)


def test_a_start_in_the_next_cycle():
    log = Log(limited(1), *nodes(4), submitted("a", single()), submitted("b", single()))
    log.add(placed("a", 0)).add(placed("b", 1), at=10.0)


def test_a_group_that_is_larger_than_the_limit():
    of = single(scheduling=Scheduling(group="g", group_size=2))
    log = Log(limited(1), *nodes(4), submitted("a", of), submitted("b", of))
    log.add(placed("a", 0), placed("b", 1))
    log.add(submitted("c", single()))
    log.breaks("at most 1 may", placed("c", 2), at=1.0)


def test_more_evictions_than_gangs_that_may_start():
    log = Log(limited(1), *nodes(4), submitted("a", single()), submitted("b", single()))
    log.add(e.GangWaiting("a", WaitReason.WAITING_FOR_VICTIMS))
    log.breaks("at most 1 may", e.GangWaiting("b", WaitReason.WAITING_FOR_VICTIMS))
