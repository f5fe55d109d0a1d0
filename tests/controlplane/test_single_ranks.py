"""Ranks that end, vanish, are asked to leave, or restart by themselves while the gang keeps running."""

import pytest
from msgspec.structs import replace

from controlplane.lifecycle.effects import newly_wanted, ranks_to_run, wanted
from controlplane.model import commands as c
from controlplane.model import events as e
from controlplane.model.failures import Cause, Exit
from controlplane.model.phases import Phase, RankState
from controlplane.model.spec import DoneWhen, RestartPolicy, RestartRule, RestartScope, Role
from tests.controlplane.specification import (
    Given,
    exited,
    node,
    on,
    placed_job,
    running_job,
    spec,
    submit,
)

ALONE = RestartPolicy(limit=2, scope=RestartScope.RANK)


def leaving(rank, cause=Cause.EVICTION):
    notice = Exit(rank, None, cause, "its node is drained")
    return c.ReportRanks(job="j1", attempt=1, leaving=(notice,))


def gone(rank, incarnation=0):
    return c.ReportRanks(job="j1", attempt=1, gone=(rank,), incarnation=incarnation)


def rank_state(given, rank):
    return given.job().attempt.ranks[rank].state


def test_a_rank_that_is_asked_to_leave_keeps_its_devices_until_it_is_gone():
    given = running_job().when(leaving(0))

    given.then_kinds(e.RanksLost, e.JobRestarting)
    assert given.job().restarts[0].cause is Cause.EVICTION
    assert given.job().failures == 0
    assert given.world.devices.free.total == 0

    given.when(gone(0), gone(1)).then_kinds(e.RanksGone, e.RanksGone, e.AttemptEnded)
    assert given.world.devices.free.total == 8


def test_a_rank_that_leaves_starts_again_only_when_its_old_process_is_gone():
    given = running_job(spec(restart=ALONE)).when(leaving(0))
    given.then_kinds(e.RanksLost, e.RankRestarting)

    given.later(1_000).when_time_comes().then()
    assert rank_state(given, 0) is RankState.LOST
    assert 0 not in ranks_to_run(given.job())

    given.when(gone(0)).then_kinds(e.RanksGone)
    assert rank_state(given, 0) is RankState.BACKOFF
    given.when_time_comes().then(e.RankRelaunched("j1", 1, 0))
    assert rank_state(given, 0) is RankState.PENDING
    # The first run's end comes late, and is not the second's.
    given.when(gone(0)).then()


def test_a_leaving_rank_that_exits_starts_again_too():
    given = running_job(spec(restart=ALONE)).when(leaving(0)).when(exited(0, 143))

    given.then_kinds(e.RanksExited)
    assert rank_state(given, 0) is RankState.BACKOFF
    assert given.world.devices.free.total == 0


@pytest.mark.parametrize(
    "loss",
    [c.ReportNodeLost(node="n1", detail="it crashed"), c.ReportNodeRemoved(node="n1")],
)
def test_a_rank_in_back_off_is_gone_with_its_node_at_once(loss):
    """Its process has ended and was reported, so no other report of its end will come."""
    given = running_job(spec(restart=ALONE)).when(exited(0, 1))
    assert rank_state(given, 0) is RankState.BACKOFF

    given.when(loss)

    assert e.RanksLost in [type(event) for event in given.decided]
    assert rank_state(given, 0) is RankState.GONE
    assert 0 not in ranks_to_run(given.job())
    given.world.check()


def test_a_node_that_is_removed_takes_a_leaving_rank_and_the_gang_with_it():
    given = running_job(spec(restart=ALONE)).when(leaving(0))

    given.when(c.ReportNodeRemoved(node="n1"))

    given.then_kinds(e.NodeRemoved, e.RanksLost, e.RanksGone, e.JobRestarting, e.AttemptEnded)


def test_never_means_that_a_rank_asked_to_leave_fails_the_job():
    given = running_job(spec(rule=RestartRule.NEVER)).when(leaving(0))

    given.then_kinds(e.RanksLost, e.JobFailed)
    assert given.job().reason == "restart_never"


@pytest.mark.parametrize("rule", list(RestartRule))
def test_a_rank_that_vanished_is_replaced_at_once_under_any_rule(rule):
    given = running_job(spec(rule=rule, restart=ALONE)).when(gone(1))

    given.then_kinds(e.RanksGone, e.RankRestarting)
    given.when_time_comes().then(e.RankRelaunched("j1", 1, 1))
    assert given.job().phase is Phase.RUNNING
    assert given.job().failures == 0


def test_a_rank_that_keeps_on_vanishing_waits_longer():
    given = running_job(spec(restart=ALONE)).when(gone(1)).when_time_comes()
    given.when(c.ReportRanks(job="j1", attempt=1, started=(1,), incarnation=1))

    given.when(gone(1, incarnation=1)).then_kinds(e.RanksGone, e.RankRestarting)

    assert given.decided[1].retry_at > given.now
    given.when_time_comes().then()


def in_place(*counts):
    return c.ReportRanks(job="j1", attempt=1, restarted=counts)


def test_restarts_in_place_spend_the_budget_and_the_last_one_ends_the_job():
    given = running_job()

    given.when(in_place((0, 1))).then_kinds(e.RanksRestartedInPlace)
    assert (given.job().failures, given.job().phase) == (1, Phase.RUNNING)
    given.when(in_place((0, 1))).then()
    given.when(in_place((1, 1))).then_kinds(e.RanksRestartedInPlace, e.JobFailed)
    assert given.job().reason == "retries_exhausted"


def test_a_limit_of_0_allows_no_restart_in_place():
    given = running_job(spec(restart=RestartPolicy(limit=0)))

    given.when(in_place((0, 1))).then_kinds(e.RanksRestartedInPlace, e.JobFailed)


def test_under_never_nothing_restarts_in_place_regardless_of_counts():
    given = running_job(spec(rule=RestartRule.NEVER)).when(in_place((0, 9)))

    given.then_kinds(e.RanksRestartedInPlace)
    assert given.job().failures == 0


def test_a_count_of_a_million_makes_a_short_ledger():
    given = running_job(spec(restart=RestartPolicy(limit=None))).when(in_place((0, 1_000_000)))

    assert len(given.job().restarts) == 100
    assert given.job().phase is Phase.RUNNING


def test_any_rank_may_decide():
    given = running_job(spec(done_when=DoneWhen("Worker", any=True)))

    given.when(exited(1)).then_kinds(e.RanksExited, e.JobSucceeded)


def completed(*ranks):
    exits = tuple(Exit(i, None, Cause.COMPLETED) for i in ranks)
    return c.ReportRanks(job="j1", attempt=1, exited=exits)


def test_ranks_that_succeeded_count_even_if_their_exit_code_was_not_observed():
    given = running_job().when(completed(0))
    given.then_kinds(e.RanksExited)

    given.when(completed(1)).then_kinds(e.RanksExited, e.JobSucceeded, e.AttemptEnded)


def test_the_first_rank_decides_alone_only_with_a_code_that_was_seen():
    given = running_job(spec(done_when=DoneWhen("Worker", first=True)))

    given.when(completed(0)).then_kinds(e.RanksExited)

    assert given.job().phase is Phase.RUNNING


def optional(rule=RestartRule.NEVER):
    role = Role(name="Worker", replicas=2, gpus=4, restart=rule, optional=True)
    return spec(roles=(role,))


def placed_on_two_nodes(of):
    placement = on(("n1", range(4)), ("n2", range(4)))
    given = Given(node("n1"), node("n2")).when(submit(of=of))
    return given.happened(e.GangPlaced("j1", 1, placement))


def test_a_job_goes_on_without_an_expendable_rank():
    given = running_job(optional()).when(exited(1, 1))

    given.then_kinds(e.RanksExited)
    assert given.job().phase is Phase.RUNNING


@pytest.mark.parametrize("lost_first", [True, False])
def test_a_gang_that_does_without_a_rank_has_started_when_the_others_are_up(lost_first):
    of = replace(optional(), restart=RestartPolicy(limit=0, counts_platform=True))
    given = placed_on_two_nodes(of)
    lost = c.ReportNodeLost(node="n2", detail="down")
    up = c.ReportRanks(job="j1", attempt=1, started=(0,))
    given.when(*((lost, up) if lost_first else (up, lost)))

    assert given.decided[-1] == e.GangStarted("j1", 1)
    assert given.job().phase is Phase.RUNNING
    # Nothing waits any more for what will not start.
    given.later(of.start_timeout_s + 1).when_time_comes()
    assert given.decided == []


def test_a_job_does_not_go_on_when_none_of_an_expendable_role_is_left():
    given = running_job(optional()).when(exited(1, 1))

    given.when(exited(0, 1)).then_kinds(e.RanksExited, e.JobFailed, e.AttemptEnded)


LAUNCHER = Role(name="Launcher", starts_after="Worker")
WORKERS = Role(name="Worker", replicas=2, gpus=2, is_server=True)


def test_a_role_may_wait_until_another_one_runs():
    waiting = spec(roles=(LAUNCHER, WORKERS), done_when=DoneWhen("Launcher"))
    given = Given(node()).when(submit(of=waiting)).when_scheduled()
    before = wanted(given.job()).revision
    assert ranks_to_run(given.job()) == [1, 2]

    given.when(c.ReportRanks(job="j1", attempt=1, started=(1,)))
    assert wanted(given.job()).revision == before
    given.when(c.ReportRanks(job="j1", attempt=1, started=(2,)))

    assert ranks_to_run(given.job()) == [0, 1, 2]
    assert wanted(given.job()).revision != before


def test_a_job_that_another_controller_runs_is_left_alone():
    theirs = spec(managed_by="kueue.x-k8s.io/multikueue")
    given = Given(node()).when(submit(of=theirs)).when_scheduled()

    given.then()
    assert given.job().phase is Phase.QUEUED


ELASTIC = spec(
    roles=(Role(name="Worker", replicas=2, gpus=2, min_replicas=1, max_replicas=4),),
)


def elastic_job():
    given = Given(node()).when(submit(of=ELASTIC)).when_scheduled()
    return given.when(c.ReportRanks(job="j1", attempt=1, started=(0, 1)))


def scale(replicas):
    return c.ScaleJob(namespace="default", name="train", role="Worker", replicas=replicas)


def test_a_gang_that_grew_within_one_step_is_asked_for_anew():
    """The engine compares what is wanted before and after the step, which has both events."""
    given = elastic_job()
    before = given.job()
    given.when(scale(4)).when_scheduled()

    assert ranks_to_run(given.job()) == [0, 1, 2, 3]
    assert newly_wanted(before, given.job()) is not None


def test_an_elastic_gang_grows_while_it_runs():
    given = elastic_job().when(scale(4)).then_kinds(e.JobScaled)
    given.when_scheduled().then_kinds(e.RanksAdded)
    assert (given.decided[0].first, len(given.decided[0].placement)) == (2, 2)
    assert ranks_to_run(given.job()) == [0, 1, 2, 3]
    assert given.world.devices.free.total == 0

    given.when(c.ReportRanks(job="j1", attempt=1, started=(2, 3)))
    assert (given.job().phase, given.job().attempt.number) == (Phase.RUNNING, 1)
    given.when(*[exited(i) for i in range(4)])
    assert given.job().phase is Phase.SUCCEEDED


def test_a_gang_grows_by_what_there_is_room_for():
    given = elastic_job()
    given.when(submit("other", "j2", of=spec(workers=1, gpus=2))).when_scheduled()

    given.when(scale(4)).when_scheduled()

    assert [len(event.placement) for event in given.decided] == [1]
    given.when_scheduled().then()


def test_waiting_jobs_come_before_growth():
    given = elastic_job()
    given.when(submit("other", "j2", of=spec(workers=1, gpus=8)))

    given.when(scale(4)).when_scheduled().then()


def test_an_elastic_gang_shrinks_while_it_runs_and_its_devices_are_free_when_ranks_are_gone():
    given = elastic_job().when(scale(1)).then_kinds(e.JobScaled, e.RanksReleased)
    assert ranks_to_run(given.job()) == [0]
    assert given.world.devices.free.total == 4

    given.when(gone(1)).then_kinds(e.RanksGone)

    assert given.world.devices.free.total == 6
    assert (given.job().phase, given.job().restarts) == (Phase.RUNNING, ())
    given.when(exited(0)).then_kinds(e.RanksExited, e.JobSucceeded, e.AttemptEnded)


def test_a_gang_that_shrank_grows_again_once_the_old_ranks_are_gone():
    given = elastic_job().when(scale(1)).when(scale(3)).then_kinds(e.JobScaled)
    given.when_scheduled().then()

    given.when(gone(1)).when_scheduled().then_kinds(e.RanksAdded)

    assert [rank.incarnation for rank in given.job().attempt.ranks] == [0, 1, 0]


def test_a_gang_may_end_before_it_has_grown():
    given = elastic_job().when(scale(4))

    given.when(exited(0), exited(1))

    assert given.job().phase is Phase.SUCCEEDED


@pytest.mark.parametrize("replicas", [0, 5])
def test_an_elastic_role_has_bounds(replicas):
    given = elastic_job()

    assert given.refuses(scale(replicas)).code == "invalid_job"


def test_a_rank_that_was_let_go_may_end_as_it_likes():
    given = elastic_job().when(scale(1)).when(scale(2))

    given.when(exited(1, 143)).then_kinds(e.RanksExited)

    assert given.job().phase is Phase.RUNNING
    given.when_scheduled().then_kinds(e.RanksAdded)


def test_a_leaving_rank_lets_go_when_its_job_is_stopped_meanwhile():
    given = running_job(spec(restart=ALONE)).when(leaving(0))
    given.when(c.CancelJob(id="x", namespace="default", name="train"))

    given.when(exited(0, 143), gone(1))

    assert given.job().live_attempt is None
    assert given.world.devices.free.total == 8


def resolved(commit, rank=0, **more):
    return c.ReportRanks(job="j1", attempt=1, commits=((rank, commit),), **more)


def test_the_commit_of_the_code_is_recorded_once_and_another_one_too():
    given = placed_job().when(resolved("aaa", started=(0, 1)))

    given.then_kinds(e.CodeResolved, e.RanksStarted, e.GangStarted)
    given.when(resolved("aaa", 1)).then()
    given.when(resolved("bbb", 1)).then(e.CodeResolved("j1", 1, 1, "bbb"))
    assert given.job().commits == ("aaa", "bbb")


def test_the_commit_that_an_older_attempt_had_is_no_news():
    given = running_job()

    given.when(c.ReportRanks(job="j1", attempt=7, commits=((0, "aaa"),))).then()
    given.when(c.ReportRanks(job="none", attempt=1, commits=((0, "aaa"),))).then()
