"""Arrays: members as the limit allows, ends, retries, cascades, refusals."""

import pytest

from controlplane.lifecycle.owner import MEMBERS_WAITING_MAX
from controlplane.model import commands as c
from controlplane.model import events as e
from controlplane.model.cluster import NodeInfo
from controlplane.model.dependencies import Condition
from controlplane.model.errors import Rejected
from controlplane.model.owners import (
    ARRAY_SIZE_MAX,
    INDEX_MAX,
    array_text,
    indices_text,
    parse_array,
)
from controlplane.model.phases import OwnerPhase, Phase
from controlplane.model.policy import Queue
from tests.controlplane.specification import node
from tests.controlplane.workflows.flow import Flow, after, array, asks, job, names

ACTIVE, SUSPENDED = OwnerPhase.ACTIVE, OwnerPhase.SUSPENDED


def given(gpus: int = 64) -> Flow:
    return Flow(node(gpus=gpus))


def member(index: int, retry: int = 0) -> str:
    return f"a1-{index}-{retry}" if retry else f"a1-{index}"


# ---------------------------------------------------------------- members


def test_an_array_submits_a_job_for_each_index() -> None:
    world = given().when(array("0-2,7"))
    assert names(world.decided) == ["sweep-0", "sweep-1", "sweep-2", "sweep-7"]
    assert world.kinds()[0] == "OwnerSubmitted"
    owned = world.job(member(7)).owner
    assert (owned.id, owned.name, owned.index) == ("a1", "default/sweep", 7)


def test_ranks_learn_their_index_in_our_words_and_in_slurms() -> None:
    world = given().when(array("2-10:4"))
    assert world.job(member(6)).owner.env == {
        "MUSTER_ARRAY_INDEX": "6",
        "MUSTER_ARRAY_COUNT": "3",
        "MUSTER_ARRAY_MIN": "2",
        "MUSTER_ARRAY_MAX": "10",
        "SLURM_ARRAY_TASK_ID": "6",
        "SLURM_ARRAY_TASK_COUNT": "3",
        "SLURM_ARRAY_TASK_MIN": "2",
        "SLURM_ARRAY_TASK_MAX": "10",
    }


def test_members_are_what_was_submitted_with_the_array() -> None:
    world = given().when(array("0-1", priority=7, ttl_s=60.0))
    spec = world.job(member(0)).spec
    assert (spec.priority, spec.ttl_s, spec.after) == (7, None, ())
    assert world.array().spec.ttl_s == 60.0


def test_the_limit_holds_and_the_next_index_follows_each_end() -> None:
    world = given().when(array("0-4%2"))
    assert names(world.decided) == ["sweep-0", "sweep-1"]
    world.ends(member(1))
    assert names(world.decided) == ["sweep-2"]
    world.ends(member(0), code=1)
    assert names(world.decided) == ["sweep-3"]


def test_without_a_limit_so_many_wait_at_a_time() -> None:
    world = Flow(node(gpus=64))
    world.world.check = lambda: None  # type: ignore[method-assign]
    world.when(array(f"0-{MEMBERS_WAITING_MAX + 99}"))
    assert len(world.world.jobs) == MEMBERS_WAITING_MAX
    world.placed(member(0))
    assert names(world.decided) == [f"sweep-{MEMBERS_WAITING_MAX}"]
    assert len(world.world.jobs) == MEMBERS_WAITING_MAX + 1


def test_an_array_succeeds_when_all_members_have() -> None:
    world = given().when(array("0-2%1")).ends(member(0)).ends(member(1)).ends(member(2))
    assert world.kinds()[-2:] == ["AttemptEnded", "OwnerSucceeded"]
    assert (world.array().phase, world.array().finished_at) == (OwnerPhase.SUCCEEDED, world.now)


def test_an_array_fails_when_all_have_ended_and_not_all_succeeded() -> None:
    world = given().when(array("0-1")).ends(member(0), code=1)
    assert world.array().phase is ACTIVE
    world.ends(member(1))
    assert (world.array().phase, world.array().failure) == (OwnerPhase.FAILED, "members_failed")


def test_a_member_that_does_not_fit_any_more_is_submitted_all_the_same() -> None:
    world = given(gpus=8).when(c.ReportSurveyed()).when(array("0-1%1"))
    world.ends(member(0)).when(c.ReportNode(node=NodeInfo("n1", 0)))
    assert member(1) in world.world.jobs


# ---------------------------------------------------------------- requests


def test_a_cancelled_array_cancels_its_members_and_submits_no_more() -> None:
    world = given().when(array("0-9%3")).ends(member(0)).placed(member(1))
    world.when(asks(c.CancelJob))
    assert world.kinds() == ["OwnerCancelled", *["JobCancelled"] * 3]
    assert world.array().phase is OwnerPhase.CANCELLED
    assert world.phases(member(0), member(1), member(2), member(3)) == [
        Phase.SUCCEEDED,
        *[Phase.CANCELLED] * 3,
    ]


def test_suspend_and_resume_reach_the_members() -> None:
    world = given().when(array("0-9%3")).placed(member(0)).when(asks(c.SuspendJob))
    assert world.array().phase is SUSPENDED
    assert set(world.phases(member(0), member(1), member(2))) == {Phase.SUSPENDED}
    world.when(c.ReportRanks(job=member(0), attempt=1, gone=(0,)))
    world.when(asks(c.ResumeJob))
    assert set(world.phases(member(0), member(1), member(2))) == {Phase.QUEUED}


def test_a_member_that_a_person_suspended_stays_so() -> None:
    world = given().when(array("0-2")).when(asks(c.SuspendJob, "sweep-1"))
    world.when(asks(c.SuspendJob), asks(c.ResumeJob))
    assert world.phases(member(0), member(1)) == [Phase.QUEUED, Phase.SUSPENDED]
    world.when(asks(c.SuspendJob, "sweep-0", job=member(0)))
    assert world.phases(member(0)) == [Phase.SUSPENDED]


def test_a_suspended_array_submits_nothing() -> None:
    world = given().when(array("0-3%2", suspended=True))
    assert world.kinds() == ["OwnerSubmitted", "OwnerSuspended"]
    world.when(asks(c.ResumeJob))
    assert names(world.decided) == ["sweep-0", "sweep-1"]


def test_a_deleted_array_takes_its_members_with_it() -> None:
    world = given().when(array("0-3%3")).ends(member(0)).placed(member(1))
    world.when(asks(c.DeleteJob))
    assert set(world.world.jobs) == {member(1)}
    world.when(c.ReportRanks(job=member(1), attempt=1, gone=(0,)))
    assert world.kinds()[-2:] == ["JobRemoved", "OwnerRemoved"]
    assert (world.world.jobs, world.world.owners) == ({}, {})
    assert world.when(array("0-3")).array().phase is ACTIVE


def test_the_time_to_live_is_of_the_whole_array() -> None:
    world = given().when(array("0-1", ttl_s=60.0)).ends(member(0)).later(100).ends(member(1))
    assert world.world.next_deadline() == world.now + 60.0
    world.later(59).when_time_comes()
    assert world.decided == []
    world.later(1).when_time_comes()
    assert world.kinds()[0] == "OwnerDeleteRequested"
    assert (world.world.jobs, world.world.owners) == ({}, {})


def test_a_single_member_can_be_cancelled() -> None:
    world = given().when(array("0-1")).when(asks(c.CancelJob, "sweep-0")).ends(member(1))
    assert world.array().phase is OwnerPhase.FAILED


# ---------------------------------------------------------------- retries


def test_failed_indices_are_retried_with_new_jobs_of_the_same_name() -> None:
    world = (
        given().when(array("0-2")).ends(member(0), code=1).ends(member(1)).ends(member(2), code=1)
    )
    world.when(asks(c.RetryMembers))
    assert world.decided[0] == e.MembersRetried("a1", (0, 2))
    assert names(world.decided) == ["sweep-0", "sweep-2"]
    assert world.array().phase is ACTIVE
    assert set(world.world.jobs) == {member(0, 1), member(1), member(2, 1)}
    world.ends(member(0, 1)).ends(member(2, 1), code=1)
    assert world.array().phase is OwnerPhase.FAILED
    world.when(asks(c.RetryMembers, indices=(2,))).ends(member(2, 2))
    assert world.array().phase is OwnerPhase.SUCCEEDED


def test_a_retry_waits_until_nothing_of_the_last_job_is_left() -> None:
    world = given().when(array("0-1")).placed(member(0)).when(asks(c.CancelJob, "sweep-0"))
    world.when(asks(c.RetryMembers, indices=(0,)))
    assert world.decided == [e.MembersRetried("a1", (0,))]
    world.when(c.ReportRanks(job=member(0), attempt=1, gone=(0,)))
    assert world.kinds()[-2:] == ["JobRemoved", "JobSubmitted"]
    assert world.job(member(0, 1)).phase is Phase.QUEUED


def test_a_retry_keeps_to_the_limit_and_goes_before_new_indices() -> None:
    world = given().when(array("0-5%2")).ends(member(0), code=1)
    world.when(asks(c.RetryMembers, indices=(0,)))
    assert names(world.decided) == []
    world.ends(member(1))
    assert names(world.decided) == ["sweep-0"]


# ---------------------------------------------------------------- dependencies


def test_an_array_waits_for_a_job_before_it_submits() -> None:
    world = given().when(job("prep"), array("0-1", "prep"))
    assert world.array().awaits
    assert set(world.world.jobs) == {"id-prep"}
    world.ends("id-prep")
    assert names(world.decided) == ["sweep-0", "sweep-1"]


def test_an_array_fails_with_its_dependency() -> None:
    world = given().when(job("prep"), array("0-1", "prep")).ends("id-prep", code=1)
    failed = world.array()
    assert (failed.phase, failed.failure) == (OwnerPhase.FAILED, "dependency_failed")
    assert failed.failed_job == "default/prep"


def test_a_job_waits_for_a_whole_array() -> None:
    world = given().when(array("0-1%1"), job("collect", "sweep"))
    assert world.ends(member(0)).job("id-collect").awaits
    assert not world.ends(member(1)).job("id-collect").awaits


def test_a_job_waits_for_one_index_that_is_not_there_yet() -> None:
    world = given().when(array("0-5%1"), job("a", "sweep[1]"), job("b", "sweep-1"))
    assert world.job("id-a").awaits == world.job("id-b").awaits
    assert world.ends(member(0)).job("id-a").awaits
    assert not world.ends(member(1)).job("id-a").awaits


def test_an_index_that_never_comes_fails_what_waits_for_it() -> None:
    world = given().when(array("0-5%1"), job("a", "sweep[4]")).when(asks(c.CancelJob))
    assert world.phases("id-a") == [Phase.FAILED]


def test_members_correspond_index_by_index() -> None:
    pairs = array("0-2", after("sweep", Condition.CORRESPONDING), name="eval", owner="a2")
    world = given().when(array("0-2"), pairs)
    world.ends(member(1)).ends(member(2), code=1)
    assert world.job("a2-0").awaits
    assert not world.job("a2-1").awaits
    assert world.phases("a2-1", "a2-2") == [Phase.QUEUED, Phase.FAILED]


def test_a_retried_index_is_waited_for_again() -> None:
    world = given().when(array("0-1")).ends(member(0), code=1)
    world.when(asks(c.RetryMembers, indices=(0,))).when(job("a", "sweep-0"))
    assert world.job("id-a").awaits
    assert not world.ends(member(0, 1)).job("id-a").awaits


def test_deleting_an_array_that_others_wait_for_counts_as_cancelling_it() -> None:
    world = given().when(
        array("0-1"), job("a", "sweep"), job("b", after("sweep", Condition.FINISHED))
    )
    world.when(asks(c.DeleteJob))
    assert world.phases("id-a", "id-b") == [Phase.FAILED, Phase.QUEUED]


# ---------------------------------------------------------------- refusals


def test_a_name_is_taken_once() -> None:
    world = given().when(job("train"), array("0-3%1"))
    for command in (
        array("0-1", owner="a2"),
        array("0-1", name="train", owner="a2"),
        job("sweep"),
        job("sweep-3"),
    ):
        assert world.refuses(command).code == "name_taken", command
    assert world.when(job("sweep-4"), job("sweep-03")).phases("id-sweep-4") == [Phase.QUEUED]


def test_an_array_whose_member_would_have_the_name_of_a_job_is_refused() -> None:
    refusal = given().when(job("sweep-3")).refuses(array("0-3%1"))
    assert (refusal.code, "sweep-3" in refusal.message) == ("name_taken", True)


def test_an_id_is_taken_once() -> None:
    world = given().when(array("0-1"))
    assert world.refuses(array("0-1", name="other")).code == "id_taken"


def test_names_of_members_must_be_names() -> None:
    assert given().refuses(array("999999", name="a" * 56)).code == "invalid_job"


def test_an_array_that_can_never_fit_is_refused_as_a_job_is() -> None:
    world = given(gpus=0).when(c.ReportSurveyed())
    assert world.refuses(array("0-1")).code == "can_never_fit"
    assert world.refuses(array("0-1", queue="none")).code == "unknown_queue"


def test_members_are_deleted_with_their_array_only() -> None:
    world = given().when(array("0-1"))
    assert world.refuses(asks(c.DeleteJob, "sweep-0")).code == "owned_job"
    amend = c.AmendJob(namespace="default", name="sweep-0", ttl_s=5.0)
    assert world.refuses(amend).code == "owned_job"


def test_a_member_of_a_suspended_array_is_not_resumed_alone() -> None:
    world = given().when(array("0-1")).when(asks(c.SuspendJob))
    assert world.refuses(asks(c.ResumeJob, "sweep-0")).code == "owner_suspended"


def test_an_array_is_neither_scaled_nor_amended() -> None:
    world = given().when(array("0-1"))
    scale = c.ScaleJob(namespace="default", name="sweep", role="Worker", replicas=2)
    assert world.refuses(scale).code == "not_for_arrays"
    assert world.refuses(c.AmendJob(namespace="default", name="sweep")).code == "not_for_arrays"


def test_a_finished_array_is_only_deleted_or_retried() -> None:
    world = given().when(array("0-1")).when(asks(c.CancelJob))
    for kind in (c.CancelJob, c.SuspendJob, c.ResumeJob, c.RetryMembers):
        assert world.refuses(asks(kind)).code == "already_finished", kind
    assert world.refuses(asks(c.CancelJob, job="other")).code == "no_such_job"


def test_resuming_an_array_that_is_not_suspended_is_refused() -> None:
    assert given().when(array("0-1")).refuses(asks(c.ResumeJob)).code == "not_suspended"


@pytest.mark.parametrize(
    ("name", "indices", "code"),
    [
        ("sweep", (9,), "no_such_index"),
        ("sweep", (0,), "nothing_to_retry"),
        ("sweep", (1,), "nothing_to_retry"),
        ("sweep", (3,), "nothing_to_retry"),
        ("train", (), "not_an_array"),
        ("none", (), "no_such_job"),
    ],
)
def test_what_cannot_be_retried_is_refused(name: str, indices: tuple[int, ...], code: str) -> None:
    world = given().when(job("train"), array("0-5%2")).ends(member(0))
    assert world.refuses(asks(c.RetryMembers, name, indices=indices)).code == code


def test_without_a_failed_index_there_is_nothing_to_retry() -> None:
    world = given().when(array("0-1"))
    assert world.refuses(asks(c.RetryMembers)).code == "nothing_to_retry"
    world.placed(member(0)).when(asks(c.CancelJob, "sweep-0"))
    world.when(asks(c.RetryMembers, indices=(0,)))
    assert world.refuses(asks(c.RetryMembers, indices=(0,))).code == "nothing_to_retry"


def test_a_queue_that_an_array_uses_is_not_removed() -> None:
    world = given().when(c.DefineQueue(queue=Queue("a"))).when(job("prep"))
    world.when(array("0-1", "prep", queue="a"))
    assert world.refuses(c.RemoveQueue(name="a")).code == "queue_in_use"


def test_a_member_that_is_refused_fails_its_array(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names and queues are kept for members, so only another kind of owner can get here."""
    from controlplane.decisions import autonomous

    def refuses(world: object, submitted: e.JobSubmitted) -> None:
        if submitted.name == "sweep-1":
            raise Rejected("unknown_queue", "gone")

    monkeypatch.setattr(autonomous, "admit_member", refuses)
    world = given().when(array("0-2"))
    failed = world.array()
    assert (failed.phase, failed.failure) == (OwnerPhase.FAILED, "member_refused")
    assert (failed.failed_job, failed.error) == ("default/sweep-1", "unknown_queue")
    assert world.phases(member(0)) == [Phase.CANCELLED]


# ---------------------------------------------------------------- the table


def test_the_table_refuses_members_of_an_array_that_is_not_active() -> None:
    world = given().when(array("0-5%1")).when(asks(c.SuspendJob))
    submitted = e.JobSubmitted(
        member(1), "default", "sweep-1", world.array().spec.job, owner=world.job(member(0)).owner
    )
    with pytest.raises(AssertionError, match="cannot happen"):
        world.happened(submitted)


@pytest.mark.parametrize("kind", [e.OwnerResumed, e.OwnerReady, e.OwnerDeleteRequested])
def test_the_table_refuses_events_out_of_order(kind: type[e.OwnerEvent]) -> None:
    world = given().when(array("0-1"))
    with pytest.raises(AssertionError):
        world.happened(kind("a1"))


# ---------------------------------------------------------------- texts


@pytest.mark.parametrize(
    ("text", "indices", "limit"),
    [
        ("0-3", (0, 1, 2, 3), None),
        ("0-99%10", tuple(range(100)), 10),
        ("1,3,5-7", (1, 3, 5, 6, 7), None),
        ("0-20:5%2", (0, 5, 10, 15, 20), 2),
        ("7", (7,), None),
        ("3,1,2-3", (1, 2, 3), None),
        (" 1 , 2 ", (1, 2), None),
    ],
)
def test_arrays_are_read_as_slurm_writes_them(
    text: str, indices: tuple[int, ...], limit: int | None
) -> None:
    assert parse_array(text) == (indices, limit)
    assert parse_array(indices_text(indices))[0] == indices


@pytest.mark.parametrize(
    "text",
    ["", "%", "0-3%", "0-3%0", "0-3%x", "3-1", "0-9:0", "-1", "a", "1-", "1,,2", "0-3%-1", "1.5",
     f"0-{ARRAY_SIZE_MAX}", str(INDEX_MAX + 1), "9" * 100, f"0-6000,{6001}-12001"],
)  # fmt: skip
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse_array(text)


def test_an_array_is_written_as_it_was_read() -> None:
    world = given().when(array("0-2,7%2"))
    assert array_text(world.array().spec) == "0-2,7%2"
