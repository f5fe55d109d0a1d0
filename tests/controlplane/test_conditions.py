"""A job's state in the words of the Kubeflow operators."""

import pytest

from controlplane.kinds.conditions import PLAIN, Style, replica_statuses, status, styled
from controlplane.model import commands as c
from controlplane.model.failures import Cause, Exit
from controlplane.model.spec import DoneWhen, RestartPolicy, RestartRule, RestartScope, Role
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
    shown = status(given.job(), style)["conditions"]
    return [f"{x['type']}={x['status']}/{x['reason']}" for x in shown]


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


def test_ranks_that_end_after_the_verdict_have_not_failed():
    given = running_job(spec(done_when=DoneWhen("Worker", first=True))).when(exited(0))
    given.later(1).when(exited(1, None, reason="DeadlineExceeded"))
    assert replica_statuses(given.job())["Worker"] == {"active": 0, "succeeded": 2, "failed": 0}

    given = running_job(spec(restart=RestartPolicy(limit=0))).later(5).when(exited(0, 1))
    given.later(1).when(exited(1, 143))
    assert replica_statuses(given.job())["Worker"] == {"active": 0, "succeeded": 0, "failed": 1}


def test_a_rank_that_was_stopped_for_a_restart_of_its_gang_has_not_failed():
    given = running_job().later(5).when(exited(0, 1)).later(1).when(exited(1, 143))
    assert given.job().phase.value == "Restarting"
    assert replica_statuses(given.job())["Worker"] == {"active": 0, "succeeded": 0, "failed": 1}


def test_restarting_replaces_running_until_it_runs_again():
    given = running_job(spec(restart=ALONE)).later(5).when(exited(0, 1))
    assert conditions(given)[1:] == ["Restarting=True/JobRestarting"]
    assert replica_statuses(given.job())["Worker"] == {"active": 1, "succeeded": 0, "failed": 1}

    given.later(100).when_time_comes()

    assert conditions(given)[1:] == ["Running=True/JobRunning"]


def test_a_rank_that_was_put_back_is_no_restart():
    given = running_job(spec(restart=ALONE)).when(c.ReportRanks(job="j1", attempt=1, gone=(1,)))

    assert conditions(given)[1:] == ["Running=True/JobRunning"]


def test_a_failed_job_shows_why_and_no_longer_runs():
    given = running_job(spec(restart=RestartPolicy(limit=0))).later(5).when(exited(0, 1))

    assert conditions(given)[1:] == ["Running=False/JobRunning", "Failed=True/JobFailed"]
    last = status(given.job())["conditions"][-1]
    assert "worker-0 exited with code 1" in last["message"]
    renamed = Style(reasons={"retries_exhausted": "BackoffLimitExceeded"})
    assert conditions(given, renamed)[-1] == "Failed=True/BackoffLimitExceeded"


@pytest.mark.parametrize(
    ("rule", "seen_running"),
    [(RestartRule.NEVER, True), (RestartRule.EXIT_CODE, False)],
)
def test_where_the_first_observation_is_a_failure_only_that_is_reported(rule, seen_running):
    """The operators set Failed while they look at pods under ExitCode, and later under Never."""
    both = spec(
        roles=(Role(name="Worker", replicas=2, restart=rule),), done_when=DoneWhen("Worker")
    )
    first_look = c.ReportRanks(job="j1", attempt=1, started=(0, 1), exited=(Exit(0, 1),))
    given = placed_job(both).when(first_look)
    running = ["Running=False/JobRunning"] if seen_running else []
    assert conditions(given)[1:] == [*running, "Failed=True/JobFailed"]
    # Under some operators a job has the condition Running in any case, but for the same failures.
    assert conditions(given, Style(runs_first=True))[1:] == [*running, "Failed=True/JobFailed"]

    later = running_job(both).later(5).when(exited(0, 1))
    assert conditions(later)[1:] == ["Running=False/JobRunning", "Failed=True/JobFailed"]


def test_a_failed_role_that_is_looked_at_first_hides_what_runs():
    roles = (
        Role(name="Worker", replicas=1, restart=RestartRule.NEVER),
        Role(name="PS", replicas=1, restart=RestartRule.NEVER),
    )
    two = spec(roles=roles, done_when=DoneWhen("Worker"))
    first_look = c.ReportRanks(job="j1", attempt=1, started=(0, 1), exited=(Exit(1, 1),))
    given = placed_job(two).when(first_look)
    assert conditions(given)[1:] == ["Running=False/JobRunning", "Failed=True/JobFailed"]
    ordered = Style(order=("PS", "Worker"))
    assert conditions(given, ordered)[1:] == ["Failed=True/JobFailed"]


def test_suspension_and_resumption_are_reported_in_order():
    asleep = c.SuspendJob(id="s", namespace="default", name="train")
    given = running_job().later(5).when(asleep)
    assert conditions(given)[1:] == ["Running=False/JobSuspended", "Suspended=True/JobSuspended"]
    assert "startTime" in status(given.job())

    gone = c.ReportRanks(job="j1", attempt=1, gone=(0, 1))
    given.when(gone, c.ResumeJob(id="r", namespace="default", name="train"))
    resumed = ["Running=False/JobSuspended", "Suspended=False/JobResumed"]
    assert conditions(given)[1:] == resumed

    given.when_time_comes().when_scheduled()
    assert given.job().attempt.number == 2
    assert conditions(given)[1:] == resumed
    given.when(c.ReportRanks(job="j1", attempt=2, started=(0, 1)))
    assert conditions(given)[1:] == ["Suspended=False/JobResumed", "Running=True/JobRunning"]


def test_a_job_that_never_ran_has_no_running_condition_when_it_is_resumed():
    asleep = c.SuspendJob(id="s", namespace="default", name="train")
    awake = c.ResumeJob(id="r", namespace="default", name="train")
    given = placed_job().later(5).when(asleep)
    assert conditions(given)[1:] == ["Suspended=True/JobSuspended"]
    given.when(c.ReportRanks(job="j1", attempt=1, gone=(0, 1)), awake)
    assert conditions(given)[1:] == ["Suspended=False/JobResumed"]


def test_a_resumed_job_that_ends_before_it_runs_again_still_shows_that_it_ran():
    given = running_job().later(5).when(c.SuspendJob(id="s", namespace="default", name="train"))
    given.when(c.ReportRanks(job="j1", attempt=1, gone=(0, 1)))
    given.when(c.ResumeJob(id="r", namespace="default", name="train"))
    given.later(5).when(c.SuspendJob(id="s2", namespace="default", name="train"))
    assert conditions(given)[1:] == ["Running=False/JobSuspended", "Suspended=True/JobSuspended"]
    given.when(c.ResumeJob(id="r2", namespace="default", name="train"))
    given.when(c.CancelJob(id="c", namespace="default", name="train"))
    assert conditions(given)[1:] == [
        "Running=False/JobSuspended",
        "Suspended=False/JobResumed",
        "Failed=True/JobCancelled",
    ]


def test_some_operators_report_running_in_any_case():
    given = placed_job().when(exited(0), exited(1))

    assert conditions(given)[1:] == ["Succeeded=True/JobSucceeded"]
    always = styled(Style(always_running=True))(given.job())["conditions"]
    assert [x["type"] for x in always][1:] == ["Succeeded", "Running"]


def test_a_rank_that_is_asked_to_leave_counts_as_failed():
    leaving = (Exit(1, None, Cause.EVICTION),)
    given = running_job(spec(restart=ALONE)).when(
        c.ReportRanks(job="j1", attempt=1, leaving=leaving)
    )

    assert conditions(given)[1:] == ["Restarting=True/JobRestarting"]
    assert replica_statuses(given.job())["Worker"] == {"active": 1, "succeeded": 0, "failed": 1}


def test_a_job_of_another_controller_has_no_status_of_ours():
    given = Given(node()).when(submit(of=spec(managed_by="kueue.x-k8s.io/multikueue")))

    assert status(given.job()) == {}
