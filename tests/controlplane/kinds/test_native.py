"""The native form: the plainest of all, and the image of a JobSpec."""

import pytest

from controlplane.kinds.kind import GangContext
from controlplane.kinds.registry import kind_of, read_manifest, write_manifest
from controlplane.model.spec import CleanPods, DoneWhen
from tests.controlplane.kinds.manifests import environments_of, manifest, problems, template


def job(*roles, **spec):
    return manifest("Job", {"roles": list(roles), **spec}, "muster.dev/v1")


PLAIN = {"name": "worker", "replicas": 2, "gpus": 4, "image": "i", "command": ["run"]}


def test_plain_fields_suffice():
    spec = read_manifest(job(PLAIN)).spec

    (role,) = spec.roles
    assert (role.replicas, role.gpus, role.image, role.command) == (2, 4, "i", ("run",))
    assert spec.done_when == DoneWhen("worker")
    assert spec.version == "muster.dev/v1"


def test_a_template_is_equivalent_to_plain_fields():
    role = {"name": "worker", "container": "main", "template": template("main", gpus=2)}
    (read,) = read_manifest(job(role)).spec.roles

    assert (read.gpus, read.image, read.command) == (2, "example/train:1", ("python", "train.py"))


def test_a_template_may_not_be_contradicted():
    role = {"name": "worker", "template": template("main", gpus=2), "gpus": 2}
    assert read_manifest(job(role)).spec.roles[0].gpus == 2

    assert problems(job({**role, "gpus": 3})) == [("Forbidden", "spec.roles[worker].gpus")]


def test_every_field_of_a_job_can_be_set():
    worker = {
        **PLAIN,
        "min_replicas": 1,
        "max_replicas": 4,
        "expendable": True,
        "starts_after": "server",
        "env": {"A": "1"},
        "args": ["x"],
    }
    document = job(
        {"name": "server", "serves": True, "restart": "Always"},
        worker,
        done_when={"role": "worker", "any": True},
        clean="All",
        min_available=2,
        managed_by="kueue.x-k8s.io/multikueue",
        restart={"limit": None, "backoff_s_first": 1.0, "scope": "rank"},
        start_timeout_s=5.0,
        suspend=True,
        workload={"duration_s": 3.0},
    )
    read = read_manifest(document)

    assert read.suspended
    assert (read.spec.clean, read.spec.min_available) == (CleanPods.ALL, 2)
    assert read.spec.restart.limit is None
    assert read_manifest(write_manifest(read)) == read


def test_ranks_meet_below_the_jobs_own_service():
    document = job(PLAIN)
    rank = environments_of(document)(1)

    assert (rank.name, rank.hostname, rank.subdomain) == (
        "train-worker-1",
        "train-worker-1",
        "train",
    )
    assert rank.env_if_unset == {
        "MASTER_ADDR": "train-worker-0.train",
        "MASTER_PORT": "29500",
        "WORLD_SIZE": "2",
        "RANK": "1",
        "MUSTER_ROLE": "worker",
        "MUSTER_INDEX": "1",
    }
    read = read_manifest(document)
    (service,) = kind_of(read.spec).services(GangContext("team", "train", read.spec))
    assert service.name == "train"
    assert service.selector.items() <= rank.labels.items()


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (job(), ("Invalid", "spec.roles")),
        (job(PLAIN, done_when={"role": "boss"}), ("Invalid", "spec.done_when.role")),
        (job(PLAIN, managed_by="x"), ("NotSupported", "spec.managed_by")),
        (job(PLAIN, clean="Some"), ("NotSupported", "spec.clean")),
        (job(PLAIN, ttl_s=-1), ("Invalid", "spec.ttl_s")),
        (job({**PLAIN, "gpus": -1}), ("Invalid", "spec.roles[worker].gpus")),
        (job({**PLAIN, "name": "9"}), ("Invalid", "spec.roles[9]")),
        (job(PLAIN, framework={"kind": "CronJob"}), ("Invalid", "spec.framework")),
        (job(PLAIN, framework={"kind": "TFJob", "version": "v9"}), ("Invalid", "spec.framework")),
    ],
)
def test_what_is_refused(document, expected):
    assert expected in problems(document)
