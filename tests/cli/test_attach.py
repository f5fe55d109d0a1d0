"""`muster attach` and `muster up --cluster kubernetes`, as far as they go without a cluster."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.errors import CliError
from cli.jobs.attach import exit_code
from tests.cli.conftest import Muster

Manifest = Callable[..., Path]

pytestmark = pytest.mark.usefixtures("server")


def status(**more: object) -> bytes:
    return json.dumps({"status": "Failure", **more}).encode()


def test_the_exit_code_is_the_command_s() -> None:
    assert exit_code(b'{"status": "Success"}') == 0
    causes = [{"reason": "ExitCode", "message": "7"}]
    assert exit_code(status(reason="NonZeroExitCode", details={"causes": causes})) == 7


def test_a_command_that_cannot_run_reports_why() -> None:
    with pytest.raises(CliError, match="no such file"):
        exit_code(status(message="exec: no such file", details={"causes": []}))


def test_a_simulated_cluster_answers_that_there_is_no_pod(
    muster: Muster, manifest: Manifest
) -> None:
    muster("submit", manifest("pair", replicas=2))
    ran = muster("attach", "pair", "--rank", "worker-1", "--", "ls")
    assert ran.code != 0
    assert "simulated" in ran.err


def test_a_rank_that_is_not_there_is_named(muster: Muster, manifest: Manifest) -> None:
    muster("submit", manifest("pair", replicas=2))
    ran = muster("attach", "pair", "--rank", "worker-9")
    assert ran.code == 2
    assert "worker-9" in ran.err


def test_logs_of_earlier_attempts_are_not_followed(muster: Muster, manifest: Manifest) -> None:
    muster("submit", manifest("pair", replicas=2))
    assert muster("logs", "pair", "--attempt", 1, "--follow").code == 2
    ran = muster("logs", "pair", "--previous")
    assert ran.code != 0
    assert "latest attempt only" in ran.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--speed", "2"], "--speed needs --cluster sim"),
        (["--seed", "1"], "--seed needs --cluster sim"),
        (["--kubeconfig", "/nowhere/config"], "no kubeconfig /nowhere/config"),
    ],
)
def test_a_real_cluster_that_cannot_be_is_refused(
    muster: Muster, arguments: list[str], message: str
) -> None:
    ran = muster("up", "--cluster", "kubernetes", "--db", "memory:", "--port", "0", *arguments)
    assert ran.code == 2
    assert message in ran.err
