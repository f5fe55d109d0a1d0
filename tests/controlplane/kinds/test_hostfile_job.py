"""HostfileJob: programs that want a list of hosts and a way to log in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.kinds.mpi.hostfile_job import KIND
from controlplane.model.spec import DoneWhen
from tests.controlplane.kinds.reading import (
    contents,
    environment_of,
    gang_of,
    manifest,
    problems,
    read,
    replica,
    written,
)


def side(**more):
    return {"template": replica(**more)["template"]}


def job(workers=2, gpus=4, launcher=None, **spec):
    spec = {"launcher": launcher or side(command=["mpiexec", "cntk"]), **spec}
    if workers is not None:
        spec["workers"] = {"replicas": workers, **side(limits={"nvidia.com/gpu": gpus})}
    return manifest("HostfileJob", "muster.dev/v1", spec, "cntk", "speech")


def test_hosts_come_from_the_replicas_and_slots_from_the_gpus():
    submission = read(KIND, job())

    assert contents(KIND, submission, "hostfile") == (
        "cntk-worker-0.cntk.speech.svc slots=4\ncntk-worker-1.cntk.speech.svc slots=4\n"
    )
    launcher = environment_of(KIND, submission, 0)
    assert launcher.env["MUSTER_HOSTFILE"] == "/etc/mpi/hostfile"
    assert launcher.env["MUSTER_PROCESSES"] == "8"
    assert launcher.env["OMPI_MCA_orte_default_hostfile"] == "/etc/mpi/hostfile"
    assert launcher.env["NVIDIA_VISIBLE_DEVICES"] == ""
    assert launcher.command == ()
    worker = environment_of(KIND, submission, 1)
    assert (worker.name, worker.hostname, worker.subdomain) == (
        "cntk-worker-0",
        "cntk-worker-0",
        "cntk",
    )
    assert worker.command == ("/usr/sbin/sshd", "-De")
    assert worker.mounts == {"/root/.ssh": "cntk-ssh", "/etc/mpi": "cntk-hosts"}


def test_the_launcher_decides_and_starts_last():
    spec = read(KIND, job()).spec

    assert spec.done_when == DoneWhen("Launcher")
    assert (spec.role("Launcher").starts_after, spec.role("Worker").is_server) == ("Worker", True)


def test_a_launcher_that_works_is_the_first_host():
    submission = read(KIND, job(1, launcher_works=True, slots=2))

    hosts = [line.split()[0] for line in contents(KIND, submission, "hostfile").splitlines()]
    assert hosts == ["cntk-launcher-0.cntk.speech.svc", "cntk-worker-0.cntk.speech.svc"]
    assert "NVIDIA_VISIBLE_DEVICES" not in environment_of(KIND, submission, 0).env


def test_a_launcher_that_works_needs_no_workers():
    launcher = side(limits={"nvidia.com/gpu": 2})
    submission = read(KIND, job(None, launcher=launcher, launcher_works=True))

    assert contents(KIND, submission, "hostfile") == "cntk-launcher-0.cntk.speech.svc slots=2\n"


@pytest.mark.parametrize(
    ("format", "lines"),
    [
        ("OpenMPI", ["{h} slots=2"]),
        ("Intel", ["{h}:2"]),
        ("MPICH", ["{h}:2"]),
        ("Plain", ["{h}", "{h}"]),
    ],
)
def test_the_file_is_where_and_how_the_program_wants_it(format, lines):
    at = {"path": "/opt/caffe/machines", "format": format}
    submission = read(KIND, job(1, slots=2, hostfile=at))

    host = "cntk-worker-0.cntk.speech.svc"
    expected = [line.format(h=host) for line in lines]
    assert contents(KIND, submission, "machines").splitlines() == expected
    assert environment_of(KIND, submission, 1).mounts["/opt/caffe"] == "cntk-hosts"


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (job(None), [("Required", "spec.workers")]),
        (job(0), [("Required", "spec.workers")]),
        (job(slots=0), [("Invalid", "spec.slots")]),
        (job(slots=-1), [("Invalid", "spec.slots")]),
        (job(hostfile={"format": "LAM"}), [("NotSupported", "spec.hostfile.format")]),
        (job(hostfile={"path": "hosts"}), [("Invalid", "spec.hostfile.path")]),
        (job(ssh_path="/"), [("Invalid", "spec.ssh_path")]),
        (job(ttl_s=-1), [("Invalid", "spec.ttl_s")]),
        (
            job(launcher=side(image="")),
            [("Required", "spec.launcher.template.spec.containers[0].image")],
        ),
    ],
)
def test_a_mistake_is_reported_with_its_sort_and_field(document, expected):
    assert problems(KIND, document) == expected


def test_keys_and_a_service_for_all():
    gang = gang_of(read(KIND, job()))

    assert [(each.name, each.ssh_keys) for each in KIND.files(gang, ())] == [
        ("cntk-hosts", False),
        ("cntk-ssh", True),
    ]
    assert [(each.name, each.before_ready) for each in KIND.services(gang)] == [("cntk", True)]


@given(
    workers=st.integers(1, 9),
    works=st.booleans(),
    slots=st.none() | st.integers(1, 9),
    suspend=st.booleans(),
    restart=st.sampled_from([{}, {"restart": {"limit": 2}}]),
)
def test_what_is_written_is_read_as_the_same_job(workers, works, slots, suspend, restart):
    document = job(workers, launcher_works=works, slots=slots, suspend=suspend, ttl_s=60, **restart)
    once = read(KIND, document)

    assert read(KIND, written(KIND, once)) == once
