"""Hints: the core keeps them, adapters own them, and manifests express them by their schemas."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from adapters.simulated_cluster.workload import SCHEMA
from controlplane.audit.redaction import Redactor
from controlplane.kinds import hints, registry
from controlplane.kinds.hints import HintProblem, HintSchema, HintTaken
from controlplane.kinds.manifest.validation import Findings
from controlplane.kinds.registry import read_manifest, register_hint, write_manifest
from controlplane.model import events as e
from controlplane.model.errors import Rejected
from controlplane.model.spec import JobSpec

CORE = Path(__file__).parents[3] / "controlplane"


class Processes(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How an adapter for local processes would run a job."""

    nice: int = 0
    shell: str = ""


def _read(annotations: Mapping[str, str], findings: Findings) -> Processes:
    return Processes(nice=int(annotations.get("nice", 0)), shell=annotations.get("shell", ""))


def _check(processes: Processes, spec: JobSpec) -> Iterator[HintProblem]:
    if processes.nice > 19:
        yield "nice", "the greatest is 19"


LOCAL = HintSchema(
    name="processes",
    type=Processes,
    annotation_prefix="local.example.com/",
    read_annotations=_read,
    check=_check,
    redact=lambda processes: Processes(nice=processes.nice),
)


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Registries of the test's own, with what is registered already."""
    for module, name in ((hints, "_schemas"), (registry, "_kinds"), (registry, "_forms")):
        monkeypatch.setattr(module, name, dict(getattr(module, name)))


@pytest.fixture
def local(own_registry: None) -> None:
    register_hint(LOCAL)


def native(**spec: Any) -> dict[str, Any]:
    roles = [{"name": "worker", "replicas": 2}]
    metadata = {"name": "one"}
    whole = {"roles": roles, **spec}
    return {"apiVersion": "muster.dev/v1", "kind": "Job", "metadata": metadata, "spec": whole}


def pytorch(**annotations: str) -> dict[str, Any]:
    container = {"name": "pytorch", "image": "i"}
    template = {"spec": {"containers": [container]}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "one", "annotations": annotations},
        "spec": {"pytorchReplicaSpecs": {"Master": {"replicas": 1, "template": template}}},
    }


def refused(document: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(Rejected) as refusal:
        read_manifest(document)
    return {problem.field: problem.message for problem in refusal.value.problems}


@pytest.mark.usefixtures("local")
def test_a_second_adapter_registers_a_hint_of_its_own() -> None:
    document = native(processes={"nice": 5}, workload={"duration_s": 30})

    job = read_manifest(document)

    assert job.spec.hints == {"processes": {"nice": 5}, "workload": {"duration_s": 30.0}}
    written = write_manifest(job)
    assert written["spec"]["processes"] == {"nice": 5}
    assert "hints" not in written["spec"]
    assert read_manifest(written).spec == job.spec


@pytest.mark.usefixtures("local")
def test_the_type_and_the_check_of_a_second_hint_name_its_fields() -> None:
    assert "did you mean nice?" in refused(native(processes={"nise": 5}))["spec.processes.nise"]
    assert refused(native(processes={"nice": 20})) == {"spec.processes.nice": "the greatest is 19"}
    path = "metadata.annotations[local.example.com/nice]"
    assert refused(pytorch(**{"local.example.com/nice": "20"})) == {path: "the greatest is 19"}


@pytest.mark.usefixtures("local")
def test_annotations_express_the_hints_of_several_adapters() -> None:
    annotations = {"local.example.com/nice": "3", "sim.muster.dev/exit-code": "4"}
    job = read_manifest(pytorch(**annotations))
    assert job.spec.hints == {"processes": {"nice": 3}, "workload": {"exit_code": 4}}
    assert read_manifest(write_manifest(job)).spec == job.spec


@pytest.mark.usefixtures("local")
def test_a_default_hint_is_the_same_as_none() -> None:
    assert (
        read_manifest(native(processes={"nice": 0}, workload={"duration_s": 60})).spec.hints == {}
    )


def test_a_hint_that_no_adapter_owns_is_kept_with_a_warning() -> None:
    job = read_manifest(native(hints={"elsewhere": {"any": ["thing"]}}))
    assert job.spec.hints == {"elsewhere": {"any": ["thing"]}}
    assert len(job.warnings) == 1
    assert "spec.hints[elsewhere]" in job.warnings[0]
    assert read_manifest(write_manifest(job)).spec == job.spec


def test_a_hint_with_an_adapter_is_written_by_its_own_name() -> None:
    problems = refused(native(hints={"workload": {"duration_s": 5}}))
    assert problems == {"spec.hints[workload]": "give it as spec.workload"}


def test_a_misspelt_hint_is_refused_by_name() -> None:
    assert "did you mean workload?" in refused(native(worklaod={}))["spec.worklaod"]


def test_a_conversion_that_loses_a_hint_names_it() -> None:
    job = read_manifest(pytorch())
    job = replace(job, spec=replace(job.spec, hints={"workload": {"duration_s": 5.0}}))
    with pytest.raises(Rejected, match="this job's workload") as refusal:
        write_manifest(job)
    assert "spec.workload" in {problem.field for problem in refusal.value.problems}


@pytest.mark.usefixtures("own_registry")
def test_names_and_prefixes_of_hints_are_unique() -> None:
    register_hint(SCHEMA)
    for taken in (
        LOCAL._replace(name="workload"),
        LOCAL._replace(annotation_prefix="sim.muster.dev/"),
        LOCAL._replace(name="queue"),
    ):
        with pytest.raises(HintTaken):
            register_hint(taken)
    assert "processes" not in {schema.name for schema in hints.schemas()}
    assert read_manifest(native(workload={"duration_s": 5})).spec.queue == "default"


@pytest.mark.usefixtures("local")
def test_redaction_keeps_what_the_owner_of_a_hint_keeps() -> None:
    kept = {"processes": {"nice": 5, "shell": "secret"}, "elsewhere": {"secret": "secret"}}
    job = read_manifest(native(processes=kept["processes"], hints={"elsewhere": {"secret": "x"}}))
    submitted = e.JobSubmitted("1", "default", "one", job.spec)
    recorded = Redactor().recorded(e.Recorded(1, 0.0, submitted))
    assert isinstance(recorded.event, e.JobSubmitted)
    assert recorded.event.spec.hints == {"processes": {"nice": 5}}


def test_the_core_knows_no_hint() -> None:
    """Only the codec of manifests and redaction handle hints, and no module names one."""
    readers = set()
    for file in CORE.rglob("*.py"):
        text = file.read_text()
        for word in (SCHEMA.annotation_prefix, "exit_rank", "failing_attempts", "evaluate_steps"):
            assert word not in text, f"{file.name} knows {word}"
        if any(
            isinstance(node, ast.Attribute) and node.attr == "hints"
            for node in ast.walk(ast.parse(text))
        ):
            readers.add(file.relative_to(CORE).as_posix())
    assert readers == {
        "audit/redaction.py",
        "kinds/hints.py",
        "kinds/manifest/checking.py",
        "kinds/native.py",
    }
