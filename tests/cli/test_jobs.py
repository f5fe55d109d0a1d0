"""Jobs from the command line, against a real server: what is shown, and every exit code."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import EXAMPLES, Muster

Manifest = Callable[..., Path]
LONG = {"duration_s": 1_000_000}

pytestmark = pytest.mark.usefixtures("server")


# ---------------------------------------------------------------- the end of a job


def test_waiting_for_a_job_that_succeeds_exits_with_0(muster: Muster, manifest: Manifest) -> None:
    ran = muster("submit", manifest("fine"), "--wait")
    assert (ran.code, ran.out) == (0, "default/fine submitted\n")
    assert "attempt 1 placed on" in ran.err
    assert "default/fine: succeeded" in ran.err


def test_waiting_for_a_job_that_fails_exits_with_100(muster: Muster, manifest: Manifest) -> None:
    ran = muster("submit", manifest("broken", exit_code=3), "--wait")
    assert ran.code == 100
    assert "failed (retries exhausted): worker-0 exited with code 3" in ran.err


def test_waiting_for_a_job_that_is_cancelled_exits_with_101(
    muster: Muster, manifest: Manifest
) -> None:
    muster("submit", manifest("doomed", **LONG))
    assert muster("cancel", "doomed").out == "default/doomed cancelled\n"
    assert muster("wait", "doomed").code == 101


def test_the_worst_of_several_ends_is_the_exit_code(muster: Muster, manifest: Manifest) -> None:
    muster("submit", manifest("good"))
    muster("submit", manifest("bad", exit_code=1))
    ran = muster("wait", "good", "bad", "--quiet")
    assert (ran.code, ran.out, ran.err) == (100, "", "")


@pytest.mark.parametrize("command", ["get", "why", "logs", "events", "cancel", "wait", "delete"])
def test_a_job_that_does_not_exist_exits_with_102(muster: Muster, command: str) -> None:
    ran = muster(command, "missing")
    assert ran.code == 102
    assert ran.err.startswith("error: there is no job default/missing\n")


def test_a_job_that_can_never_fit_exits_with_103(muster: Muster) -> None:
    for plan in ((), ("--plan",)):
        ran = muster("submit", EXAMPLES / "never-fits.yaml", *plan)
        assert ran.code == 103
        assert "never-fits.yaml:" in ran.err
    assert muster("list").out == ""


def test_an_impossible_value_exits_with_2_and_lists_what_exists(
    muster: Muster, tmp_path: Path
) -> None:
    path = tmp_path / "level.yaml"
    path.write_text(HOPELESS.replace("selector: {zone: nowhere}", "topology: {required: row}"))
    for plan in ((), ("--plan",)):
        ran = muster("submit", path, *plan)
        assert ran.code == 2
        assert "there is no topology level 'row'; the levels are: rack, node" in ran.err


def test_a_job_that_could_not_start_is_set_aside_and_the_next_one_runs(
    muster: Muster, manifest: Manifest, tmp_path: Path
) -> None:
    path = tmp_path / "hopeless.yaml"
    path.write_text(HOPELESS)
    assert "set aside as unschedulable" in muster("submit", path, "--plan").out
    assert muster("submit", path).code == 0
    assert muster("submit", manifest("fine"), "--wait").code == 0
    assert "Unschedulable" in muster("list").out
    assert "no node that takes work has zone=nowhere" in muster("why", "hopeless").out
    assert "set aside as unschedulable" in muster("events", "hopeless").out
    assert muster("cancel", "hopeless").code == 0


HOPELESS = """
apiVersion: muster.dev/v1
kind: Job
metadata: {name: hopeless}
spec:
  roles: [{name: worker, replicas: 1, gpus: 1}]
  scheduling: {selector: {zone: nowhere}}
"""


def test_following_the_logs_ends_with_the_job_and_its_exit_code(
    muster: Muster, manifest: Manifest
) -> None:
    muster("submit", manifest("noisy", replicas=2, exit_code=1))
    ran = muster("logs", "noisy", "--follow")
    assert ran.code == 100
    assert "[worker-0] " in ran.out
    assert "exited with code 1" in ran.out
    assert len(set(ran.out.splitlines())) == len(ran.out.splitlines()), "no line twice"
    assert "default/noisy: failed" in ran.err


# ---------------------------------------------------------------- looking


def test_a_list_shows_the_phase_of_each_job(muster: Muster, manifest: Manifest) -> None:
    muster("submit", manifest("trains", replicas=8, gpus=8, **LONG))
    muster("submit", manifest("waits", replicas=2, gpus=8, **LONG))
    head, first, second = muster("list").out.splitlines()
    assert head.split() == ["NAME", "KIND", "PHASE", "RANKS", "GPUS", "RESTARTS", "AGE", "NOTE"]
    assert first.split()[:3] in (["trains", "Job", "Running"], ["trains", "Job", "Starting"])
    assert second.split()[:5] == ["waits", "Job", "Queued", "0/2", "16"]
    assert "waits for" in second
    assert muster("list", "--phase", "queued", "-o", "name").out == "default/waits\n"


def test_every_output_form_holds_the_same_job(muster: Muster, manifest: Manifest) -> None:
    muster("submit", manifest("one", namespace="research", **LONG))
    assert "no jobs in namespace default" in muster("list").err
    assert [job["name"] for job in muster("list", "-A", "-o", "json").json["items"]] == ["one"]
    assert "- namespace: research\n  name: one\n" in muster("list", "-A", "-o", "yaml").out
    assert muster("list", "-n", "research", "-o", "name").out == "research/one\n"
    wide = muster("list", "-A", "-o", "wide").out
    assert "SUBMITTED" in wide
    assert "research" in wide
    assert muster("get", "research/one", "-o", "json").json["job"]["namespace"] == "research"
    assert muster("get", "one", "-n", "research", "-o", "name").out == "research/one\n"


def test_one_job_is_shown_with_its_ranks_and_its_restarts(
    muster: Muster, manifest: Manifest
) -> None:
    path = manifest("flaky", replicas=2, exit_code=9, failing_attempts=1)
    path.write_text(path.read_text().replace('"limit":0', '"limit":2'))
    assert muster("submit", path, "--wait").code == 0
    shown = muster("get", "flaky").out
    assert "Gang       2 Worker x 1 GPU (2 GPUs)" in shown
    assert "Restarts   1 (1 of 2 retries used)" in shown
    assert "worker-1" in shown
    assert "spent" in shown
    assert "worker-0 exited with code 9" in shown


def test_why_shows_what_is_missing_and_which_jobs_are_ahead(
    muster: Muster, manifest: Manifest
) -> None:
    muster("submit", manifest("holder", replicas=8, gpus=8, **LONG))
    muster("submit", manifest("first", replicas=2, gpus=8, **LONG))
    muster("submit", manifest("second", **LONG))
    assert "it needs 16 GPUs; 0 are free" in muster("why", "first").out
    ran = muster("why", "second")
    assert "number 2 in queue default" in ran.out
    assert "ahead of it: default/first" in ran.out
    codes = [reason["code"] for reason in muster("why", "second", "-o", "json").json["reasons"]]
    assert codes[0] == "blocked_by_head"


def test_events_show_the_life_of_a_job(muster: Muster, manifest: Manifest) -> None:
    muster("submit", manifest("short"), "--wait")
    ran = muster("events", "short")
    assert ran.out.splitlines()[0].split() == ["POSITION", "TIME", "EVENT", "WHAT", "HAPPENED"]
    assert "submitted to queue default: 1 rank, 1 GPU" in ran.out
    assert "JobSucceeded" in ran.out
    lines = muster("events", "short", "-o", "json").out.splitlines()
    assert '"type":"JobSubmitted"' in lines[0]
    assert "JobSucceeded" in muster("events", "-o", "wide").out


def test_logs_of_one_rank_have_no_prefix(muster: Muster, manifest: Manifest) -> None:
    muster("submit", manifest("pair", replicas=2), "--wait")
    both = muster("logs", "pair", "--tail", 1).out.splitlines()
    assert [line.split()[0] for line in both] == ["[worker-0]", "[worker-1]"]
    for rank in ("1", "worker-1", "Worker-1"):
        (only,) = muster("logs", "pair", "--rank", rank, "--tail", 1).out.splitlines()
        assert only == both[1].removeprefix("[worker-1] ")
    ran = muster("logs", "pair", "--rank", "7")
    assert ran.code == 2
    assert "the ranks are 0-1: worker-0, worker-1" in ran.err


# ---------------------------------------------------------------- changing


def test_a_job_is_suspended_and_resumed(muster: Muster, manifest: Manifest) -> None:
    muster("submit", manifest("pausing", **LONG))
    assert muster("suspend", "pausing").code == 0
    assert muster("get", "pausing", "-o", "json").json["job"]["phase"] == "Suspended"
    assert muster("resume", "pausing").code == 0
    again = muster("resume", "pausing")
    assert again.code == 1
    assert "is not suspended" in again.err


def test_the_limits_of_a_job_are_amended(muster: Muster, manifest: Manifest) -> None:
    muster("submit", manifest("limited", **LONG))
    assert muster("amend", "limited", "--deadline", "2h", "--restart-limit", "1").code == 0
    amended = muster("get", "limited", "-o", "json").json["spec"]
    assert (amended["active_deadline_s"], amended["restart"]["limit"]) == (7200, 1)
    ran = muster("amend", "limited", "--deadline", "none")
    assert ran.out.strip() == "default/limited amended: deadline"
    amended = muster("get", "limited", "-o", "json").json["spec"]
    assert amended.get("active_deadline_s") is None
    assert muster("amend", "limited").code == 2
    assert muster("amend", "limited", "--ttl", "soon").code == 2


def test_a_job_is_scaled(muster: Muster, manifest: Manifest) -> None:
    muster("submit", manifest("elastic", **LONG))
    assert muster("scale", "elastic", "--replicas", 3).code == 0
    assert muster("get", "elastic", "-o", "json").json["job"]["ranks"] == 3
    assert muster("scale", "elastic", "--replicas", 3, "--role", "PS").code == 2
    assert muster("scale", "elastic", "--replicas", 99_999).code == 2
    assert muster("scale", "elastic", "--replicas", 65).code == 103


def test_what_can_be_changed_is_changed_although_one_is_missing(
    muster: Muster, manifest: Manifest
) -> None:
    muster("submit", manifest("there", **LONG))
    ran = muster("cancel", "missing", "there")
    assert (ran.code, ran.out) == (102, "default/there cancelled\n")


def test_prune_touches_only_what_finished_long_enough_ago(
    muster: Muster, manifest: Manifest
) -> None:
    muster("submit", manifest("old"), "--wait")
    muster("submit", manifest("busy", **LONG))
    assert "no job finished" in muster("prune", "--older-than", "900w").out
    shown = muster("prune", "--older-than", "0s", "--dry-run").out
    assert "1 jobs would be deleted" in shown
    assert "busy" not in shown
    assert muster("prune", "--older-than", "0s", stdin="n\n").code == 130
    assert muster("prune", "--older-than", "0s", "--yes").code == 0
    assert muster("list", "-o", "name").out == "default/busy\n"
