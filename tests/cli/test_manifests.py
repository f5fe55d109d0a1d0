"""A job as its own kind shows it, and the environment of its ranks, from the command line."""

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

    document = yaml.safe_load(muster("manifest", name).out)

    assert (document["kind"], document["apiVersion"]) == ("TFJob", "kubeflow.org/v1")
    types = [condition["type"] for condition in document["status"]["conditions"]]
    assert types == ["Created", "Running", "Succeeded"]
    assert set(document["status"]["replicaStatuses"]) == set(document["spec"]["tfReplicaSpecs"])
    assert document["status"]["startTime"] <= document["status"]["completionTime"]


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


def test_the_environment_of_a_rank_is_shown(muster: Muster) -> None:
    name = submitted(muster)

    environment = json.loads(muster("rank-env", name, "--rank", "1", "-o", "json").out)[
        "environment"
    ]

    config = json.loads(environment["env"]["TF_CONFIG"])
    assert environment["name"].endswith(f"-{config['task']['type']}-{config['task']['index']}")


@pytest.mark.parametrize("words", [("manifest", "missing"), ("rank-env", "missing")])
def test_a_job_that_does_not_exist_exits_with_102(muster: Muster, words: tuple[str, ...]) -> None:
    assert muster(*words).code == 102


def test_a_rank_or_form_that_does_not_exist_is_refused_with_those_that_do(muster: Muster) -> None:
    name = submitted(muster)

    ran = muster("rank-env", name, "--rank", "99")
    assert (ran.code, "has the ranks 0 to" in ran.err) == (1, True)
    ran = muster("manifest", name, "--to", "PyTorchJob/v1")
    assert ran.code not in (0, 102)
    assert "a TFJob cannot become a PyTorchJob" in ran.err
