"""What the operator makes of a change to the resource of a job that lives."""

from typing import Any

import pytest

from adapters.kubernetes.operator.spec_changes import edits
from controlplane.kinds.registry import read_manifest
from tests.controlplane.kinds.manifests import changed, replica, tfjob
from tests.controlplane.kinds.reading import life

TFJOB = tfjob(Worker=replica(1000))
POLICY = ("spec", "runPolicy")
MANAGED = {"managedBy": "kubeflow.org/training-operator"}


@pytest.mark.parametrize(
    ("policy", "field"),
    [
        ({"managedBy": "kueue.x-k8s.io/multikueue"}, "spec.runPolicy.managedBy"),
        ({"schedulingPolicy": {"queue": "test"}}, "spec.runPolicy.schedulingPolicy.queue"),
    ],
)
def test_the_controller_and_the_queue_of_a_job_cannot_be_changed(
    policy: dict[str, Any], field: str
) -> None:
    old = read_manifest(changed(TFJOB, POLICY, MANAGED))
    new = read_manifest(changed(TFJOB, POLICY, {**MANAGED, **policy}))
    job = life(old.spec)

    assert edits(job, old, generation=1).in_vain == ()
    changes = edits(job, new, generation=2)
    assert changes.commands == ()
    (path,) = changes.in_vain
    assert field.startswith(path)
