"""In which version a resource was written, for whom, and as which job."""

import json
from typing import Any

import pytest

from adapters.kubernetes.operator.parse import (
    LAST_APPLIED,
    NAMELESS,
    left_to,
    read,
    written_version,
)
from adapters.kubernetes.operator.resource import resources
from adapters.kubernetes.render.ownership import RESOURCE
from controlplane.model.errors import Rejected
from tests.adapters.kubernetes.operator.bench import example

TFJOBS = next(each for each in resources() if each.name == "tfjobs.kubeflow.org")


def shown(**metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": metadata}


def applied(version: str, kind: str = "TFJob") -> dict[str, str]:
    return {LAST_APPLIED: json.dumps({"apiVersion": version, "kind": kind})}


def owner(version: str, time: str, *, field: str = "f:spec") -> dict[str, Any]:
    return {"apiVersion": version, "time": time, "fieldsV1": {field: {}}}


@pytest.mark.parametrize(
    ("document", "version"),
    [
        (shown(), "kubeflow.org/v1"),
        (shown(annotations=applied("kubeflow.org/v1beta1")), "kubeflow.org/v1beta1"),
        # Of another kind, or of an unknown version: it has no meaning.
        (shown(annotations=applied("kubeflow.org/v1beta1", "MXJob")), "kubeflow.org/v1"),
        (shown(annotations=applied("kubeflow.org/v7")), "kubeflow.org/v1"),
        (shown(annotations={LAST_APPLIED: "{"}), "kubeflow.org/v1"),
        (
            shown(
                managedFields=[
                    owner("kubeflow.org/v1", "2026-02-02T00:00:00Z"),
                    owner("kubeflow.org/v1alpha2", "2026-01-01T00:00:00Z"),
                    owner("kubeflow.org/v1beta2", "2025-01-01T00:00:00Z", field="f:status"),
                ]
            ),
            "kubeflow.org/v1alpha2",
        ),
    ],
)
def test_the_version_is_that_of_the_writer(document: dict[str, Any], version: str) -> None:
    assert written_version(document, TFJOBS) == version


def test_a_resource_is_read_without_what_the_cluster_added() -> None:
    document = example("tfjob-ps-workers")
    document["metadata"] |= {
        "uid": "u-1",
        "namespace": "default",
        "generation": 3,
        "deletionGracePeriodSeconds": 0,
        "annotations": {LAST_APPLIED: "{}", "owner": "me"},
    }
    document["status"] = {"anything": True}
    submission = read(document)
    assert submission.spec.annotations == {"owner": "me", RESOURCE: "u-1"}


def test_a_resource_without_a_spec_is_refused_with_the_field() -> None:
    with pytest.raises(Rejected) as refused:
        read(shown(name="a", namespace="default", uid="u-1"))
    assert [each.field for each in refused.value.problems] == ["spec"]


@pytest.mark.parametrize(
    ("spec", "labels", "leave", "who"),
    [
        ({}, {}, (), ""),
        ({"runPolicy": {"managedBy": "kubeflow.org/training-operator"}}, {}, (), ""),
        ({"managedBy": "trainer.kubeflow.org/trainjob-controller"}, {}, (), ""),
        (
            {"runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue"}},
            {},
            (),
            "kueue.x-k8s.io/multikueue",
        ),
        ({"managed_by": "example.com/other"}, {}, (), "example.com/other"),
        ({"runPolicy": {"managedBy": ""}}, {}, (), NAMELESS),
        ({"managedBy": ""}, {}, (), NAMELESS),
        ({"managed_by": ""}, {}, (), ""),
        ({"runPolicy": "nonsense"}, {}, (), ""),
        ("nonsense", {}, (), ""),
        ({}, {"kueue.x-k8s.io/queue-name": "a"}, (), ""),
        ({}, {"kueue.x-k8s.io/queue-name": "a"}, ("volcano",), ""),
        ({}, {"kueue.x-k8s.io/queue-name": "a"}, ("volcano", "kueue"), "kueue"),
    ],
)
def test_the_controller_or_scheduler_that_runs_a_job_instead_of_muster(
    spec: Any, labels: dict[str, str], leave: tuple[str, ...], who: str
) -> None:
    assert left_to({"spec": spec, "metadata": {"labels": labels}}, leave) == who
