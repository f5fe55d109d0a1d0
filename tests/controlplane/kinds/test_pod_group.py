"""The pod group of a job, for gang schedulers."""

import pytest

from controlplane.kinds.kind import GangContext
from controlplane.kinds.manifest.pod_group import pod_group
from controlplane.kinds.mpi import mpi
from controlplane.kinds.trainer import trainer
from controlplane.model.resources import pod_requests
from controlplane.model.spec import DoneWhen, JobSpec, Role
from tests.controlplane.kinds.reading import gang_of, manifest, read, replica


def mpijob(launcher, worker, annotations=None, policy=None, **spec):
    roles = {"Launcher": launcher, **({"Worker": worker} if worker else {})}
    if policy is not None:
        spec["runPolicy"] = {"schedulingPolicy": policy}
    document = manifest(
        "MPIJob",
        "kubeflow.org/v2beta1",
        {"mpiReplicaSpecs": roles, **spec},
        annotations=annotations or {},
    )
    return gang_of(read(mpi.KIND, document))


def asks(cpu, memory, replicas=None, priority=None):
    pod = {"priorityClassName": priority} if priority else {}
    return replica(replicas, requests={"cpu": cpu, "memory": memory}, pod=pod)


def test_an_mpijob_needs_all_its_pods_and_takes_the_launchers_priority():
    gang = mpijob(
        asks(1, "2Gi", priority="high"),
        asks(10, "20Gi", 2),
        annotations={"scheduling.volcano.sh/queue-name": "project-x"},
    )
    group = pod_group(gang)

    assert (group.name, group.min_member, group.queue) == ("job", 3, "project-x")
    assert group.priority_class == "high"
    assert group.min_resources == {"cpu": "21", "memory": "42Gi"}
    assert group.schedule_timeout_s == 0


def test_every_container_of_a_pod_counts():
    two = {
        "replicas": 2,
        "template": {
            "spec": {
                "containers": [
                    asks(10, "32Gi")["template"]["spec"]["containers"][0],
                    {**asks(50, "512Gi")["template"]["spec"]["containers"][0], "name": "other"},
                ]
            }
        },
    }

    assert pod_group(mpijob(asks(2, "1Gi"), two)).min_resources == {
        "cpu": "122",
        "memory": "1089Gi",
    }


def test_a_launcher_alone_is_a_gang_of_one():
    gang = mpijob(asks(1, "2Gi"), None, policy={"minAvailable": 1}, runLauncherAsWorker=True)

    group = pod_group(gang)
    assert (group.min_member, group.min_resources) == (1, {"cpu": "1", "memory": "2Gi"})


@pytest.mark.parametrize("launcher", ["non-existent", "high", "low"])
def test_of_fewer_pods_the_launcher_is_always_one(launcher):
    gang = mpijob(
        asks(2, "2Gi", priority=launcher),
        asks(5, "16Gi", 100, priority="middle"),
        policy={"minAvailable": 3},
    )

    group = pod_group(gang, {"high": 100, "middle": 50, "low": 10})
    assert group.min_resources == {"cpu": "12", "memory": "34Gi"}


@pytest.mark.parametrize(
    ("policy", "launcher", "worker", "expected"),
    [
        ({"priorityClass": "normal"}, "high", "low", "normal"),
        (None, "high", "low", "high"),
        (None, None, "low", "low"),
        (None, None, None, ""),
    ],
)
def test_whose_priority_class_a_gang_has(policy, launcher, worker, expected):
    gang = mpijob(asks(1, 1, priority=launcher), asks(1, 1, 1, priority=worker), policy=policy)

    assert pod_group(gang).priority_class == expected


def test_a_resource_is_requested_or_else_limited():
    pod = replica(
        requests={"cpu": 10, "memory": "16Gi"},
        limits={"example.com/gpu": 8, "cpu": 20, "memory": "32Gi"},
    )["template"]

    requests = {name: str(amount) for name, amount in pod_requests(pod).items()}
    assert requests == {"example.com/gpu": "8", "cpu": "10", "memory": "16Gi"}


def test_an_init_container_counts_while_it_needs_more_and_overhead_always_does():
    pod = replica(requests={"cpu": "1", "memory": "1Gi"})["template"]
    pod["spec"]["initContainers"] = [
        {"name": "sidecar", "restartPolicy": "Always", "resources": {"requests": {"cpu": "500m"}}},
        {"name": "fetch", "resources": {"requests": {"cpu": "250m", "memory": "8Gi"}}},
    ]
    pod["spec"]["overhead"] = {"cpu": "100m"}

    requests = {name: str(amount) for name, amount in pod_requests(pod).items()}
    assert requests == {"cpu": "1600m", "memory": "8Gi"}


def test_what_the_person_asks_for_is_asked_for():
    gang = mpijob(
        asks(1, "1Gi"),
        asks(1, "1Gi", 2),
        policy={
            "minAvailable": 2,
            "queue": "q2",
            "minResources": {"cpu": "100", "nvidia.com/gpu": 16},
            "scheduleTimeoutSeconds": 30,
        },
    )
    group = pod_group(gang)

    assert (group.min_member, group.queue, group.schedule_timeout_s) == (2, "q2", 30)
    assert group.min_resources == {"cpu": "100", "nvidia.com/gpu": "16"}


def test_a_queue_that_the_group_is_in_is_kept():
    gang = mpijob(asks(1, 1), asks(1, 1, 1), policy={"queue": "q2"})

    assert pod_group(gang, queue_now="q1").queue == "q1"


def test_a_gang_without_ranks_needs_nothing():
    gang = mpijob(asks(1, 1), asks(1, 1, 1), policy={"minAvailable": 0})

    assert (pod_group(gang).min_member, pod_group(gang).min_resources) == (0, None)


def test_roles_of_higher_priority_come_first_and_equal_ones_in_their_order():
    def role(name, replicas, cpu, priority=""):
        template = asks(cpu, 0, priority=priority)["template"]
        return Role(name=name, replicas=replicas, template=template)

    roles = (role("Worker", 4, 1), role("PS", 2, 10, "high"), role("Evaluator", 1, 100))
    spec = JobSpec(
        roles=roles,
        done_when=DoneWhen("Worker"),
        kind="TFJob",
        version="kubeflow.org/v1",
        min_available=3,
    )
    group = pod_group(GangContext("ns", "tf", spec), {"high": 5})

    assert group.min_resources == {"cpu": "21", "memory": "0"}
    assert (group.queue, group.schedule_timeout_s) == ("default", None)


def test_a_trainjob_needs_all_its_pods():
    job = manifest(
        "TrainJob",
        "trainer.kubeflow.org/v1alpha1",
        {
            "runtimeRef": {"name": "torch-distributed"},
            "trainer": {"numNodes": 3, "resourcesPerNode": {"limits": {"nvidia.com/gpu": 4}}},
        },
    )
    group = pod_group(gang_of(read(trainer.KIND, job)))

    assert (group.min_member, group.min_resources) == (3, {"nvidia.com/gpu": "12"})
    assert group.schedule_timeout_s == 60
