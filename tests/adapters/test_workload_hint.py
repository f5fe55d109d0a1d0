"""The workload hint of the simulated cluster: its annotations, its checks and its redaction."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from adapters.simulated_cluster.workload import (
    LIMITS,
    SCHEMA,
    Training,
    Workload,
    hints_of,
    with_workload,
    workload_of,
)
from controlplane.kinds.hints import annotation_name
from controlplane.kinds.manifest.validation import Findings
from controlplane.model.spec import DoneWhen, JobSpec, Role

SPEC = JobSpec(roles=(Role(name="Worker", replicas=2),), done_when=DoneWhen("Worker"))


@pytest.mark.parametrize("of", [Workload, Training])
def test_every_number_has_an_annotation_and_a_range(of: type[msgspec.Struct]) -> None:
    for field in msgspec.structs.fields(of):
        if field.name not in LIMITS:
            assert field.type in (str, bool, Training | None), f"{field.name} needs a range"
            continue
        findings = Findings()
        texts = {annotation_name(field.name): str(LIMITS[field.name][1]), "model": "vgg16"}
        work = SCHEMA.read_annotations(texts, findings)
        assert findings.problems == []
        assert isinstance(work, Workload)
        owner = work if of is Workload else work.training
        assert getattr(owner, field.name) == LIMITS[field.name][1]


@pytest.mark.parametrize(
    "work",
    [
        Workload(),
        Workload(12.5, exit_code=3, exit_rank=1, failing_attempts=0),
        Workload(training=Training(model="vgg16", steps=5, compute_s=0.25, servers=2)),
    ],
)
def test_a_workload_survives_the_log(work: Workload) -> None:
    spec = replace(SPEC, hints=hints_of(work))
    for codec in (msgspec.json, msgspec.msgpack):
        again = codec.decode(codec.encode(spec), type=JobSpec)
        assert again == spec
        assert workload_of(again) == work


def test_another_workload_leaves_the_other_hints() -> None:
    spec = replace(SPEC, hints={"elsewhere": 1, **hints_of(Workload(5.0))})
    assert with_workload(spec, Workload(7.0)).hints == {
        "elsewhere": 1,
        "workload": {"duration_s": 7.0},
    }
    assert with_workload(spec, Workload()).hints == {"elsewhere": 1}


def test_a_workload_of_another_shape_is_not_read() -> None:
    with pytest.raises(msgspec.ValidationError):
        workload_of(replace(SPEC, hints={"workload": {"speed": 5}}))


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"model": "ResNet-50", "scheme": "ps", "precision": "fp16"}, {}),
        ({"model": "project-x"}, {"model": "redacted"}),
        ({"model": "vgg16", "scheme": "ours"}, {"scheme": "redacted"}),
        ({"model": "vgg16", "compression": "ours"}, {"compression": "redacted"}),
        ({"model": "vgg16", "precision": "ours"}, {"precision": "redacted"}),
    ],
)
def test_redaction_keeps_only_words_of_the_simulator(
    given: dict[str, Any], kept: dict[str, str]
) -> None:
    training = Training(**given)
    work = Workload(duration_s=5.0, training=training)
    assert SCHEMA.redact(work) == Workload(duration_s=5.0, training=replace(training, **kept))
