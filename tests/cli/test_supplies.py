"""Code, devices and TensorBoard by flags, and how they are shown."""

import json

import pytest

from tests.cli.conftest import Muster

pytestmark = pytest.mark.usefixtures("server")

SUBMIT = ("submit", "pytorchjob", "--name", "bert", "--image", "train:1", "--workers", "1")


def test_flags_become_one_annotation_that_the_server_understands(muster: Muster) -> None:
    device = ("--device", "rdma/hca=1")
    words = (
        *SUBMIT, "--data", "results:/results",
        "--sync-source", "https://git.example/team/train.git", "--sync-ref", "main",
        "--tensorboard", "--logdir", "/results/logs",
    )  # fmt: skip
    manifest = muster(*words, *device, "--dry-run", "-o", "json", "python", "train.py").json
    supplies = json.loads(manifest["metadata"]["annotations"]["muster.dev/supplies"])
    assert supplies == {
        "resources": {"rdma/hca": "1"},
        "code": {"repo": "https://git.example/team/train.git", "ref": "main"},
        "data": [{"claim": "results", "path": "/results"}],
        "tensorboard": {"log_dir": "/results/logs"},
    }
    assert "/results" not in json.dumps(manifest["spec"]), "it is mounted once"
    ran = muster(*words, *device, "python", "train.py")
    assert (ran.code, "rdma/hca, which no node has" in ran.err) == (103, True)
    assert muster(*words, "python", "train.py").code == 0
    shown = muster("tensorboard", "bert").out
    assert "kubectl port-forward -n default service/bert-tensorboard 6006:80" in shown


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--tensorboard",), "--tensorboard needs --logdir"),
        (("--tensorboard", "--logdir", "/logs"), "no claim of `data` is mounted there"),
        (("--sync-source", "train"), "is no repository"),
    ],
)
def test_what_cannot_be_is_refused(muster: Muster, words: tuple[str, ...], message: str) -> None:
    ran = muster(*SUBMIT, *words, "python", "train.py")
    assert ran.code == 2
    assert message in ran.err


def test_a_job_without_a_board_explains_how_to_get_one(muster: Muster) -> None:
    assert muster(*SUBMIT, "python", "train.py").code == 0
    ran = muster("tensorboard", "bert")
    assert (ran.code, "bert has no TensorBoard" in ran.err) == (1, True)
