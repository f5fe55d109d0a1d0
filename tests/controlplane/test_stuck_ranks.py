"""Ranks that do not start: the cluster's report about them is known, and changes nothing else."""

import pytest

from controlplane.messages import job_text, restart_text
from controlplane.model import commands as c
from controlplane.model import events as e
from controlplane.model.cluster import NodeInfo
from controlplane.model.failures import Stuck
from controlplane.model.phases import Phase, RankState
from controlplane.queries.queries import why
from tests.controlplane.specification import Given, placed_job, running_job, spec, submit

REASON, DETAIL = "ErrImagePull", "main: no such image"
IMAGE = f"{REASON}: {DETAIL}"


def stuck(*ranks: int, reason: str = REASON, detail: str = DETAIL, **more: object) -> c.ReportRanks:
    problems = tuple(Stuck(i, reason, detail) for i in ranks)
    return c.ReportRanks(job="j1", attempt=1, stuck=problems, **more)


def test_why_a_rank_does_not_come_up_is_recorded_once():
    given = placed_job().when(stuck(0, 1)).then(e.RanksStuck("j1", 1, (0, 1), REASON, DETAIL))
    given.when(stuck(0, 1)).then()
    given.when(stuck(0, detail="main: in other words")).then()
    given.when(stuck(0, reason="CreateContainerError", detail="main: no room")).then_kinds(
        e.RanksStuck
    )


def test_why_names_the_stuck_ranks_and_the_reason():
    given = placed_job().when(stuck(0, 1))
    answer = why(given.world, given.job())
    assert [r.code for r in answer.reasons] == ["rank_stuck"]
    assert answer.reasons[0].message == f"worker-0 and 1 more: {IMAGE}"


def test_a_rank_that_starts_in_the_end_is_stuck_no_more():
    given = placed_job().when(stuck(1)).when(c.ReportRanks(job="j1", attempt=1, started=(0, 1)))
    assert given.job().attempt.ranks[1].reason == ""
    assert why(given.world, given.job()).reasons == []


def test_it_is_no_news_of_ranks_that_run_or_of_another_run():
    running_job().when(stuck(0)).then()
    placed_job().when(stuck(0, incarnation=3)).then()
    placed_job().when(stuck(0, started=(0,))).then_kinds(e.RanksStarted)


def test_a_gang_that_does_not_start_in_time_names_the_obstacle():
    given = placed_job(spec(start_timeout_s=60.0)).when(stuck(1)).later(61).when_time_comes()
    (restart,) = given.job().restarts
    assert restart_text(restart).endswith(f"; rank 1: {IMAGE}")
    assert given.job().attempt.ranks[1].state is RankState.PENDING


def test_a_job_whose_image_cannot_be_had_fails_in_the_end():
    given = placed_job(spec(image_timeout_s=60.0)).later(5).when(stuck(1)).later(59)
    given.when_time_comes().then()
    given.later(1).when_time_comes()
    message = f"no image for worker-1 on n1 within 60 s; {IMAGE}"
    assert (given.job().phase, given.job().reason) == (Phase.FAILED, "no_image")
    assert job_text(given.job()) == message
    assert given.job().restarts == ()


@pytest.mark.parametrize("word", ["ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"])
def test_each_way_to_have_no_image_counts(word: str):
    given = placed_job().when(stuck(0, 1, reason=word, detail="main: no")).later(300)
    given.when_time_comes()
    assert (
        job_text(given.job())
        == f"no image for worker-0 on n1 and 1 more within 300 s; {word}: main: no"
    )


def test_other_trouble_does_not_fail_the_job():
    given = (
        placed_job()
        .when(stuck(0, reason="CreateContainerError", detail="main: no room"))
        .later(599)
    )
    given.when_time_comes().then()
    given.later(1).when_time_comes()
    assert given.job().phase is Phase.RESTARTING


def test_an_image_that_comes_late_is_not_held_against_the_job():
    given = placed_job().when(stuck(0, 1)).later(100)
    given.when(c.ReportRanks(job="j1", attempt=1, started=(0,)))
    assert given.job().attempt.image_missing_since is not None
    given.when(stuck(1, reason="CreateContainerError", detail="main: no room"))
    assert given.job().attempt.image_missing_since is None
    given.when(stuck(1)).later(299).when_time_comes().then()
    given.when(c.ReportRanks(job="j1", attempt=1, started=(1,))).later(10_000)
    given.when_time_comes().then()
    assert given.job().phase is Phase.RUNNING


def test_unusable_devices_are_not_allocated():
    """Not even after a rank that held one of them has left."""
    node = NodeInfo("n1", 8, unusable=(6, 7))
    given = Given().when(c.ReportNode(node=node)).when(submit(of=spec(workers=2, gpus=3)))
    given.when_scheduled().then_kinds(e.GangPlaced)
    held = {i for slot in given.job().attempt.placement for i in slot.devices}
    assert held == set(range(6))
    given.when(c.ReportNode(node=NodeInfo("n1", 8, unusable=(0, 1))))
    assert given.world.devices.free.masks[0] == 0b11000000
    given.when(c.CancelJob(namespace="default", name="train"))
    given.when(c.ReportRanks(job="j1", attempt=1, gone=(0, 1)))
    assert given.world.devices.free.masks[0] == 0b11111100
