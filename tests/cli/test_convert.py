"""`muster convert`, and the kinds of third parties."""

import json
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import yaml

from adapters.simulated_cluster.workload import SCHEMA
from cli.errors import CliError
from cli.main import run
from cli.server import entry_points as loading
from cli.server import kinds
from controlplane.kinds.kubeflow import tensorflow
from controlplane.kinds.registry import read_manifest

ROOT = Path(__file__).parents[2]
TFJOB = str(ROOT / "examples" / "tfjob-ps-workers.yaml")


def test_a_manifest_is_shown_in_the_native_form_and_back(tmp_path, capsys):
    assert run(["convert", "-f", TFJOB]) == 0
    native = capsys.readouterr().out
    assert yaml.safe_load(native)["spec"]["framework"]["kind"] == "TFJob"

    file = tmp_path / "native.yaml"
    file.write_text(native)
    assert run(["convert", "-f", str(file), "--to", "TFJob/v1", "-o", "json"]) == 0

    back = json.loads(capsys.readouterr().out)
    given = yaml.safe_load(Path(TFJOB).read_text())
    assert read_manifest(back) == read_manifest(given)


def test_defaults_are_shown(capsys):
    assert run(["convert", "-f", TFJOB, "--to", "own"]) == 0

    policy = yaml.safe_load(capsys.readouterr().out)["spec"]["runPolicy"]
    assert policy["schedulingPolicy"] == {"queue": "default"}


def test_several_documents_stay_several(capsys):
    file = str(ROOT / "examples" / "sweep.yaml")
    assert run(["convert", "-f", file]) == 0
    assert len(list(yaml.safe_load_all(capsys.readouterr().out))) == 2

    assert run(["convert", "-f", file, "-o", "json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["items"]) == 2


def test_every_problem_is_reported_with_its_lines(tmp_path, capsys):
    file = tmp_path / "bad.yaml"
    file.write_text(
        "apiVersion: kubeflow.org/v1\n"
        "kind: TFJob\n"
        "metadata: {name: 00}\n"
        "spec:\n"
        "  sucessPolicy: AllWorkers\n"
        "  tfReplicaSpecs:\n"
        "    Worker:\n"
        "      replicas: many\n"
        "      template: {spec: {containers: [{name: tensorflow}]}}\n"
    )

    assert run(["convert", "-f", str(file)]) == 2

    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == f"error: {file}: the manifest is wrong in 4 places"
    assert sorted(line.strip().removeprefix(str(file)).split(": ")[0] for line in lines[1:]) == [
        ":3",
        ":5",
        ":8",
        ":9",
    ]
    assert "did you mean successPolicy?" in "".join(lines)


def test_a_form_that_is_not_known_is_refused(capsys):
    assert run(["convert", "-f", TFJOB, "--to", "TFJob/v7"]) == 2
    assert "v7" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("no_such_module:KIND", "cannot be loaded"),
        ("controlplane.kinds.kubeflow.tensorflow:V1", "is not a Kind"),
        ("tests.cli.test_convert:ANOTHER_TFJOB", "already a kind TFJob"),
    ],
)
def test_a_kind_that_cannot_be_registered_is_refused(monkeypatch, value, message):
    _refuses(monkeypatch, EntryPoint("mine", value, kinds.KINDS), message)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("no_such_module:SCHEMA", "cannot be loaded"),
        ("controlplane.kinds.kubeflow.tensorflow:KIND", "is not a HintSchema"),
        ("tests.cli.test_convert:ANOTHER_WORKLOAD", "already a hint workload"),
    ],
)
def test_a_hint_that_cannot_be_registered_is_refused(monkeypatch, value, message):
    _refuses(monkeypatch, EntryPoint("mine", value, kinds.HINTS), message)


def _refuses(monkeypatch, point, message):
    points = {point.group: [point]}
    monkeypatch.setattr(loading, "entry_points", lambda group: points.get(group, []))

    with pytest.raises(CliError) as complaint:
        kinds.load_kinds()

    assert message in complaint.value.message


ANOTHER_WORKLOAD = SCHEMA._replace(annotation_prefix="mine.example.com/")
ANOTHER_TFJOB = tensorflow.KIND._replace(forms=())
