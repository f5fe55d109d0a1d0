"""A job's life, event by event."""

import pytest

from controlplane.lifecycle.job import EVOLVE
from controlplane.lifecycle.restart import retry_after
from controlplane.lifecycle.transitions import TRANSITIONS
from controlplane.messages import job_text, restart_text
from controlplane.model import commands as c
from controlplane.model import events as e
from controlplane.model.failures import Cause, Exit
from controlplane.model.phases import FINISHED, AttemptState, Phase, RankState
from controlplane.model.reasons import JobRemovalReason
from controlplane.model.spec import DoneWhen, RestartPolicy, RestartRule, RestartScope, Role
from tests.controlplane.specification import (
    BOTH_ON_N1,
    Given,
    exited,
    node,
    on,
    placed_job,
    running_job,
    spec,
    submit,
)


def test_a_submitted_job_waits_in_its_queue():
    given = Given(node()).when(submit())

    given.then(e.JobSubmitted("j1", "default", "train", spec()))
    assert given.job().phase is Phase.QUEUED


def test_a_job_may_be_submitted_suspended():
    command = c.SubmitJob(job="j1", namespace="default", name="a", spec=spec(), suspended=True)

    given = Given(node()).when(command)

    given.then_kinds(e.JobSubmitted, e.JobSuspended)
    assert given.job().phase is Phase.SUSPENDED
    given.when_scheduled().then()


def test_the_scheduler_gives_every_rank_its_devices_at_once():
    given = Given(node()).when(submit()).when_scheduled()

    given.then(e.GangPlaced("j1", 1, BOTH_ON_N1))
    assert given.job().phase is Phase.STARTING


def test_a_gang_runs_when_its_last_rank_has_started():
    given = placed_job()
    given.when(c.ReportRanks(job="j1", attempt=1, started=(0,)))
    given.then(e.RanksStarted("j1", 1, (0,)))
    given.when(c.ReportRanks(job="j1", attempt=1, started=(1,)))
    given.then(e.RanksStarted("j1", 1, (1,)), e.GangStarted("j1", 1))
    assert given.job().phase is Phase.RUNNING


def test_a_job_succeeds_when_every_deciding_rank_has_exited_with_0():
    given = running_job().when(exited(0))
    given.then(e.RanksExited("j1", 1, (Exit(0, 0),)))
    given.later(5).when(exited(1))
    given.then(e.RanksExited("j1", 1, (Exit(1, 0),)), e.JobSucceeded("j1"), e.AttemptEnded("j1", 1))
    assert given.job().finished_at == given.now
    assert given.world.devices.free.total == 8


def test_the_first_rank_alone_may_decide():
    given = running_job(spec(done_when=DoneWhen("Worker", first=True)))

    given.when(exited(0)).then_kinds(e.RanksExited, e.JobSucceeded)

    assert given.job().phase is Phase.SUCCEEDED
    assert given.job().live_attempt is not None


def test_devices_are_free_only_when_the_rank_is_gone():
    given = running_job(spec(done_when=DoneWhen("Worker", first=True))).when(exited(0))
    assert given.world.devices.free.total == 4

    given.when(c.ReportRanks(job="j1", attempt=1, gone=(1,)))

    given.then(e.RanksGone("j1", 1, (1,)), e.AttemptEnded("j1", 1))
    assert given.world.devices.free.total == 8


def test_a_failed_rank_restarts_the_whole_gang_after_back_off():
    given = running_job().when(exited(1, 137))
    given.then_kinds(e.RanksExited, e.JobRestarting)
    restarting = given.decided[1]
    assert restarting.restart.cause is Cause.EXIT
    assert restarting.restart.exit_code == 137
    assert restarting.restart.node == "n1"
    assert restarting.retry_at == given.now + retry_after(RestartPolicy(), 1, "j1")

    given.when(c.ReportRanks(job="j1", attempt=1, gone=(0,)))
    given.then(e.RanksGone("j1", 1, (0,)), e.AttemptEnded("j1", 1))
    assert given.job().phase is Phase.RESTARTING

    given.later(restarting.retry_at - given.now).when_time_comes()
    given.then(e.JobRequeued("j1"))
    given.when_scheduled().then(e.GangPlaced("j1", 2, BOTH_ON_N1))


def test_back_off_that_ends_before_the_ranks_are_gone_waits_for_them():
    given = running_job().when(exited(1, 1)).later(1_000)
    given.when_time_comes().then()

    given.when(c.ReportRanks(job="j1", attempt=1, gone=(0,)))

    given.then_kinds(e.RanksGone, e.AttemptEnded, e.JobRequeued)


def test_a_job_fails_when_its_restarts_are_used_up():
    given = running_job(spec(restart=RestartPolicy(limit=0)))

    given.when(exited(0, 1))

    given.then_kinds(e.RanksExited, e.JobFailed)
    assert given.job().reason == "retries_exhausted"
    assert "worker-0 exited with code 1 on n1" in job_text(given.job())


@pytest.mark.parametrize(
    ("rule", "code", "restarts"),
    [
        (RestartRule.NEVER, 1, False),
        (RestartRule.NEVER, 137, False),
        (RestartRule.ON_FAILURE, 1, True),
        (RestartRule.ALWAYS, 1, True),
        (RestartRule.EXIT_CODE, 1, False),
        (RestartRule.EXIT_CODE, 127, False),
        (RestartRule.EXIT_CODE, 128, True),
        (RestartRule.EXIT_CODE, 137, True),
        (RestartRule.EXIT_CODE, 255, True),
        (RestartRule.EXIT_CODE, None, True),
    ],
)
def test_the_restart_rule_of_the_role_decides(rule, code, restarts):
    given = running_job(spec(rule=rule)).when(exited(0, code))

    given.then_kinds(e.RanksExited, e.JobRestarting if restarts else e.JobFailed)


def test_the_platforms_faults_do_not_spend_the_budget():
    given = running_job(spec(restart=RestartPolicy(limit=0)))

    given.when(exited(0, None, cause=Cause.EVICTION))

    given.then_kinds(e.RanksExited, e.JobRestarting)
    assert given.job().failures == 0
    assert given.job().restarts[0].cause is Cause.EVICTION


def test_the_platforms_faults_spend_the_budget_if_asked():
    policy = RestartPolicy(limit=0, counts_platform=True)

    given = running_job(spec(restart=policy)).when(exited(0, None, cause=Cause.EVICTION))

    given.then_kinds(e.RanksExited, e.JobFailed)


def test_a_rank_that_never_ran_may_be_tried_again_even_under_never():
    given = placed_job(spec(rule=RestartRule.NEVER))

    given.when(exited(0, None, cause=Cause.EVICTION))

    given.then_kinds(e.RanksExited, e.JobRestarting)


def test_out_of_memory_is_the_persons_fault():
    given = running_job().when(exited(0, 137, cause=Cause.OOM))

    assert given.job().failures == 1
    assert "out of memory" in job_text(given.job())


def test_a_permanent_failure_together_with_a_retryable_one_decides():
    given = running_job(spec(rule=RestartRule.EXIT_CODE))
    report = c.ReportRanks(job="j1", attempt=1, exited=(Exit(0, 137), Exit(1, 2)))

    given.when(report).then_kinds(e.RanksExited, e.JobFailed, e.AttemptEnded)

    assert given.job().reason == "permanent_exit_code"


def test_a_lost_node_explains_the_exit_codes_of_the_other_ranks():
    given = running_job(spec(rule=RestartRule.EXIT_CODE))
    lost = Exit(1, None, Cause.NODE_LOST)
    report = c.ReportRanks(job="j1", attempt=1, exited=(Exit(0, 1), lost))

    given.when(report)

    assert given.job().phase is Phase.RESTARTING
    assert given.job().restarts[-1].cause is Cause.NODE_LOST


def test_success_is_not_lost_to_a_failure_in_the_same_report():
    given = running_job(spec(done_when=DoneWhen("Worker", first=True)))
    report = c.ReportRanks(job="j1", attempt=1, exited=(Exit(1, 1), Exit(0, 0)))

    given.when(report)

    assert given.job().phase is Phase.SUCCEEDED


def test_a_lost_node_restarts_its_gangs_and_keeps_their_devices():
    given = running_job().when(c.ReportNodeLost(node="n1", detail="no heartbeat"))

    given.then_kinds(e.NodeLost, e.RanksLost, e.JobRestarting)
    assert given.job().restarts[0].cause is Cause.NODE_LOST
    assert not given.job().restarts[0].spends_budget
    assert given.world.devices.used["default"] == 8


def test_a_removed_node_takes_its_ranks_along():
    given = running_job().when(c.ReportNodeRemoved(node="n1"))

    given.then_kinds(e.NodeRemoved, e.RanksLost, e.RanksGone, e.JobRestarting, e.AttemptEnded)
    assert given.world.devices.used["default"] == 0


def test_a_node_that_comes_back_offers_only_what_is_not_held():
    given = running_job().when(exited(1), c.ReportNodeLost(node="n1"))
    given.when(c.ReportNode(node=node().info))

    given.then(node())
    assert given.world.devices.free.total == 4


def test_a_survey_reports_every_node_and_those_that_left():
    given = Given(node("n1"), node("n2"), node("n3"))
    survey = c.ReportCluster(up=(node("n1").info, node("n4").info), down=(node("n2").info,))

    given.when(survey)

    given.then(
        node("n4"),
        e.NodeLost("n2"),
        e.NodeRemoved("n3"),
        e.ClusterSurveyed(),
    )
    given.when(survey).then()


def test_a_gang_on_two_nodes_that_both_left_restarts_once():
    placement = on(("n1", range(4)), ("n2", range(4)))
    given = Given(node("n1"), node("n2")).when(submit())
    given.happened(e.GangPlaced("j1", 1, placement))

    given.when(c.ReportCluster(up=()))

    assert [type(x) for x in given.decided].count(e.JobRestarting) == 1
    assert given.job().live_attempt is None


def test_a_pod_deleted_by_hand_restarts_the_gang_for_free():
    given = running_job().when(c.ReportRanks(job="j1", attempt=1, gone=(1,)))

    given.then_kinds(e.RanksGone, e.JobRestarting)
    assert given.job().restarts[0].cause is Cause.VANISHED
    assert given.job().failures == 0


@pytest.mark.parametrize(
    "report",
    [
        c.ReportRanks(job="missing", attempt=1, started=(0,)),
        c.ReportRanks(job="j1", attempt=2, started=(0,)),
        c.ReportRanks(job="j1", attempt=0, exited=(Exit(0, 1),)),
        c.ReportRanks(job="j1", attempt=1, started=(0, 1)),
        c.ReportRanks(job="j1", attempt=1, started=(7,), gone=(-1,), exited=(Exit(9, 1),)),
        c.ReportRanks(job="j1", attempt=1, incarnation=1, exited=(Exit(0, 1),)),
        c.ReportNodeLost(node="missing"),
        c.ReportNode(node=node().info),
        c.ReportNodeRemoved(node="missing"),
    ],
)
def test_a_late_repeated_or_misplaced_report_is_ignored(report):
    running_job().when(report).then()


def test_an_exit_reported_before_the_start_counts_as_both():
    given = placed_job().when(c.ReportRanks(job="j1", attempt=1, exited=(Exit(0, 0), Exit(1, 0))))

    assert given.job().phase is Phase.SUCCEEDED
    given.when(c.ReportRanks(job="j1", attempt=1, started=(0, 1))).then()


def test_a_repeated_exit_does_not_fail_the_job_twice():
    given = running_job().when(exited(1, 1))

    given.when(exited(1, 1)).then()

    assert given.job().failures == 1


def test_a_gang_that_does_not_start_in_time_is_tried_again_with_back_off():
    given = placed_job(spec(start_timeout_s=60)).when(
        c.ReportRanks(job="j1", attempt=1, started=(0,))
    )
    given.later(59).when_time_comes().then()
    given.later(1).when_time_comes().then_kinds(e.JobRestarting)

    ledger = given.job().restarts[0]
    assert (ledger.cause, ledger.spends_budget) == (Cause.START_TIMEOUT, False)
    assert "1 of 2 ranks had not started after 60 s" in restart_text(ledger)


def test_a_job_fails_at_its_active_deadline_in_any_phase():
    given = running_job(spec(active_deadline_s=100)).later(100).when_time_comes()

    given.then_kinds(e.JobFailed)
    assert given.job().reason == "deadline_exceeded"


def test_the_active_deadline_does_not_count_time_in_the_queue_before_the_first_start():
    given = Given().when(submit(of=spec(active_deadline_s=10))).later(1_000)

    given.when_time_comes().then()


def test_the_active_deadline_counts_through_back_off():
    given = running_job(spec(active_deadline_s=12)).when(exited(0, 1))
    given.later(12).when_time_comes().then_kinds(e.JobFailed)


def test_suspension_stops_the_gang_and_the_active_deadline():
    given = running_job(spec(active_deadline_s=100))
    given.when(c.SuspendJob(namespace="default", name="train"))
    given.then(e.JobSuspended("j1"))
    assert given.job().attempt.state is AttemptState.STOPPING
    given.later(1_000).when_time_comes().then()

    given.when(c.ResumeJob(namespace="default", name="train")).then(e.JobResumed("j1"))
    given.when(c.ReportRanks(job="j1", attempt=1, gone=(0, 1)))
    given.then_kinds(e.RanksGone, e.AttemptEnded, e.JobRequeued)


def test_a_queued_job_resumes_into_the_queue():
    given = Given(node()).when(submit(), c.SuspendJob(namespace="default", name="train"))

    given.when(c.ResumeJob(namespace="default", name="train"))

    given.then(e.JobResumed("j1"), e.JobRequeued("j1"))


def test_suspending_twice_changes_nothing():
    suspend = c.SuspendJob(namespace="default", name="train")
    running_job().when(suspend).when(suspend).then()


def test_a_cancelled_job_is_finished_at_once_and_its_ranks_follow():
    given = running_job().when(c.CancelJob(namespace="default", name="train"))

    given.then(e.JobCancelled("j1"))
    assert given.job().phase is Phase.CANCELLED
    given.when(c.ReportRanks(job="j1", attempt=1, gone=(0, 1)))
    given.then_kinds(e.RanksGone, e.AttemptEnded)


def test_a_finished_job_goes_after_its_time_to_live():
    given = running_job(spec(ttl_s=60)).when(exited(0), exited(1))
    given.later(59).when_time_comes().then()
    given.later(1).when_time_comes().then(e.JobRemoved("j1", JobRemovalReason.TTL))
    assert given.world.job("default", "train") is None


def test_a_job_with_ranks_left_outlives_its_time_to_live():
    given = running_job(spec(ttl_s=60)).when(c.CancelJob(namespace="default", name="train"))
    given.later(100).when_time_comes().then()

    given.when(c.ReportRanks(job="j1", attempt=1, gone=(0, 1)))
    given.when_time_comes().then(e.JobRemoved("j1", JobRemovalReason.TTL))


def test_a_deleted_job_is_forgotten_when_nothing_of_it_is_left():
    given = running_job().when(c.DeleteJob(namespace="default", name="train"))
    given.then(e.JobCancelled("j1"), e.JobDeleteRequested("j1"))
    assert "being deleted" in given.refuses(submit(job="j2")).message

    given.when(c.ReportRanks(job="j1", attempt=1, gone=(0, 1)))

    given.then_kinds(e.RanksGone, e.AttemptEnded, e.JobRemoved)
    given.when(submit(job="j2")).then_kinds(e.JobSubmitted)


def test_a_request_that_means_another_job_of_that_name_is_refused():
    given = running_job()
    assert given.refuses(c.CancelJob(namespace="default", name="train", job="j0")).code == (
        "no_such_job"
    )
    given.when(c.CancelJob(namespace="default", name="train", job="j1")).then(e.JobCancelled("j1"))


def test_a_running_job_that_is_scaled_starts_again_with_its_new_size():
    given = running_job()
    given.when(c.ScaleJob(namespace="default", name="train", role="Worker", replicas=1))
    given.then_kinds(e.JobScaled, e.JobRestarting)
    assert not given.decided[1].restart.spends_budget

    given.when(c.ReportRanks(job="j1", attempt=1, gone=(0, 1))).when_scheduled()

    given.then(e.GangPlaced("j1", 2, on(("n1", range(4)))))


def test_a_single_rank_may_restart_in_its_place():
    policy = RestartPolicy(limit=2, scope=RestartScope.RANK)
    given = running_job(spec(restart=policy)).when(exited(1, 1))
    given.then_kinds(e.RanksExited, e.RankRestarting)
    assert given.job().phase is Phase.RUNNING
    assert given.world.devices.free.total == 0

    given.later(10).when_time_comes().then(e.RankRelaunched("j1", 1, 1))
    assert given.job().attempt.ranks[1].incarnation == 1
    given.when(c.ReportRanks(job="j1", attempt=1, started=(1,), incarnation=1))
    given.then(e.RanksStarted("j1", 1, (1,)))
    given.when(exited(1, 1)).then()


def test_a_rank_launched_again_that_does_not_start_in_time_restarts_the_gang():
    policy = RestartPolicy(limit=2, scope=RestartScope.RANK)
    given = running_job(spec(restart=policy, start_timeout_s=60)).when(exited(1, 1))
    given.later(10).when_time_comes().then_kinds(e.RankRelaunched)

    given.later(59).when_time_comes().then()
    given.later(1).when_time_comes().then_kinds(e.JobRestarting)

    assert given.job().restarts[-1].cause is Cause.START_TIMEOUT


def test_a_rank_in_back_off_is_not_late_for_the_start():
    policy = RestartPolicy(limit=2, scope=RestartScope.RANK, backoff_s_first=200)
    given = placed_job(spec(restart=policy, start_timeout_s=60))
    given.when(c.ReportRanks(job="j1", attempt=1, started=(0,)), exited(1, 1))

    given.later(60).when_time_comes().then()

    given.later(200).when_time_comes().then_kinds(e.RankRelaunched)


def test_a_rank_in_back_off_lets_go_when_its_gang_stops():
    policy = RestartPolicy(limit=2, scope=RestartScope.RANK)
    given = running_job(spec(restart=policy)).when(exited(1, 1))

    given.when(c.CancelJob(namespace="default", name="train"))
    assert given.world.devices.free.total == 4
    given.when(c.ReportRanks(job="j1", attempt=1, gone=(0,)))

    given.then_kinds(e.RanksGone, e.AttemptEnded)
    assert given.job().attempt.ranks[1].state is RankState.EXITED


def test_single_rank_restarts_spend_the_same_budget():
    policy = RestartPolicy(limit=1, scope=RestartScope.RANK)
    given = running_job(spec(restart=policy)).when(exited(1, 1))

    given.when(exited(0, 1))

    assert given.job().reason == "retries_exhausted"


def test_a_lost_node_restarts_the_gang_even_with_single_rank_restarts():
    policy = RestartPolicy(scope=RestartScope.RANK)
    given = running_job(spec(restart=policy)).when(c.ReportNodeLost(node="n1"))

    assert given.job().phase is Phase.RESTARTING


def test_a_healthy_run_resets_the_back_off():
    given = running_job().when(exited(0, 1))
    assert given.job().streak == 1
    given.when(c.ReportRanks(job="j1", attempt=1, gone=(1,)))
    given.later(60).when_time_comes().when_scheduled()
    given.when(c.ReportRanks(job="j1", attempt=2, started=(0, 1)))
    given.later(RestartPolicy().healthy_after_s)

    given.when(c.ReportRanks(job="j1", attempt=2, exited=(Exit(0, 1),)))

    assert given.job().streak == 1
    assert given.job().failures == 2


def test_a_served_role_does_not_decide():
    roles = (Role(name="Worker", replicas=1, gpus=1), Role(name="PS", is_server=True))
    of = spec(roles=roles)
    given = Given(node()).when(submit(of=of)).when_scheduled()
    given.when(c.ReportRanks(job="j1", attempt=1, started=(0, 1)))

    given.when(exited(0)).then_kinds(e.RanksExited, e.JobSucceeded)

    given.when(c.ReportRanks(job="j1", attempt=1, gone=(1,)))
    given.then_kinds(e.RanksGone, e.AttemptEnded)


def test_no_transition_leaves_a_finished_phase():
    assert all(to is phase for (phase, _), to in TRANSITIONS.items() if phase in FINISHED)


def test_every_phase_can_be_reached():
    assert set(TRANSITIONS.values()) | {Phase.QUEUED} == set(Phase)


def test_every_event_of_a_job_has_a_function_that_applies_it():
    assert set(EVOLVE) == set(e.JOB_EVENTS) - {e.JobSubmitted, e.JobRemoved}
    assert {kind for _, kind in TRANSITIONS} == set(EVOLVE) | {e.JobRemoved}


@pytest.mark.parametrize("permanent", [False, True])
def test_running_out_of_memory_may_be_permanent_under_the_exit_code_rule(permanent):
    role = Role(
        name="Worker",
        replicas=2,
        gpus=4,
        restart=RestartRule.EXIT_CODE,
        oom_is_permanent=permanent,
    )

    given = running_job(spec(roles=(role,))).when(exited(0, 137, cause=Cause.OOM))

    given.then_kinds(e.RanksExited, e.JobFailed if permanent else e.JobRestarting)
