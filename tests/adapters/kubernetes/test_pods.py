"""The pod of a rank, field by field."""

from typing import Any

import pytest

from adapters.kubernetes.reconcile.binding import BINDINGS
from adapters.kubernetes.render.pods import variables
from adapters.kubernetes.render.site import Binding, Site, owner
from controlplane.kinds.kind import Files, Kind, RankEnvironment
from controlplane.model import events as e
from controlplane.model.cluster import Slot
from controlplane.model.spec import RestartRule, Role
from tests.adapters.kubernetes.jobs import PLAIN, job, rendering, role, spec
from tests.gangs import on, queued, then


def kind_with(environment: RankEnvironment, files: tuple[Files, ...] = ()) -> Kind:
    return PLAIN._replace(
        environments=lambda gang: lambda rank: environment, files=lambda gang, running: files
    )


def pod(environment: RankEnvironment, role_: Role | None = None, **more: Any) -> dict[str, Any]:
    from adapters.kubernetes.render.objects import Rendering

    files = more.pop("files", ())
    kind = kind_with(environment, files)
    return Rendering(job(spec(role_ or role(replicas=1))), kind, **more).pod(0)


def env(container: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(each["name"], each.get("value", each.get("valueFrom"))) for each in container["env"]]


def test_ours_win_over_the_persons_and_each_name_stands_once() -> None:
    container = {"env": [{"name": "RANK", "value": "7"}, {"name": "LR", "value": "0.1"}]}
    merged = variables(container, RankEnvironment(name="p", env={"RANK": "0"}), Binding())
    assert env({"env": merged}) == [("LR", "0.1"), ("RANK", "0")]


def test_a_default_applies_only_where_the_user_sets_nothing() -> None:
    container = {"env": [{"name": "BOOTSTRAP", "value": "ssh"}]}
    environment = RankEnvironment(name="p", env_if_unset={"BOOTSTRAP": "rsh", "AGENT": "kubexec"})
    assert env({"env": variables(container, environment, Binding())}) == [
        ("BOOTSTRAP", "ssh"),
        ("AGENT", "kubexec"),
    ]


def test_what_refers_to_a_field_of_the_pod_can_be_referred_to() -> None:
    environment = RankEnvironment(
        name="p", env={"MASTER": "$(IP):1"}, env_from_pod={"IP": "status.podIP"}
    )
    names = [each["name"] for each in variables({}, environment, Binding())]
    assert names == ["IP", "MASTER"]


def test_only_the_main_container_gets_the_environment_if_the_kind_limits_it() -> None:
    environment = RankEnvironment(name="p", env={"TF_CONFIG": "{}"}, all_containers=False)
    speaker, sidecar = pod(environment)["spec"]["containers"]
    assert env(speaker) == [("TF_CONFIG", "{}")]
    assert "env" not in sidecar


def test_a_command_is_ours_only_if_the_person_gave_neither_command_nor_arguments() -> None:
    environment = RankEnvironment(name="p", command=("sshd",))
    assert pod(environment)["spec"]["containers"][0]["command"] == ["sshd"]
    with_args = role(
        replicas=1, template={"spec": {"containers": [{"name": "main", "args": ["x"]}]}}
    )
    assert "command" not in pod(environment, with_args)["spec"]["containers"][0]


def test_our_labels_win_and_the_template_keeps_its_own() -> None:
    template = {
        "metadata": {"labels": {"team": "a", "rank": "9"}, "annotations": {"n": "1"}},
        "spec": {"containers": [{"name": "main"}]},
    }
    metadata = pod(
        RankEnvironment(name="p", labels={"rank": "0"}), role(replicas=1, template=template)
    )["metadata"]
    assert metadata["labels"] == {
        "team": "a",
        "rank": "0",
        "muster.dev/job-id": "job-1",
        "muster.dev/attempt": "1",
        "muster.dev/rank": "0",
        "muster.dev/incarnation": "0",
    }
    assert metadata["annotations"] == {"n": "1"}


def test_files_become_volumes_once_and_mounts_at_their_paths() -> None:
    files = (
        Files(name="j-config", contents={"a.sh": "x", "b": "y"}, modes={"a.sh": 0o555}, volume="c"),
        Files(name="j-ssh", ssh_keys=True, mode=0o600),
    )
    environment = RankEnvironment(name="p", mounts={"/etc/mpi": "j-config", "/root/.ssh": "j-ssh"})
    spec_ = pod(environment, files=files)["spec"]
    mounts = spec_["containers"][0]["volumeMounts"]
    assert mounts == [
        {"name": "c", "mountPath": "/etc/mpi"},
        {"name": "j-ssh", "mountPath": "/root/.ssh"},
    ]
    config, secret = spec_["volumes"]
    assert config["configMap"]["items"] == [
        {"key": "a.sh", "path": "a.sh", "mode": 0o555},
        {"key": "b", "path": "b"},
    ]
    assert secret["secret"]["secretName"] == "j-ssh"
    assert secret["secret"]["defaultMode"] == 0o600
    assert [item["path"] for item in secret["secret"]["items"]] == [
        "id_rsa",
        "id_rsa.pub",
        "authorized_keys",
    ]


def test_the_kubelet_restarts_containers_only_where_single_ranks_restart() -> None:
    for rule, theirs in (("OnFailure", "OnFailure"), ("ExitCode", "Never"), ("Always", "Always")):
        alone = spec(role(replicas=1, restart=RestartRule(rule)))
        assert rendering(job(alone)).pod(0)["spec"]["restartPolicy"] == theirs
        together = type(alone)(roles=alone.roles, done_when=alone.done_when)
        assert rendering(job(together)).pod(0)["spec"]["restartPolicy"] == "Never"


def test_a_rank_that_waits_for_a_host_has_an_init_container_behind_the_persons() -> None:
    template = {"spec": {"containers": [{"name": "main"}], "initContainers": [{"name": "mine"}]}}
    environment = RankEnvironment(
        name="p", waits_for_host="j-master-0", init_containers=({"name": "kubectl"},)
    )
    first = pod(environment, role(replicas=1, template=template))["spec"]["initContainers"]
    assert [each["name"] for each in first] == ["mine", "kubectl", "init-main"]
    assert "j-master-0" in first[2]["command"][2]


def test_a_site_binds_pods_and_shows_them_their_devices() -> None:
    def bind(slot: Slot) -> Binding:
        return Binding(node=slot.node, env={"NVIDIA_VISIBLE_DEVICES": "0,1"})

    template = {"spec": {"containers": [{"name": "main"}], "schedulerName": "other"}}
    site = Site(scheduler="muster", bind=bind)
    rendered = rendering(job(spec(role(replicas=1, template=template))), site)
    pod_spec = rendered.pod(0)["spec"]
    assert (pod_spec["nodeName"], pod_spec["schedulerName"]) == ("node-0", "muster")
    assert ("NVIDIA_VISIBLE_DEVICES", "0,1") in env(pod_spec["containers"][0])
    assert [notice.reason for notice in rendered.notices()] == ["SetPodTemplateSchedulerName"]


GPU_LIMITS = {"limits": {"nvidia.com/gpu": 1, "cpu": "2"}, "requests": {"nvidia.com/gpu": 1}}


@pytest.mark.parametrize("devices", ["kubelet", "muster"])
def test_a_pod_that_shares_a_device_sees_it_and_asks_for_no_whole_one(devices: str) -> None:
    mine = {"name": "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "value": "60"}
    container = {"name": "main", "resources": GPU_LIMITS, "env": [mine]}
    quarter = role("Quarter", 1, gpu_share=250, template={"spec": {"containers": [container]}})
    memory = role("Memory", 1, gpu_memory_mib=8192)
    whole = role("Whole", 1, gpus=1)
    asked = spec(quarter, memory, whole)
    place = e.GangPlaced("job-1", 1, on("n0:3", "n1:0", "n1:1"), (250, 512, 0))
    site = Site(scheduler="muster", bind=BINDINGS[devices])
    made = rendering(then(queued(asked), 0.0, place), site)

    shares, by_memory, not_shared = (made.pod(rank) for rank in range(3))
    (first,) = shares["spec"]["containers"]
    assert shares["metadata"]["annotations"]["muster.dev/gpu-share"] == "250"
    assert {"key": "nvidia.com/gpu", "operator": "Exists"} in shares["spec"]["tolerations"]
    assert "tolerations" not in not_shared["spec"]
    assert first["resources"] == {"limits": {"cpu": "2"}, "requests": {}}
    assert dict(env(first)) == {
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "60",
        "RANK": "0",
        "NVIDIA_VISIBLE_DEVICES": "3",
        "MUSTER_GPU_SHARE": "0.25",
    }
    assert dict(env(by_memory["spec"]["containers"][0])) == {
        "RANK": "1",
        "NVIDIA_VISIBLE_DEVICES": "0",
        "MUSTER_GPU_SHARE": "0.512",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "51.2",
        "MUSTER_GPU_MEMORY_MIB": "8192",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=8192M",
    }
    assert "MUSTER_GPU_SHARE" not in dict(env(not_shared["spec"]["containers"][0]))


def test_where_another_scheduler_places_pods_sharing_is_left_to_it_with_a_warning() -> None:
    shared = spec(role("Quarter", 1, gpu_share=250))
    place = e.GangPlaced("job-1", 1, on("n0:3"), (250,))
    made = rendering(then(queued(shared), 0.0, place), Site())
    assert "NVIDIA_VISIBLE_DEVICES" not in dict(env(made.pod(0)["spec"]["containers"][0]))
    assert [notice.reason for notice in made.notices()] == ["GPUSharingLeftToScheduler"]


@pytest.mark.parametrize(
    ("of", "own", "used", "warned"),
    [
        ({}, "", "volcano", False),
        ({}, "volcano", "volcano", False),
        ({}, "mine", "mine", True),
        ({"kind": "MPIJob", "version": "kubeflow.org/v2beta1"}, "mine", "volcano", True),
    ],
)
def test_a_gang_scheduler_leaves_a_template_its_own_scheduler(
    of: dict[str, str], own: str, used: str, warned: bool
) -> None:
    named = {"schedulerName": own} if own else {}
    template = {"spec": {"containers": [{"name": "main"}], **named}}
    rendered = rendering(job(spec(role(replicas=1, template=template), **of)), Site(gang="volcano"))
    assert rendered.pod(0)["spec"]["schedulerName"] == used
    notices = rendered.notices()
    assert [each.reason for each in notices] == ["SetPodTemplateSchedulerName"] * warned
    assert all(own in each.message and "volcano" in each.message for each in notices)


def test_everything_hangs_on_the_owner() -> None:
    tfjob = owner(version="kubeflow.org/v1", kind="TFJob", name="j", uid="u1")
    rendered = rendering(job(), owner=tfjob)
    for document in (rendered.pod(0), *rendered.services()):
        assert document["metadata"]["ownerReferences"] == [tfjob]


def test_a_role_without_a_template_gets_a_plain_one() -> None:
    plain = Role(
        name="Worker", replicas=1, image="i", command=("run",), args=("a",), env={"A": "1"}, gpus=2
    )
    (container,) = rendering(job(spec(plain))).pod(0)["spec"]["containers"]
    assert container["image"] == "i"
    assert (container["command"], container["args"]) == (["run"], ["a"])
    assert container["resources"] == {"limits": {"nvidia.com/gpu": 2}}
    assert ("A", "1") in env(container)


def test_rendering_changes_no_template() -> None:
    template = {"spec": {"containers": [{"name": "main", "env": []}], "volumes": []}}
    before = repr(template)
    pod(
        RankEnvironment(name="p", env={"A": "1"}, mounts={"/m": "f"}, dns_searches=("s",)),
        role(replicas=1, template=template),
        files=(Files(name="f"),),
    )
    assert repr(template) == before
