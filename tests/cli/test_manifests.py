"""A job as its own kind shows it, and what its ranks are told, from the command line."""

import json

import pytest
import yaml

from tests.cli.conftest import EXAMPLES, Muster

pytestmark = pytest.mark.usefixtures("server")
TFJOB = EXAMPLES / "tfjob-ps-workers.yaml"


def submitted(muster: Muster) -> str:
    return muster("submit", TFJOB, "--wait").out.split()[0]


def test_a_job_is_shown_with_the_status_that_its_operator_would_write(muster: Muster) -> None:
    name = submitted(muster)

    found = yaml.safe_load(muster("manifest", name).out)

    assert (found["kind"], found["apiVersion"]) == ("TFJob", "kubeflow.org/v1")
    types = [condition["type"] for condition in found["status"]["conditions"]]
    assert types == ["Created", "Running", "Succeeded"]
    assert set(found["status"]["replicaStatuses"]) == set(found["spec"]["tfReplicaSpecs"])
    assert found["status"]["startTime"] <= found["status"]["completionTime"]


def test_a_job_is_shown_in_the_native_form_and_can_be_submitted_again(muster: Muster) -> None:
    name = submitted(muster)

    native = muster("manifest", name, "--to", "native", "-o", "json").out
    assert json.loads(native)["kind"] == "Job"

    muster("delete", name)
    while muster("get", name).code == 0:
        # Its name is free once its last rank is gone.
        pass
    again = muster("submit", "-", stdin=native)
    assert again.code == 0, again.err


def test_what_a_rank_is_told_is_shown(muster: Muster) -> None:
    name = submitted(muster)

    told = json.loads(muster("told", name, "--rank", "1", "-o", "json").out)["told"]

    config = json.loads(told["env"]["TF_CONFIG"])
    assert told["name"].endswith(f"-{config['task']['type']}-{config['task']['index']}")


@pytest.mark.parametrize("words", [("manifest", "nobody"), ("told", "nobody")])
def test_a_job_that_does_not_exist_exits_with_102(muster: Muster, words: tuple[str, ...]) -> None:
    assert muster(*words).code == 102


def test_a_rank_or_form_that_does_not_exist_is_refused_with_those_that_do(muster: Muster) -> None:
    name = submitted(muster)

    ran = muster("told", name, "--rank", "99")
    assert (ran.code, "has the ranks 0 to" in ran.err) == (1, True)
    ran = muster("manifest", name, "--to", "PyTorchJob/v1")
    assert ran.code not in (0, 102)
    assert "a TFJob cannot become a PyTorchJob" in ran.err
