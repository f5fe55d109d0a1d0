"""Jobs that could not start even if nothing ran: set aside, and taken back when that has changed."""

import pytest
from msgspec.structs import replace

from controlplane.decisions.autonomous import one_pass, review
from controlplane.disciplines.registry import DISCIPLINES
from controlplane.lifecycle.draft import Decision
from controlplane.model import commands as c
from controlplane.model import events as e
from controlplane.model.cluster import NodeInfo, Slot
from controlplane.model.obstacle import Remedy
from controlplane.model.phases import Phase
from controlplane.model.policy import Policy, Preempt, Queue, WithinQueue
from controlplane.model.reasons import LossReason
from controlplane.model.spec import DoneWhen, JobSpec, Role, Scheduling, TopologyAsk
from controlplane.queries.dry_run import plan
from controlplane.queries.queries import gpus_wanted, job_view, queue_view, why
from controlplane.scheduling.cache import SchedulerCache
from controlplane.scheduling.cluster_view import ClusterView
from controlplane.scheduling.explain.schedulability import changes
from tests.controlplane.specification import Given

STARTED = e.EngineStarted(1, "test")


def info(name: str, gpus: int = 4, **more: object) -> NodeInfo:
    return NodeInfo(name, gpus, **{"gpu_type": "V100", "gpu_memory_mib": 32_768, **more})


class Cluster(Given):
    """A surveyed cluster on which every command is followed by what an engine does of its own."""

    def __init__(self, *nodes: NodeInfo, policy: Policy | None = None, queues=()) -> None:
        super().__init__(STARTED)
        self.cache = SchedulerCache()
        if policy is not None:
            self.happened(e.PolicySet(policy))
        for queue in queues:
            self.happened(e.QueueDefined(queue))
        self.when(c.ReportCluster(up=nodes)).when(c.ReportSurveyed())

    def does(self, *commands: c.AnyCommand) -> "Cluster":
        self.when(*commands)
        decided = list(self.decided)
        for step in (review, one_pass):
            for each in step(self.world, self.now, self.cache):
                assert isinstance(each, Decision)
                self.happened(*each)
                decided += each
        self.decided = decided
        # Whatever hangs on the change was looked at.
        assert changes(ClusterView(self.world)) == []
        return self

    def submits(self, job: str, spec: JobSpec) -> "Cluster":
        return self.does(
            c.SubmitJob(id=f"cmd-{job}", job=job, namespace="default", name=job, spec=spec)
        )

    def phase(self, job: str) -> Phase:
        return self.world.jobs[job].phase

    def obstacle(self, job: str):
        return self.world.jobs[job].obstacle


def gang(workers: int = 1, gpus: int = 1, *, queue: str = "default", **asks: object) -> JobSpec:
    """`asks` go to the role if it has such a field, and else to the scheduler."""
    of_role = {k: asks.pop(k) for k in list(asks) if k in Role.__struct_fields__}
    minimum = asks.pop("min_available", None)
    role = Role(name="worker", replicas=workers, gpus=gpus, **of_role)
    return JobSpec(
        roles=(role,),
        done_when=DoneWhen("worker"),
        queue=queue,
        scheduling=Scheduling(**asks),
        min_available=minimum,
    )


def requesting(**resources: str) -> JobSpec:
    names = {"cpu": "cpu", "memory": "memory", "rdma": "rdma/hca"}
    asked = {names[name]: amount for name, amount in resources.items()}
    template = {"spec": {"containers": [{"name": "main", "resources": {"requests": asked}}]}}
    spec = gang()
    return replace(spec, roles=(replace(spec.roles[0], template=template),))


def elect(selector: dict[str, str]) -> JobSpec:
    spec = gang()
    template = {"spec": {"nodeSelector": selector}}
    return replace(spec, roles=(replace(spec.roles[0], template=template),))


TWO = (info("n1", rack="a", labels={"zone": "x"}), info("n2", rack="b", labels={"zone": "y"}))

# Each is accepted, since the cluster could satisfy it one day, and must not stop its queue.
HOPELESS = [
    ("no_matching_node", gang(selector={"zone": "z"})),
    ("no_matching_node", elect({"zone": "z"})),
    ("pinned_node_absent", gang(node="n9")),
    ("gpu_memory_exceeds_device", gang(gpus=0, gpu_memory_mib=40_000)),
    ("topology_unsatisfied", gang(2, 4, topology=TopologyAsk(required="rack"))),
    ("topology_unsatisfied", gang(2, 4, topology=TopologyAsk(required="node"))),
    ("topology_unsatisfied", gang(2, 4, topology=TopologyAsk(required="rack", exclusive=True))),
    ("topology_unsatisfied", gang(2, 4, topology=TopologyAsk(slice_level="rack", slice_size=2))),
    ("group_incomplete", gang(group="g", group_size=2)),
    ("gang_incomplete", gang(members_missing=1)),
    ("pinned_devices_unavailable", gang(2, 4, node="n1")),
    ("insufficient_resources", requesting(cpu="9", memory="1Gi")),
    ("queue_limit", gang(2, 4, queue="child")),
    ("insufficient_quota", gang(1, 3, queue="poor")),
]
QUEUES = (
    Queue("parent", gpus_max=4, nominal=8),
    Queue("child", parent="parent"),
    Queue("lab"),
    Queue("poor", parent="lab", nominal=1, borrow_max=1),
    Queue("rich", parent="lab", nominal=4),
)


@pytest.mark.parametrize(("code", "spec"), HOPELESS, ids=lambda each: str(each)[:30])
@pytest.mark.parametrize("discipline", DISCIPLINES.names)
def test_a_hopeless_job_is_set_aside_and_the_next_one_starts(code, spec, discipline):
    nodes = [replace(node, resources={"cpu": 8_000}) for node in TWO]
    if code == "insufficient_resources":
        # The cluster's largest node is large enough, and takes no work.
        nodes.append(info("big", 4, resources={"cpu": 64_000}, taints=("reserved",)))
    given = Cluster(*nodes, policy=Policy(discipline=discipline), queues=QUEUES)

    given.submits("hopeless", spec).submits("next", gang(queue=spec.queue))

    assert given.phase("hopeless") is Phase.UNSCHEDULABLE
    assert given.obstacle("hopeless").code == code
    assert given.phase("next") is Phase.STARTING
    answer = why(given.world, given.world.jobs["hopeless"])
    assert [reason.code for reason in answer.reasons] == [code]
    assert answer.reasons[0].helps
    assert answer.place_in_queue is None
    assert answer.planned_at is None
    view = job_view(given.world.jobs["hopeless"])
    assert (view.phase, view.reason) == (Phase.UNSCHEDULABLE, code)
    assert view.message
    assert queue_view(given.world, spec.queue).jobs_unschedulable == 1


@pytest.mark.parametrize(("code", "spec"), HOPELESS, ids=lambda each: str(each)[:30])
def test_a_plan_agrees_with_the_submission(code, spec):
    nodes = [replace(node, resources={"cpu": 8_000}) for node in TWO]
    if code == "insufficient_resources":
        nodes.append(info("big", 4, resources={"cpu": 64_000}, taints=("reserved",)))
    given = Cluster(*nodes, queues=QUEUES)
    planned = plan(
        given.world, c.SubmitJob(id="x", job="x", namespace="default", name="x", spec=spec)
    )
    assert not planned.starts_now
    assert "set aside" in planned.summary
    assert [reason.code for reason in planned.reasons] == [code]
    assert planned.place_in_queue is None


def test_the_decision_is_an_event_with_a_code_and_numbers():
    given = Cluster(*TWO).submits("wide", gang(2, 4, topology=TopologyAsk(required="rack")))
    event = given.decided[-1]
    assert isinstance(event, e.JobUnschedulable)
    assert (event.obstacle.needed, event.obstacle.available) == (2, 1)
    assert (event.obstacle.resource, event.obstacle.level) == ("ranks", "rack")


def test_a_job_returns_to_its_place_when_a_matching_node_comes():
    given = Cluster(*TWO)
    given.submits("first", gang(1, 4, selector={"zone": "z"}))
    for n in range(3):
        given.later(5).submits(f"small{n}", gang(1, 4, selector={"zone": "x"}))
    given.later(60).does(c.ReportNode(node=info("n3", labels={"zone": "z"})))
    kinds = [type(event) for event in given.decided]
    assert kinds == [e.NodeReported, e.JobSchedulable, e.GangPlaced]
    job = given.world.jobs["first"]
    assert (job.phase, job.queued_at, job.obstacle) == (Phase.STARTING, 1_000.0, None)


def test_a_requeued_job_stands_before_those_that_came_later():
    given = Cluster(*TWO).submits("busy", gang(2, 4))
    given.submits("old", gang(1, 4, selector={"zone": "z"}))
    given.later(10).submits("young", gang(1, 4))
    assert [place.job for place in given.world.waiting.keys("default")] == ["young"]
    given.does(c.ReportNode(node=replace(TWO[1], labels={"zone": "z"})))
    assert [place.job for place in given.world.waiting.keys("default")] == ["old", "young"]


@pytest.mark.parametrize(
    ("away", "back"),
    [
        (c.CordonNode(node="n2"), c.UncordonNode(node="n2")),
        (c.DrainNode(node="n2"), c.UncordonNode(node="n2")),
        (c.ReportNodeLost(node="n2"), c.ReportNode(node=TWO[1])),
        (c.ReportNodeRemoved(node="n2"), c.ReportNode(node=TWO[1])),
        (c.ReportNode(node=replace(TWO[1], unusable=(0,))), c.ReportNode(node=TWO[1])),
        (c.ReportNode(node=replace(TWO[1], taints=("sick",))), c.ReportNode(node=TWO[1])),
    ],
    ids=lambda command: type(command).__name__,
)
def test_a_node_that_goes_and_comes_back_decides(away, back):
    given = Cluster(*TWO).submits("busy", gang(1, 4, node="n1"))
    given.submits("whole", gang(2, 4)).submits("one", gang(1, 4))
    assert given.phase("whole") is Phase.QUEUED
    given.does(away)
    assert given.phase("whole") is Phase.UNSCHEDULABLE
    assert [place.job for place in given.world.waiting.keys("default")] == ["one"] or given.phase(
        "one"
    ) is Phase.STARTING
    given.does(back)
    assert given.phase("whole") is Phase.QUEUED


def test_a_node_that_is_down_is_what_would_help():
    given = Cluster(*TWO).does(c.ReportNodeLost(node="n2")).submits("whole", gang(2, 4))
    assert given.obstacle("whole").remedy is Remedy.NODES
    assert gpus_wanted(given.world) == 8
    given = Cluster(*TWO).submits("wide", gang(2, 4, topology=TopologyAsk(required="rack")))
    assert given.obstacle("wide").remedy is Remedy.OTHER
    assert gpus_wanted(given.world) == 0


def test_a_group_starts_when_its_last_gang_has_come():
    given = Cluster(*TWO).submits("one", gang(1, 4, group="g", group_size=2))
    assert given.obstacle("one").code == "group_incomplete"
    given.submits("two", gang(1, 4, group="g", group_size=2))
    kinds = [type(event) for event in given.decided]
    assert kinds == [e.JobSubmitted, e.JobSchedulable, e.GangPlaced, e.GangPlaced]


def test_a_group_whose_gang_is_cancelled_or_suspended_is_set_aside():
    given = Cluster(*TWO).submits("busy", gang(2, 4))
    for name in ("one", "two"):
        given.submits(name, gang(1, 4, group="g", group_size=2))
    given.submits("behind", gang(1, 4))
    assert given.phase("one") is given.phase("two") is Phase.QUEUED
    given.does(c.SuspendJob(namespace="default", name="two"))
    assert given.obstacle("one").code == "group_incomplete"
    assert [place.job for place in given.world.waiting.keys("default")] == ["behind"]
    given.does(c.ResumeJob(namespace="default", name="two"))
    given.when_time_comes().does()
    assert given.phase("one") is given.phase("two") is Phase.QUEUED


def test_one_gang_of_a_group_that_cannot_start_sets_all_aside():
    given = Cluster(*TWO)
    given.submits("one", gang(1, 4, group="g", group_size=2))
    given.submits("two", gang(1, 4, group="g", group_size=2, selector={"zone": "z"}))
    assert given.obstacle("one").code == "group_member_unschedulable"
    assert given.obstacle("two").code == "no_matching_node"
    assert given.submits("behind", gang()).phase("behind") is Phase.STARTING


def test_a_group_that_is_too_large_as_a_whole_is_set_aside():
    given = Cluster(*TWO)
    for name in ("one", "two", "three"):
        given.submits(name, gang(1, 4, group="g", group_size=3))
    assert {given.obstacle(name).code for name in ("one", "two", "three")} == {
        "group_exceeds_cluster"
    }
    given.does(c.ReportNode(node=info("n3")))
    assert given.phase("one") is Phase.STARTING


def test_a_quota_that_is_raised_lets_the_job_back_in_and_one_that_is_lowered_sets_it_aside():
    given = Cluster(*TWO, queues=[Queue("q", gpus_max=8)]).submits("busy", gang(2, 4))
    given.submits("large", gang(2, 4, queue="q"))
    assert given.phase("large") is Phase.QUEUED
    given.does(c.DefineQueue(queue=Queue("q", gpus_max=4)))
    assert (given.obstacle("large").code, given.obstacle("large").remedy) == (
        "queue_limit",
        Remedy.QUOTA,
    )
    given.does(c.DefineQueue(queue=Queue("q")))
    assert given.phase("large") is Phase.QUEUED


def test_what_cannot_be_evicted_and_exceeds_its_quota_is_set_aside():
    policy = Policy(model="deserved_plus_weight")
    given = Cluster(*TWO, policy=policy, queues=[Queue("q", nominal=2)])
    given.submits("fixed", gang(1, 4, queue="q", preemptible=False))
    assert given.obstacle("fixed").code == "non_preemptible_over_quota"
    assert given.submits("other", gang(1, 4, queue="q")).phase("other") is Phase.STARTING


def test_a_level_that_the_policy_loses_sets_aside_and_gives_back():
    policy = Policy(levels=("rack",))
    given = Cluster(*TWO, policy=policy).submits("busy", gang(2, 4))
    given.submits("near", gang(2, 2, topology=TopologyAsk(required="rack")))
    given.does(c.SetPolicy(policy=Policy(levels=("block",))))
    assert given.obstacle("near").code == "unknown_topology_level"
    given.does(c.SetPolicy(policy=policy))
    assert given.phase("near") is Phase.QUEUED


def test_a_job_that_is_scaled_down_is_looked_at_again():
    given = Cluster(*TWO).submits("wide", gang(2, 4, topology=TopologyAsk(required="rack")))
    given.does(c.ScaleJob(namespace="default", name="wide", role="worker", replicas=1))
    assert given.phase("wide") is Phase.STARTING


def test_a_job_set_aside_can_be_suspended_resumed_cancelled_and_deleted():
    given = Cluster(*TWO).submits("lost", gang(selector={"zone": "z"}))
    given.does(c.SuspendJob(namespace="default", name="lost"))
    assert (given.phase("lost"), given.obstacle("lost")) == (Phase.SUSPENDED, None)
    given.does(c.ResumeJob(namespace="default", name="lost")).when_time_comes().does()
    assert given.phase("lost") is Phase.UNSCHEDULABLE
    given.does(c.CancelJob(namespace="default", name="lost"))
    assert (given.phase("lost"), given.obstacle("lost")) == (Phase.CANCELLED, None)
    given.submits("gone", gang(selector={"zone": "z"}))
    given.does(c.DeleteJob(namespace="default", name="gone"))
    assert "gone" not in given.world.jobs


def test_an_unschedulable_job_evicts_nothing():
    policy = Policy(preempt=Preempt(within_queue=WithinQueue.LOWER))
    given = Cluster(*TWO, policy=policy).submits("busy", gang(2, 4))
    urgent = replace(gang(1, 4, selector={"zone": "z"}), priority=10)
    given.submits("urgent", urgent)
    assert [type(event) for event in given.decided] == [e.JobSubmitted, e.JobUnschedulable]


def test_a_head_that_waits_for_its_turn_keeps_the_others_behind_it():
    """Strict means strict among those that could start on the cluster as it is."""
    given = Cluster(*TWO).submits("busy", gang(1, 4, node="n1")).submits("whole", gang(2, 4))
    given.submits("small", gang(1, 1))
    assert given.phase("whole") is given.phase("small") is Phase.QUEUED


def test_an_elastic_gang_that_fits_with_fewer_ranks_is_not_hopeless():
    given = Cluster(*TWO).submits("elastic", gang(8, 4, min_available=2))
    assert given.phase("elastic") is Phase.STARTING
    assert len(given.world.jobs["elastic"].attempt.placement) == 2


def test_what_others_have_of_a_node_sets_nothing_aside():
    node = info("n1", resources={"cpu": 8_000}, used_by_others={"cpu": 7_000})
    given = Cluster(node).submits("cores", requesting(cpu="4"))
    assert given.phase("cores") is Phase.QUEUED


def test_running_gangs_and_what_they_keep_for_themselves_set_nothing_aside():
    alone = TopologyAsk(required="rack", exclusive=True)
    given = Cluster(*TWO).submits("one", gang(1, 1, topology=alone))
    given.submits("two", gang(1, 1, topology=alone)).submits("three", gang(1, 1, topology=alone))
    assert given.phase("three") is Phase.QUEUED


def test_before_the_cluster_is_known_nothing_is_refused_or_set_aside():
    given = Given(STARTED)
    for number, (_, spec) in enumerate(HOPELESS):
        if spec.queue == "default":
            given.when(
                c.SubmitJob(id=f"c{number}", job=f"j{number}", namespace="d", name=f"j{number}",
                            spec=spec)
            )  # fmt: skip
    given.when(c.SubmitJob(id="f", job="f", namespace="d", name="f", spec=gang(flavors=("B300",))))
    assert list(review(given.world, given.now, SchedulerCache())) == []


def test_a_cluster_without_nodes_refuses_nothing_and_starts_all_when_a_node_comes():
    given = Cluster().submits("train", gang(1, 4, flavors=("V100",)))
    assert given.obstacle("train").code == "no_node_takes_work"
    assert given.does(c.ReportNode(node=info("n1"))).phase("train") is Phase.STARTING


# ---------------------------------------------------------------- refused at the door


@pytest.mark.parametrize(
    ("code", "message", "spec"),
    [
        ("unknown_topology_level", "the levels are: rack, node",
         gang(topology=TopologyAsk(required="row"))),
        ("unknown_topology_level", "the levels are: rack, node",
         gang(topology=TopologyAsk(preferred="row"))),
        ("unknown_topology_level", "the levels are: rack, node",
         gang(topology=TopologyAsk(slice_level="row", slice_size=1))),
        ("unknown_flavor", "the flavours are: A100, V100", gang(flavors=("B300",))),
        ("unknown_flavor", "the flavours are: A100, V100", gang(flavors=("V100", "v100"))),
        ("no_such_device", "its devices are: 0 to 3", gang(node="n1", devices=(4,))),
        ("can_never_fit", "the largest node has 4", gang(1, 5)),
        ("can_never_fit", "the whole cluster has room for 2", gang(3, 4)),
    ],
)  # fmt: skip
def test_what_cannot_be_right_is_refused_with_what_there_is(code, message, spec):
    given = Cluster(*TWO, queues=[Queue("q", flavors=())])
    given.does(c.ReportNode(node=info("n3", 0, gpu_type="A100"))).does(c.ReportNodeLost(node="n3"))
    refusal = given.refuses(c.SubmitJob(id="x", job="x", namespace="d", name="x", spec=spec))
    assert refusal.code == code
    assert message in refusal.message


def test_a_gang_that_needs_a_node_that_is_not_rented_is_not_refused():
    given = Cluster(*TWO).does(c.ReportNodeLost(node="n2", reason=LossReason.GIVEN_BACK))
    given.submits("large", gang(2, 4))
    assert (given.phase("large"), gpus_wanted(given.world)) == (Phase.UNSCHEDULABLE, 8)


def test_a_pin_to_devices_that_are_sick_waits_for_them():
    given = Cluster(replace(TWO[0], unusable=(2,))).submits("p", gang(node="n1", devices=(2,)))
    assert given.obstacle("p").code == "pinned_devices_unavailable"
    given.does(c.ReportNode(node=TWO[0]))
    assert given.world.jobs["p"].attempt.placement == (Slot("n1", (2,)),)


# ---------------------------------------------------------------- autoscaled clusters

AUTOSCALED = Policy(autoscaled=True)


@pytest.mark.parametrize(
    ("code", "spec"),
    [
        ("rank_exceeds_node", gang(1, 5)),
        ("insufficient_capacity", gang(3, 4)),
        ("no_matching_node", gang(flavors=("B300",))),
        ("no_matching_node", gang(selector={"zone": "z"})),
        ("topology_unsatisfied", gang(2, 4, topology=TopologyAsk(required="rack"))),
    ],
)
def test_what_an_autoscaler_could_bring_is_set_aside_for_nodes(code, spec):
    given = Cluster(*TWO, policy=AUTOSCALED).submits("large", spec)
    assert given.phase("large") is Phase.UNSCHEDULABLE
    assert (given.obstacle("large").code, given.obstacle("large").remedy) == (code, Remedy.NODES)
    assert gpus_wanted(given.world) == spec.gpu_milli // 1_000
    # Nothing waits behind it.
    given.submits("small", gang())
    assert given.phase("small") is Phase.STARTING


def test_a_gang_starts_when_the_autoscaler_has_brought_its_nodes():
    given = Cluster(*TWO, policy=AUTOSCALED).submits("large", gang(3, 4))
    given.does(c.ReportNode(node=info("n3")))
    assert given.phase("large") is Phase.STARTING


def test_an_autoscaler_changes_no_ceiling_and_no_name():
    """What more nodes would not help is refused, or has another remedy, as elsewhere."""
    given = Cluster(*TWO, policy=AUTOSCALED, queues=[Queue("q", gpus_max=2)])
    refused = given.refuses(
        c.SubmitJob(id="x", job="x", namespace="d", name="x", spec=gang(3, 1, queue="q"))
    )
    assert refused.code == "can_never_fit"
    given.submits("pinned", gang(node="n9"))
    assert given.obstacle("pinned").remedy is Remedy.OTHER


@pytest.mark.parametrize(("gpus_max", "remedy"), [(None, Remedy.NODES), (8, Remedy.OTHER)])
def test_a_group_waits_for_nodes_unless_its_quota_is_too_small(gpus_max, remedy):
    given = Cluster(*TWO, policy=AUTOSCALED, queues=[Queue("q", gpus_max=gpus_max)])
    for name in ("a", "b", "c"):
        given.submits(name, gang(1, 4, queue="q", group="g", group_size=3))
    obstacle = given.obstacle("a")
    assert (obstacle.code, obstacle.remedy) == ("group_exceeds_cluster", remedy)


def test_without_the_autoscaler_the_remedy_is_another_one():
    given = Cluster(*TWO, policy=AUTOSCALED).submits("large", gang(3, 4))
    given.does(c.SetPolicy(id="p", policy=Policy()))
    assert given.obstacle("large").remedy is Remedy.OTHER
