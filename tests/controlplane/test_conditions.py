"""A job's state in the words of the Kubeflow operators."""

from controlplane import commands as c
from controlplane.kinds.conditions import PLAIN, Style, replica_statuses, status, styled
from controlplane.model import Cause, DoneWhen, Exit, RestartPolicy, RestartScope
from tests.controlplane.specification import (
    Given,
    exited,
    node,
    placed_job,
    running_job,
    spec,
    submit,
)

ALONE = RestartPolicy(limit=2, scope=RestartScope.RANK)


def conditions(given, style=PLAIN):
    found = status(given.job(), style)["conditions"]
    return [f"{x['type']}={x['status']}/{x['reason']}" for x in found]


def test_a_waiting_job_was_created_and_has_not_started():
    given = Given(node()).when(submit())

    assert conditions(given) == ["Created=True/JobCreated"]
    assert "startTime" not in status(given.job())


def test_a_job_runs_as_soon_as_a_rank_that_decides_it_does():
    given = placed_job().when(c.ReportRanks(job="j1", attempt=1, started=(0,)))

    assert conditions(given) == ["Created=True/JobCreated", "Running=True/JobRunning"]
    assert conditions(given, Style(needs_all=True)) == ["Created=True/JobCreated"]
    assert replica_statuses(given.job()) == {"Worker": {"active": 1, "succeeded": 0, "failed": 0}}


def test_success_leaves_one_terminal_condition_and_a_completion_time():
    given = running_job().later(5).when(exited(0), exited(1))

    assert conditions(given) == [
        "Created=True/JobCreated",
        "Running=False/JobRunning",
        "Succeeded=True/JobSucceeded",
    ]
    assert status(given.job())["completionTime"] == "1970-01-01T00:16:45Z"
    assert replica_statuses(given.job()) == {"Worker": {"active": 0, "succeeded": 2, "failed": 0}}


def test_ranks_that_were_stopped_after_success_count_as_succeeded():
    given = running_job(spec(done_when=DoneWhen("Worker", first=True))).when(exited(0))
    assert replica_statuses(given.job())["Worker"] == {"active": 1, "succeeded": 1, "failed": 0}

    given.when(c.ReportRanks(job="j1", attempt=1, gone=(1,)))

    assert replica_statuses(given.job())["Worker"] == {"active": 0, "succeeded": 2, "failed": 0}


def test_restarting_replaces_running_until_it_runs_again():
    given = running_job(spec(restart=ALONE)).later(5).when(exited(0, 1))
    assert conditions(given)[1:] == ["Restarting=True/JobRestarting"]
    assert replica_statuses(given.job())["Worker"] == {"active": 1, "succeeded": 0, "failed": 1}

    given.later(100).when_time_comes()

    assert conditions(given)[1:] == ["Running=True/JobRunning"]


def test_a_rank_that_was_put_back_is_no_restart():
    given = running_job(spec(restart=ALONE)).when(c.ReportRanks(job="j1", attempt=1, gone=(1,)))

    assert conditions(given)[1:] == ["Running=True/JobRunning"]


def test_a_failed_job_says_why_and_no_longer_runs():
    given = running_job(spec(restart=RestartPolicy(limit=0))).later(5).when(exited(0, 1))

    assert conditions(given)[1:] == ["Running=False/JobRunning", "Failed=True/JobFailed"]
    last = status(given.job())["conditions"][-1]
    assert "worker-0 exited with code 1" in last["message"]
    renamed = Style(reasons={"retries_exhausted": "BackoffLimitExceeded"})
    assert conditions(given, renamed)[-1] == "Failed=True/BackoffLimitExceeded"


def test_suspension_and_resumption_are_told_in_order():
    asleep = c.SuspendJob(id="s", namespace="default", name="train")
    given = running_job().later(5).when(asleep)
    assert conditions(given)[1:] == ["Running=False/JobSuspended", "Suspended=True/JobSuspended"]
    assert "startTime" in status(given.job())

    gone = c.ReportRanks(job="j1", attempt=1, gone=(0, 1))
    given.when(gone, c.ResumeJob(id="r", namespace="default", name="train"))
    assert conditions(given)[1:] == ["Suspended=False/JobResumed"]

    given.when_time_comes().when_scheduled()
    given.when(c.ReportRanks(job="j1", attempt=2, started=(0, 1)))
    assert conditions(given)[1:] == ["Suspended=False/JobResumed", "Running=True/JobRunning"]


def test_some_operators_tell_of_running_in_any_case():
    given = placed_job().when(exited(0), exited(1))

    assert conditions(given)[1:] == ["Succeeded=True/JobSucceeded"]
    always = styled(Style(always_running=True))(given.job())["conditions"]
    assert [x["type"] for x in always][1:] == ["Succeeded", "Running"]


def test_a_rank_that_is_told_to_go_counts_as_failed():
    leaving = (Exit(1, None, Cause.EVICTION),)
    given = running_job(spec(restart=ALONE)).when(
        c.ReportRanks(job="j1", attempt=1, leaving=leaving)
    )

    assert conditions(given)[1:] == ["Restarting=True/JobRestarting"]
    assert replica_statuses(given.job())["Worker"] == {"active": 1, "succeeded": 0, "failed": 1}


def test_a_job_of_another_controller_has_no_status_of_ours():
    given = Given(node()).when(submit(of=spec(managed_by="kueue.x-k8s.io/multikueue")))

    assert status(given.job()) == {}
