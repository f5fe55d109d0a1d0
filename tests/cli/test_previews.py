"""Dry runs, reruns and faults from the command line, against a real server."""

from collections.abc import Callable
from pathlib import Path
from time import sleep

import pytest

from tests.cli.conftest import Muster

Manifest = Callable[..., Path]
LONG = {"duration_s": 1_000_000}

pytestmark = pytest.mark.usefixtures("server")


def test_a_dry_run_of_a_cancellation_changes_nothing(muster: Muster, manifest: Manifest) -> None:
    muster("submit", manifest("alive", **LONG))
    muster("wait", "alive", "--for", "Running")
    ran = muster("cancel", "alive", "--dry-run")
    assert ran.code == 0, ran.err
    assert ran.out.startswith("default/alive (dry run)\n1 job with ")
    assert "  end    default/alive: " in ran.out
    assert muster("get", "alive", "-o", "json").json["job"]["phase"] in ("Starting", "Running")
    for command in (("suspend", "alive"), ("delete", "alive"), ("amend", "alive", "--ttl", "1h"),
                    ("scale", "alive", "--role", "Worker", "--replicas", "2")):  # fmt: skip
        assert "(dry run)" in muster(*command, "--dry-run").out


def test_a_dry_run_of_nodes_and_queues_changes_nothing(muster: Muster) -> None:
    node = muster("node", "list", "-o", "name").out.split()[0]
    for verb in ("cordon", "drain"):
        ran = muster("node", verb, node, "--dry-run")
        assert (ran.code, ran.out.startswith(f"{node} (dry run)\n")) == (0, True), ran.err
    assert "cordoned" not in muster("node", "list").out
    ran = muster("queue", "set", "brand-new", "nominal=4", "--dry-run")
    assert ran.out == "brand-new (dry run)\nNothing would start or stop because of it.\n"
    assert "brand-new" not in muster("queue", "list").out


def test_a_job_runs_once_more(muster: Muster, manifest: Manifest) -> None:
    muster("submit", manifest("first"), "--wait")
    ran = muster("rerun", "first")
    assert ran.out == "default/first runs once more as default/first-rerun-1\n"
    ran = muster("rerun", "first", "--name", "second")
    assert ran.out == "default/first runs once more as default/second\n"
    assert muster("rerun", "nothing").code == 102


def test_a_waiting_job_gets_another_queue(muster: Muster, manifest: Manifest) -> None:
    muster("queue", "set", "elsewhere")
    muster("submit", manifest("held", **LONG))
    muster("suspend", "held")
    for _ in range(100):
        # Its ranks stop first.
        ran = muster("amend", "held", "--queue", "elsewhere", "--priority", "3")
        if ran.code == 0:
            break
        sleep(0.05)
    assert ran.out == "default/held amended: priority, queue\n", ran.err
    assert muster("amend", "held", "--queue", "none-such").code != 0


def test_a_node_is_made_to_fail(muster: Muster) -> None:
    node = muster("node", "list", "-o", "name").out.split()[0]
    ran = muster("sim", "fail", node, "--kind", "slow", "--factor", "0.5", "--for", "10s")
    assert ran.code == 0, ran.err
    assert ran.out.endswith(": its GPUs keep 50% of their speed, for 10 s\n")
    ran = muster("sim", "fail", "none-such")
    assert ran.code != 0
    assert "no node" in ran.err
