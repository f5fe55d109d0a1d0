"""`muster convert`, and the kinds of third parties."""

import json
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import yaml

from cli import kinds
from cli.complaints import Complaint
from cli.main import run
from controlplane.kinds import tensorflow
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


def test_all_that_is_wrong_is_told_with_its_lines(tmp_path, capsys):
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
    ("value", "told"),
    [
        ("no_such_module:KIND", "cannot be loaded"),
        ("controlplane.kinds.tensorflow:V1", "is not a Kind"),
        ("tests.cli.test_convert:ANOTHER_TFJOB", "already a kind TFJob"),
    ],
)
def test_a_kind_that_cannot_be_taken_is_complained_of(monkeypatch, value, told):
    points = [EntryPoint("mine", value, kinds.GROUP)]
    monkeypatch.setattr(kinds, "entry_points", lambda group: points)

    with pytest.raises(Complaint) as complaint:
        kinds.load_kinds()

    assert told in complaint.value.message


ANOTHER_TFJOB = tensorflow.KIND._replace(forms=())
