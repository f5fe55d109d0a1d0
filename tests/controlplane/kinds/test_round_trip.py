"""Any manifest can be shown in the native form and read back; none can crash the reader."""

import contextlib

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controlplane.kinds.manifest import structure
from controlplane.kinds.manifest.validation import Findings
from controlplane.kinds.native import NAME
from controlplane.kinds.registry import (
    convert_manifest,
    forms,
    kind_of,
    read_manifest,
    write_manifest,
)
from controlplane.model.errors import Rejected
from controlplane.model.spec import JobSpec
from tests.controlplane.kinds.manifests import V1ALPHA1, manifest, replica, template, tfjob
from tests.controlplane.kinds.strategies import anything, manifests, nearly

# Whole manifests take a while to draw, on a busy machine too long for the health check.
patient = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def by_list(kind, field, container, *types):
    entries = [{field: sort, "template": template(container)} for sort in types]
    entries[-1]["replicas"] = 2
    return manifest(kind, {"replicaSpecs": entries}, V1ALPHA1)


def mpijob(version):
    if version == V1ALPHA1:
        return manifest("MPIJob", {"gpus": 16, "template": template("mpi")}, version)
    roles = {"Launcher": replica(1, name="mpi"), "Worker": replica(2, name="mpi")}
    own = {"v1alpha2": {"mpiDistribution": "intel_mpi"}, "v1": {"mainContainer": "mpi"}}
    return manifest("MPIJob", {"mpiReplicaSpecs": roles, **own.get(version[13:], {})}, version)


def by_map(kind, field, container, *roles):
    named = {role: replica(1 if role != "Worker" else 2, name=container) for role in roles}
    return lambda version: manifest(kind, {field: named}, version)


# A small manifest of each kind in a version of it.
AS_WRITTEN = {
    "TFJob": lambda version: (
        by_list("TFJob", "tfReplicaType", "tensorflow", "MASTER", "PS", "WORKER")
        if version == V1ALPHA1
        else by_map("TFJob", "tfReplicaSpecs", "tensorflow", "PS", "Worker")(version)
    ),
    "PyTorchJob": lambda version: (
        by_list("PyTorchJob", "replicaType", "pytorch", "MASTER", "WORKER")
        if version == V1ALPHA1
        else by_map("PyTorchJob", "pytorchReplicaSpecs", "pytorch", "Master", "Worker")(version)
    ),
    "MXJob": lambda version: (
        by_list("MXJob", "mxReplicaType", "mxnet", "SCHEDULER", "SERVER", "WORKER")
        if version == V1ALPHA1
        else by_map("MXJob", "mxReplicaSpecs", "mxnet", "Scheduler", "Server", "Worker")(version)
    ),
    "XGBoostJob": by_map("XGBoostJob", "xgbReplicaSpecs", "xgboost", "Master", "Worker"),
    "MPIJob": mpijob,
}


def through_json(document):
    return msgspec.json.decode(msgspec.json.encode(document))


@patient
@given(manifests)
def test_a_manifest_survives_the_native_form(document):
    job = read_manifest(document)
    defaulted = write_manifest(job)

    native = read_manifest(through_json(write_manifest(job, NAME)))

    assert msgspec.structs.replace(job, warnings=()) == native
    assert write_manifest(native) == defaulted


@patient
@given(manifests)
def test_a_manifest_with_its_defaults_means_the_same(document):
    job = read_manifest(document)

    again = read_manifest(through_json(write_manifest(job)))

    assert again == job


@patient
@given(manifests)
def test_every_manifest_converts_to_the_newest_version_of_its_kind(document):
    job = read_manifest(document)
    newest = kind_of(job.spec).forms[0].version

    converted, _ = convert_manifest(document, f"{job.spec.kind}/{newest}")

    again = read_manifest(through_json(converted))
    assert again.spec.version == newest
    running = {role.name: role.replicas for role in job.spec.roles if role.replicas}
    assert {r.name: r.replicas for r in again.spec.roles if r.replicas} == running
    assert again.spec.gpus == job.spec.gpus
    assert convert_manifest(converted, f"{job.spec.kind}/{newest}")[0] == converted


@pytest.mark.parametrize(
    ("kind", "version"),
    [
        (kind, version)
        for version, kind in sorted(forms())
        if kind in ("TFJob", "PyTorchJob", "MXJob", "MPIJob", "XGBoostJob")
    ],
)
def test_every_old_version_converts_to_the_newest(kind, version):
    """With warnings exactly where something is expressed otherwise, and never by a refusal."""
    document = AS_WRITTEN[kind](version)
    newest = kind_of(read_manifest(document).spec).forms[0].version

    converted, warnings = convert_manifest(document, f"{kind}/{newest}")

    assert converted["apiVersion"] == newest
    assert read_manifest(converted).spec.size == read_manifest(document).spec.size
    otherwise = "v1alpha1" in version and kind != "XGBoostJob"
    assert bool(warnings) == (otherwise or (kind == "MPIJob" and version != newest))


def test_an_mpijob_of_2018_wakes_its_workers_and_keeps_their_number():
    document = manifest("MPIJob", {"gpus": 16, "template": template("mpi")}, V1ALPHA1)
    converted, warnings = convert_manifest(document, "MPIJob/v2beta1")

    worker = converted["spec"]["mpiReplicaSpecs"]["Worker"]
    (container,) = worker["template"]["spec"]["containers"]
    assert "command" not in container
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 8}
    assert worker["replicas"] == 2
    launcher = converted["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]
    assert launcher["command"] == ["python", "train.py"]
    assert converted["spec"]["launcherCreationPolicy"] == "WaitForWorkersReady"
    assert converted["spec"]["slotsPerWorker"] == 8
    assert any("ssh" in warning for warning in warnings)


def test_an_mxjob_of_2018_warns_that_its_scheduler_decides_now():
    _, warnings = convert_manifest(AS_WRITTEN["MXJob"](V1ALPHA1), "MXJob/v1")

    assert any("Scheduler decides the job; before, the first Worker did" in w for w in warnings)


@patient
@given(manifests)
def test_a_job_survives_the_log(document):
    spec = read_manifest(document).spec

    assert msgspec.json.decode(msgspec.json.encode(spec), type=JobSpec) == spec


@patient
@given(manifests)
def test_null_is_the_same_as_not_given(document):
    with_nulls = {**document, "status": None, "spec": {**document["spec"]}}
    form = forms()[document["apiVersion"], document["kind"]]
    spec_type = form.manifest.__struct_fields__.index("spec")
    fields = msgspec.structs.fields(form.manifest)[spec_type].type.__struct_fields__
    for field in fields:
        with_nulls["spec"].setdefault(field, None)

    assert read_manifest(with_nulls) == read_manifest(document)


@patient
@given(st.sampled_from(sorted(forms())), anything, anything)
def test_random_documents_are_refused_politely(kind, metadata, spec):
    document = {"apiVersion": kind[0], "kind": kind[1], "metadata": metadata, "spec": spec}
    with contextlib.suppress(Rejected):
        read_manifest(document)


@patient
@given(nearly())
def test_documents_that_are_nearly_right_are_refused_politely(document):
    with contextlib.suppress(Rejected):
        read_manifest(document)


@patient
@given(nearly())
def test_the_walk_finds_a_misfit_exactly_where_msgspec_does(document):
    form = forms().get((str(document.get("apiVersion")), str(document.get("kind"))))
    if form is None:
        return
    findings = Findings()
    structure.fitted(document, form.manifest, findings)
    # What the walk does not see would be reported in msgspec's own words, without a path.
    assert all(problem.field for problem in findings.problems)
    try:
        msgspec.convert(document, form.manifest)
    except msgspec.ValidationError:
        return
    assert not findings.problems


def test_misfits_and_broken_rules_are_reported_together():
    document = tfjob(
        Worker={
            "replicas": "two",
            "restartPolicy": "Sometimes",
            "template": {"spec": {"containers": [{"name": "x", "image": 7, "imagee": "i"}]}},
        }
    )
    document["metadata"] = {"name": "00", "labels": ["a"]}
    document["spec"]["runPolicy"] = {"backoffLimit": -1, "suspend": "yes"}

    with pytest.raises(Rejected) as refusal:
        read_manifest(document)

    containers = "spec.tfReplicaSpecs[Worker].template.spec.containers"
    assert {(problem.sort, problem.field) for problem in refusal.value.problems} == {
        ("TypeInvalid", "metadata.labels"),
        ("TypeInvalid", "spec.runPolicy.suspend"),
        ("NotSupported", f"{containers}[0].imagee"),
        ("TypeInvalid", f"{containers}[0].image"),
        ("TypeInvalid", "spec.tfReplicaSpecs[Worker].replicas"),
        ("NotSupported", "spec.tfReplicaSpecs[Worker].restartPolicy"),
        ("Invalid", "spec.runPolicy.backoffLimit"),
        ("Invalid", "metadata.name"),
    }
    assert "did you mean image?" in refusal.value.message


def test_a_document_that_is_wrong_everywhere_has_a_short_answer():
    document = tfjob(Worker=replica())
    document["metadata"]["labels"] = {f"label-{n}": n for n in range(10_000)}

    with pytest.raises(Rejected) as refusal:
        read_manifest(document)

    assert len(refusal.value.problems) == 100


def test_what_another_version_cannot_express_is_not_silently_lost():
    entries = [
        {"tfReplicaType": name, "template": template("tensorflow")} for name in ("MASTER", "WORKER")
    ]
    job = read_manifest(manifest("TFJob", {"replicaSpecs": entries}, V1ALPHA1))

    with pytest.raises(Rejected) as refusal:
        write_manifest(job, "TFJob", "v1")

    assert refusal.value.code == "invalid_manifest" or refusal.value.code == "cannot_convert"


def test_a_newer_version_of_the_same_kind_can_be_asked_for():
    job = read_manifest(tfjob("kubeflow.org/v1beta1", Worker=replica(2)))

    document = write_manifest(job, "TFJob", "v1")

    assert document["apiVersion"] == "kubeflow.org/v1"
    assert document["spec"]["runPolicy"]["cleanPodPolicy"] == "Running"
    assert read_manifest(document).spec.roles == job.spec.roles


def test_a_kind_cannot_become_another():
    job = read_manifest(tfjob(Worker=replica()))

    with pytest.raises(Rejected) as refusal:
        write_manifest(job, "PyTorchJob")

    assert refusal.value.code == "cannot_convert"


def test_a_native_job_of_another_kind_keeps_that_kinds_rules():
    native = write_manifest(read_manifest(tfjob(Worker=replica(2))), NAME)
    native["spec"]["restart"] = {"limit": 3, "backoff_s_first": 1.0}
    assert read_manifest(native).spec.restart.backoff_s_first == 1.0

    native["spec"]["roles"].append({**native["spec"]["roles"][0], "name": "Boss"})
    with pytest.raises(Rejected) as refusal:
        read_manifest(native)
    assert "spec.tfReplicaSpecs[Boss]" in refusal.value.message


@patient
@given(anything)
def test_options_that_make_no_sense_are_refused_politely(options):
    native = write_manifest(read_manifest(tfjob(Worker=replica(2))), NAME)
    native["spec"]["framework"]["options"] = {"runPolicy": options, "successPolicy": options}
    with contextlib.suppress(Rejected):
        read_manifest(native)
