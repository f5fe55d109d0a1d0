"""Jobs that wait for others: when they queue, when they fail, what is refused at the door."""

import pytest

from controlplane.decisions.autonomous import makes_room
from controlplane.messages import job_text
from controlplane.model import commands as c
from controlplane.model import events as e
from controlplane.model.dependencies import After, Condition, condition_of, parse_after
from controlplane.model.phases import Phase
from tests.controlplane.specification import node
from tests.controlplane.workflows.flow import Flow, after, array, asks, job

SUCCEEDED, FINISHED, FAILED = Condition.SUCCEEDED, Condition.FINISHED, Condition.FAILED


def given() -> Flow:
    return Flow(node(gpus=64))


# ---------------------------------------------------------------- waiting


def test_a_job_waits_outside_its_queue_until_the_other_has_succeeded() -> None:
    world = given().when(job("prep"), job("train", "prep"))
    assert [place.job for place in world.world.waiting.keys("default")] == ["id-prep"]
    world.when_scheduled()
    assert {event.job for event in world.decided} == {"id-prep"}

    world.ends("id-prep")

    assert e.DependenciesMet("id-train") in world.decided
    assert [place.job for place in world.world.waiting.keys("default")] == ["id-train"]
    assert makes_room(world.world, [e.DependenciesMet("id-train")])


def test_the_place_in_the_queue_counts_from_when_the_dependencies_were_met() -> None:
    world = given().when(job("prep"), job("train", "prep"), job("other"))
    world.later(50).ends("id-prep")
    assert [place.job for place in world.world.waiting.keys("default")] == ["id-other", "id-train"]
    assert world.job("id-train").queued_at == world.now


@pytest.mark.parametrize(
    ("condition", "code", "joins"),
    [
        (SUCCEEDED, 0, True),
        (SUCCEEDED, 1, False),
        (FAILED, 0, False),
        (FAILED, 1, True),
        (FINISHED, 0, True),
        (FINISHED, 1, True),
    ],
)
def test_each_condition_with_each_end(condition: Condition, code: int, joins: bool) -> None:
    world = given().when(job("prep"), job("train", after("prep", condition)))
    world.ends("id-prep", code=code)
    train = world.job("id-train")
    if joins:
        assert (train.phase, train.awaits) == (Phase.QUEUED, ())
    else:
        assert (train.phase, train.reason) == (Phase.FAILED, "dependency_failed")


def test_a_job_waits_for_all_of_several_jobs() -> None:
    world = given().when(job("a"), job("b"), job("c", "a", after("b", FINISHED)))
    assert world.ends("id-a").job("id-c").awaits
    assert not world.ends("id-b", code=1).job("id-c").awaits


def test_one_dependency_that_cannot_be_met_is_enough_to_fail() -> None:
    world = given().when(job("a"), job("b"), job("c", "a", "b")).ends("id-b", code=1)
    assert world.job("id-c").phase is Phase.FAILED
    assert "default/b" in job_text(world.job("id-c"))


def test_a_chain_fails_in_one_step_and_a_cleanup_job_runs() -> None:
    chain = (job("a"), job("b", "a"), job("c", "b"), job("clean", after("c", FAILED)))
    world = given().when(*chain).when(asks(c.CancelJob, "a"))
    assert world.phases("id-a", "id-b", "id-c") == [Phase.CANCELLED, Phase.FAILED, Phase.FAILED]
    assert not world.job("id-clean").awaits


def test_a_dependency_that_is_met_already_lets_the_job_queue_at_once() -> None:
    world = given().when(job("prep")).ends("id-prep")
    world.when(job("train", "prep"))
    assert world.kinds() == ["JobSubmitted", "DependenciesMet"]


def test_a_suspended_or_restarted_dependency_is_waited_for() -> None:
    world = given().when(job("prep"), job("train", "prep")).when(asks(c.SuspendJob, "prep"))
    assert world.job("id-train").awaits
    world.when(asks(c.ResumeJob, "prep"))
    assert world.job("id-train").awaits
    assert not world.ends("id-prep").job("id-train").awaits


def test_a_suspended_job_learns_that_its_dependencies_are_met() -> None:
    world = given().when(job("prep"), job("train", "prep")).when(asks(c.SuspendJob, "train"))
    world.ends("id-prep")
    assert world.job("id-train").phase is Phase.SUSPENDED
    assert not world.job("id-train").awaits
    world.when(asks(c.ResumeJob, "train"))
    assert [place.job for place in world.world.waiting.keys("default")] == ["id-train"]


def test_a_job_that_is_resumed_too_early_goes_on_waiting() -> None:
    world = given().when(job("prep"), job("train", "prep")).when(asks(c.SuspendJob, "train"))
    world.when(asks(c.ResumeJob, "train"))
    assert world.job("id-train").awaits
    assert [place.job for place in world.world.waiting.keys("default")] == ["id-prep"]


def test_a_job_that_waits_can_be_cancelled_and_deleted() -> None:
    world = given().when(job("prep"), job("a", "prep"), job("b", "prep"))
    world.when(asks(c.CancelJob, "a"), asks(c.DeleteJob, "b")).ends("id-prep")
    assert world.phases("id-a") == [Phase.CANCELLED]
    assert "id-b" not in world.world.jobs


# ---------------------------------------------------------------- deletion


@pytest.mark.parametrize(
    ("condition", "phase"),
    [(SUCCEEDED, Phase.FAILED), (FINISHED, Phase.QUEUED), (FAILED, Phase.QUEUED)],
)
def test_deleting_a_job_that_others_wait_for_counts_as_cancelling_it(
    condition: Condition, phase: Phase
) -> None:
    world = given().when(job("prep"), job("train", after("prep", condition)))
    world.when(asks(c.DeleteJob, "prep"))
    assert "id-prep" not in world.world.jobs
    assert (world.job("id-train").phase, world.job("id-train").awaits) == (phase, ())


def test_a_job_that_succeeded_and_is_deleted_at_once_has_succeeded() -> None:
    world = given().when(job("prep"), job("train", "prep")).placed("id-prep")
    world.ends("id-prep").when(asks(c.DeleteJob, "prep"))
    assert "id-prep" not in world.world.jobs
    assert world.phases("id-train") == [Phase.QUEUED]


def test_a_new_job_with_the_old_name_is_another_job() -> None:
    world = given().when(job("prep"), job("train", after("prep", FINISHED)))
    world.when(asks(c.DeleteJob, "prep"))
    assert world.phases("id-train") == [Phase.QUEUED]


def test_a_dependency_with_no_time_to_live_is_judged_before_it_is_removed() -> None:
    world = given().when(job("prep", ttl_s=0.0), job("train", "prep")).ends("id-prep")
    assert "id-prep" not in world.world.jobs
    assert world.phases("id-train") == [Phase.QUEUED]


# ---------------------------------------------------------------- refusals


def test_an_unknown_job_is_refused() -> None:
    refusal = given().refuses(job("train", "nothing"))
    assert refusal.code == "unknown_dependency"
    assert refusal.field == "spec.after[0]"
    assert "default/nothing" in refusal.message


def test_a_job_that_waits_for_itself_is_refused() -> None:
    assert given().refuses(job("train", "train")).code == "dependency_cycle"
    assert given().refuses(job("train", "default/train")).code == "dependency_cycle"


def test_a_job_of_another_namespace_is_named_with_it() -> None:
    world = given().when(job("prep"))
    assert world.refuses(job("train", "other/prep")).code == "unknown_dependency"
    assert world.when(job("train", "default/prep")).job("id-train").awaits


def test_an_id_is_as_good_as_a_name() -> None:
    world = given().when(job("prep"), job("train", "id-prep"))
    assert world.job("id-train").awaits[0].target == "id-prep"


def test_what_can_never_be_met_is_refused_at_the_door() -> None:
    world = given().when(job("prep")).ends("id-prep", code=1)
    assert world.refuses(job("train", "prep")).code == "dependency_failed"


def test_too_many_dependencies_are_refused() -> None:
    refusal = given().when(job("prep")).refuses(job("train", *["prep"] * 101))
    assert refusal.code == "invalid_job"


def test_index_by_index_is_between_arrays() -> None:
    world = given().when(job("prep"), array("0-3"))
    corresponding = Condition.CORRESPONDING
    assert world.refuses(job("train", after("sweep", corresponding))).code == "invalid_job"
    twin = array("0-3", after("prep", corresponding), name="eval", owner="a2")
    assert world.refuses(twin).code == "invalid_job"
    wider = array("0-4", after("sweep", corresponding), name="eval", owner="a2")
    refusal = world.refuses(wider)
    assert (refusal.code, "index 4" in refusal.message) == ("unknown_dependency", True)


# ---------------------------------------------------------------- texts


@pytest.mark.parametrize(
    ("text", "job_name", "condition"),
    [
        ("prep", "prep", SUCCEEDED),
        ("prep:finished", "prep", FINISHED),
        ("ns/prep:failed", "ns/prep", FAILED),
        ("prep:afterok", "prep", SUCCEEDED),
        ("afterany:prep", "prep", FINISHED),
        ("afternotok:sweep[7]", "sweep[7]", FAILED),
        ("aftercorr:sweep", "sweep", Condition.CORRESPONDING),
    ],
)
def test_dependencies_are_read_in_our_words_and_in_slurms(
    text: str, job_name: str, condition: Condition
) -> None:
    assert parse_after(text) == After(job_name, condition)
    assert parse_after(str(parse_after(text))) == After(job_name, condition)


@pytest.mark.parametrize("text", ["", ":", "prep:", "prep:later", "a:b:c", "after:prep"])
def test_other_texts_are_refused_with_the_conditions_that_there_are(text: str) -> None:
    with pytest.raises(ValueError, match=r"JOB|condition"):
        parse_after(text)


def test_unknown_conditions_name_the_known_ones() -> None:
    with pytest.raises(ValueError, match="succeeded, finished, failed, corresponding, afterok"):
        condition_of("later")
