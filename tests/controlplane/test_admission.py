"""What is refused at the door, with which code, and that nothing changes by it."""

import pytest
from msgspec.structs import replace

from adapters.simulated_cluster.workload import Workload, hints_of
from controlplane.model import commands as c
from controlplane.model import events as e
from controlplane.model.dns_names import is_common_label
from controlplane.model.policy import Queue
from controlplane.model.spec import DoneWhen, RestartPolicy, Role
from tests.controlplane.specification import Given, exited, node, running_job, spec, submit


@pytest.mark.parametrize("name", ["", "Train", "1st", "a_b", "a-", "a" * 64, "a.b", "ä", "a b"])
def test_names_that_kubernetes_would_refuse_are_refused(name):
    refusal = Given(node()).refuses(submit(name=name))

    assert (refusal.code, refusal.field) == ("invalid_job", "metadata.name")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"roles": ()}, "spec.roles"),
        ({"roles": (Role(name="Worker", replicas=-1),)}, "spec.roles[Worker].replicas"),
        ({"roles": (Role(name="Worker", gpus=-1),)}, "spec.roles[Worker].gpus"),
        ({"roles": (Role(name="Wor ker"),)}, "spec.roles[Wor ker]"),
        ({"roles": (Role(name="Worker"), Role(name="worker"))}, "spec.roles"),
        ({"roles": (Role(name="Worker", replicas=10_001),)}, "spec.roles"),
        ({"done_when": DoneWhen("Chief")}, "spec.done_when.role"),
        ({"ttl_s": -1.0}, "spec.ttl_s"),
        ({"active_deadline_s": float("inf")}, "spec.active_deadline_s"),
        ({"start_timeout_s": float("nan")}, "spec.start_timeout_s"),
        ({"image_timeout_s": -1.0}, "spec.image_timeout_s"),
        ({"min_available": -1}, "spec.min_available"),
        ({"restart": RestartPolicy(limit=-1)}, "spec.restart.limit"),
        ({"restart": RestartPolicy(limit=2**70)}, "spec.restart.limit"),
        ({"hints": hints_of(Workload(failing_attempts=2**70))}, "spec.workload.failing_attempts"),
        ({"restart": RestartPolicy(backoff_s_first=-1)}, "spec.restart.backoff_s_first"),
        ({"restart": RestartPolicy(backoff_s_max=1e12)}, "spec.restart.backoff_s_max"),
        ({"restart": RestartPolicy(healthy_after_s=-1)}, "spec.restart.healthy_after_s"),
        ({"hints": hints_of(Workload(duration_s=-1))}, "spec.workload.duration_s"),
        ({"priority": 10**10}, "spec.priority"),
        ({"hints": hints_of(Workload(exit_rank=5))}, "spec.workload.exit_rank"),
        ({"hints": hints_of(Workload(exit_code=300))}, "spec.workload.exit_code"),
    ],
)
def test_a_spec_that_makes_no_sense_is_refused_by_field(changes, field):
    refusal = Given(node()).refuses(submit(of=spec(**changes)))

    assert (refusal.code, refusal.field) == ("invalid_job", field)


@pytest.mark.parametrize("namespace", ["", "Research", "a b"])
def test_a_namespace_is_refused_as_often_as_it_is_asked_for(namespace):
    for _ in range(2):
        refusal = Given(node()).refuses(replace(submit(), namespace=namespace))

        assert (refusal.code, refusal.field) == ("invalid_job", "metadata.namespace")


def test_names_that_many_share_are_known_again_however_many_there_are():
    names = [f"n{number}" for number in range(3_000)]

    assert all(is_common_label(name) for name in names + names)
    assert not is_common_label("n-")


def test_a_rank_name_that_would_be_too_long_is_refused():
    refusal = Given(node()).refuses(submit(name="a" * 55))

    assert "longer than 63" in refusal.message


def test_a_name_is_taken_until_its_job_is_removed():
    refusal = running_job().refuses(submit(job="j2"))

    assert refusal.code == "name_taken"


def test_an_unknown_queue_is_refused_with_the_known_ones():
    refusal = Given(node()).refuses(submit(of=spec(queue="gold")))

    assert refusal.code == "unknown_queue"
    assert "default" in refusal.message


@pytest.mark.parametrize(
    ("of", "message"),
    [
        (spec(workers=1, gpus=9), "a rank needs 9 GPUs on one node; the largest node has 8"),
        (spec(workers=3, gpus=8), "3 ranks need 8 GPUs each; the whole cluster has room for 2"),
        (spec(workers=3, gpus=5), "3 ranks need 5 GPUs each; the whole cluster has room for 2"),
        (spec(workers=17, gpus=1), "17 ranks need 1 GPUs each; the whole cluster has room for 16"),
    ],
)
def test_a_gang_that_can_never_fit_is_refused_at_once_with_the_reason(of, message):
    surveyed = Given(node("n1"), node("n2"), e.ClusterSurveyed())
    refusal = surveyed.refuses(submit(of=of))

    assert (refusal.code, refusal.message) == ("can_never_fit", message)


def test_a_gang_larger_than_its_queue_may_hold_is_refused():
    given = Given(node(), e.QueueDefined(Queue("small", gpus_max=4)))

    assert given.refuses(submit(of=spec(queue="small"))).code == "can_never_fit"


def test_a_gang_that_fits_only_on_nodes_that_are_away_may_wait_for_them():
    away = (e.NodeLost("n2"), e.NodeCordoned("n1"))
    given = Given(node("n1"), node("n2"), e.ClusterSurveyed(), *away)

    given.when(submit(of=spec(workers=2, gpus=8))).then_kinds(e.JobSubmitted)


def test_until_every_node_is_known_no_gang_is_ruled_out():
    Given(node()).when(submit(of=spec(workers=100, gpus=8))).then_kinds(e.JobSubmitted)


@pytest.mark.parametrize("verb", [c.CancelJob, c.SuspendJob, c.ResumeJob])
def test_a_finished_job_can_only_be_deleted(verb):
    given = running_job().when(exited(0), exited(1))

    assert given.refuses(verb(namespace="default", name="train")).code == "already_finished"
    given.when(c.DeleteJob(namespace="default", name="train"))
    given.then_kinds(e.JobDeleteRequested, e.JobRemoved)


@pytest.mark.parametrize("verb", [c.CancelJob, c.SuspendJob, c.ResumeJob, c.DeleteJob])
def test_a_job_that_is_not_there_is_refused(verb):
    assert Given().refuses(verb(namespace="default", name="missing")).code == "no_such_job"


def test_only_a_suspended_job_can_be_resumed():
    refusal = running_job().refuses(c.ResumeJob(namespace="default", name="train"))

    assert refusal.code == "not_suspended"


@pytest.mark.parametrize(
    ("role", "replicas", "code"),
    [
        ("Chief", 1, "unknown_role"),
        ("Worker", -1, "invalid_job"),
        ("Worker", 0, "invalid_job"),
        ("Worker", 5, "can_never_fit"),
    ],
)
def test_a_scale_that_makes_no_sense_is_refused(role, replicas, code):
    command = c.ScaleJob(namespace="default", name="train", role=role, replicas=replicas)

    assert running_job().happened(e.ClusterSurveyed()).refuses(command).code == code


def test_queues_are_checked_too():
    for queue in (Queue("Not A Name"), Queue("q", gpus_max=-1), Queue("q", gpus_max=2**70)):
        assert Given().refuses(c.DefineQueue(queue=queue)).code == "invalid_queue"


def test_nodes_that_are_not_there_cannot_be_cordoned():
    assert Given().refuses(c.CordonNode(node="n1")).code == "no_such_node"


def test_cordoning_twice_changes_nothing():
    given = Given(node()).when(c.CordonNode(node="n1")).then(e.NodeCordoned("n1"))
    given.when(c.CordonNode(node="n1")).then()
    given.when(submit()).when_scheduled().then()
    given.when(c.UncordonNode(node="n1")).then(e.NodeUncordoned("n1"))
    given.when_scheduled().then_kinds(e.GangPlaced)
