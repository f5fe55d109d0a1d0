"""Manifests made from flags contain what was asked, and the control plane accepts them."""

from typing import Any

from cli.jobs.job_flags import Flags, Resources, mpijob, pytorchjob, tfjob
from controlplane.kinds.registry import read_manifest


def flags(**given: Any) -> Flags:
    asked: dict[str, Any] = {
        "name": "train",
        "namespace": "research",
        "image": "repo/train:1",
        "workers": 4,
        "command": ("python", "train.py"),
        "worker": Resources(gpus=2, cpu="4", memory="16Gi"),
    }
    return Flags(**{**asked, **given})


def test_a_tfjob_has_workers_and_servers() -> None:
    read = read_manifest(tfjob(flags(), ps=2, chief=True, evaluator=True))
    roles = {role.name: (role.replicas, role.gpus) for role in read.spec.roles}
    assert roles == {"Chief": (1, 2), "Worker": (4, 2), "PS": (2, 0), "Evaluator": (1, 0)}
    assert (read.namespace, read.name, read.spec.gpus) == ("research", "train", 10)


def test_the_workers_of_a_pytorchjob_include_its_master() -> None:
    read = read_manifest(pytorchjob(flags(workers=4)))
    assert [(role.name, role.replicas) for role in read.spec.roles] == [
        ("Master", 1),
        ("Worker", 3),
    ]
    assert [role.name for role in read_manifest(pytorchjob(flags(workers=1))).spec.roles] == [
        "Master"
    ]


def test_the_launcher_of_an_mpijob_runs_the_command() -> None:
    manifest = mpijob(flags())
    launcher, worker = read_manifest(manifest).spec.roles
    assert (launcher.command, worker.command) == (("python", "train.py"), ())
    assert (launcher.gpus, worker.gpus) == (0, 2)
    assert manifest["spec"]["slotsPerWorker"] == 2


def test_every_flag_finds_its_place() -> None:
    manifest = pytorchjob(
        flags(
            queue="nlp",
            priority="7",
            retry=3,
            running_timeout_s=3600,
            ttl_s=60,
            clean_task_policy="All",
            suspend=True,
            working_dir="/root",
            share_memory="2Gi",
            image_pull_policy="Always",
            env={"A": "1"},
            labels={"team": "nlp"},
            annotations={"note": "x"},
            selector={"zone": "eu"},
            data={"sets": "/data"},
        ),
        nproc_per_node="8",
    )
    read = read_manifest(manifest)
    spec, master = read.spec, read.spec.roles[0]
    assert (spec.queue, spec.priority, spec.restart.limit, read.suspended) == ("nlp", 7, 3, True)
    assert (spec.active_deadline_s, spec.ttl_s) == (3600, 60)
    assert (spec.labels, spec.annotations["note"]) == ({"team": "nlp"}, "x")
    pod = master.template["spec"]
    container = pod["containers"][0]
    assert (master.env, container["workingDir"]) == ({"A": "1"}, "/root")
    assert container["imagePullPolicy"] == "Always"
    assert [mount["mountPath"] for mount in container["volumeMounts"]] == ["/data", "/dev/shm"]
    assert [volume["name"] for volume in pod["volumes"]] == ["sets", "dshm"]
    assert pod["nodeSelector"] == {"zone": "eu"}


def test_a_priority_class_goes_where_kubernetes_has_it() -> None:
    manifest = tfjob(flags(priority="high"))
    assert manifest["spec"]["runPolicy"]["schedulingPolicy"] == {"priorityClass": "high"}
    assert read_manifest(manifest).spec.priority == 1_000
