"""Ranks that do not come up: what the cluster says of them is known, and changes nothing else."""

import pytest

from controlplane import commands as c
from controlplane import events as e
from controlplane.attempt import RankState
from controlplane.job import Phase
from controlplane.model import NodeInfo
from controlplane.queries import why
from tests.controlplane.specification import Given, placed_job, running_job, spec, submit

IMAGE = "ErrImagePull: main: no such image"


def stuck(*ranks: int, message: str = IMAGE, **more: object) -> c.ReportRanks:
    return c.ReportRanks(job="j1", attempt=1, stuck=tuple((i, message) for i in ranks), **more)


def test_why_a_rank_does_not_come_up_is_recorded_once():
    given = placed_job().when(stuck(0, 1)).then(e.RanksStuck("j1", 1, (0, 1), IMAGE))
    given.when(stuck(0, 1)).then()
    given.when(stuck(0, message="ErrImagePull: main: in other words")).then()
    given.when(stuck(0, message="CreateContainerError: main: no room")).then_kinds(e.RanksStuck)


def test_why_says_which_ranks_and_for_what_reason():
    given = placed_job().when(stuck(0, 1))
    told = why(given.world, given.job())
    assert [r.code for r in told.reasons] == ["rank_stuck"]
    assert told.reasons[0].message == f"worker-0 and 1 more: {IMAGE}"


def test_a_rank_that_starts_in_the_end_is_stuck_no_more():
    given = placed_job().when(stuck(1)).when(c.ReportRanks(job="j1", attempt=1, started=(0, 1)))
    assert given.job().attempt.ranks[1].message == ""
    assert why(given.world, given.job()).reasons == []


def test_it_is_no_news_of_ranks_that_run_or_of_another_run():
    running_job().when(stuck(0)).then()
    placed_job().when(stuck(0, incarnation=3)).then()
    placed_job().when(stuck(0, started=(0,))).then_kinds(e.RanksStarted)


def test_a_gang_that_does_not_come_up_in_time_says_what_kept_it():
    given = placed_job(spec(start_timeout_s=60.0)).when(stuck(1)).later(61).when_time_comes()
    (restart,) = given.job().restarts
    assert restart.message.endswith(f"; rank 1: {IMAGE}")
    assert given.job().attempt.ranks[1].state is RankState.PENDING


def test_a_job_whose_image_cannot_be_had_fails_in_the_end():
    given = placed_job(spec(image_timeout_s=60.0)).later(5).when(stuck(1)).later(59)
    given.when_time_comes().then()
    given.later(1).when_time_comes()
    told = f"no image for worker-1 on n1 within 60 s; {IMAGE}"
    assert (given.job().phase, given.job().reason) == (Phase.FAILED, "no_image")
    assert given.job().message == told
    assert given.job().restarts == ()


@pytest.mark.parametrize("word", ["ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"])
def test_each_way_to_have_no_image_counts(word: str):
    given = placed_job().when(stuck(0, 1, message=f"{word}: main: no")).later(300)
    given.when_time_comes()
    assert (
        given.job().message
        == f"no image for worker-0 on n1 and 1 more within 300 s; {word}: main: no"
    )


def test_other_trouble_does_not_fail_the_job():
    given = placed_job().when(stuck(0, message="CreateContainerError: main: no room")).later(599)
    given.when_time_comes().then()
    given.later(1).when_time_comes()
    assert given.job().phase is Phase.RESTARTING


def test_an_image_that_comes_late_is_not_held_against_the_job():
    given = placed_job().when(stuck(0, 1)).later(100)
    given.when(c.ReportRanks(job="j1", attempt=1, started=(0,)))
    assert given.job().attempt.imageless_at is not None
    given.when(stuck(1, message="CreateContainerError: main: no room"))
    assert given.job().attempt.imageless_at is None
    given.when(stuck(1)).later(299).when_time_comes().then()
    given.when(c.ReportRanks(job="j1", attempt=1, started=(1,))).later(10_000)
    given.when_time_comes().then()
    assert given.job().phase is Phase.RUNNING


def test_devices_that_nobody_may_have_are_given_to_nobody():
    """Not even after a rank that held one of them has left."""
    told = NodeInfo("n1", 8, unusable=(6, 7))
    given = Given().when(c.ReportNode(node=told)).when(submit(of=spec(workers=2, gpus=3)))
    given.when_scheduled().then_kinds(e.GangPlaced)
    held = {i for slot in given.job().attempt.placement for i in slot.devices}
    assert held == set(range(6))
    given.when(c.ReportNode(node=NodeInfo("n1", 8, unusable=(0, 1))))
    assert given.world.free.masks[0] == 0b11000000
    given.when(c.CancelJob(namespace="default", name="train"))
    given.when(c.ReportRanks(job="j1", attempt=1, gone=(0, 1)))
    assert given.world.free.masks[0] == 0b11111100
