"""What may change in the life of a job without touching its ranks."""

from controlplane import commands as c
from controlplane import events as e
from controlplane.model import CleanPods
from tests.controlplane.specification import exited, running_job, spec


def limits(**more):
    kept = {"ttl_s": None, "active_deadline_s": None, "restart_limit": 6, "clean": CleanPods.NONE}
    return c.AmendJob(namespace="default", name="train", **{**kept, **more})


def test_limits_can_be_changed_while_a_job_runs_and_hold_from_then_on():
    given = running_job()
    given.when(limits(active_deadline_s=50)).then_kinds(e.JobAmended)
    given.when(limits(active_deadline_s=50)).then()
    assert "between" in given.refuses(limits(active_deadline_s=-1)).message

    given.later(50).when_time_comes().then_kinds(e.JobFailed)


def test_limits_that_are_not_named_stay_as_they_are():
    given = running_job(spec(ttl_s=7.0))
    given.when(c.AmendJob(namespace="default", name="train", clean=CleanPods.ALL))
    given.then(e.JobAmended("j1", 7.0, None, given.job().spec.restart.limit, CleanPods.ALL))
    given.when(c.AmendJob(namespace="default", name="train", ttl_s=None))
    assert (given.job().spec.ttl_s, given.job().spec.clean) == (None, CleanPods.ALL)
    given.when(c.AmendJob(namespace="default", name="train")).then()


def test_a_finished_job_may_still_be_given_a_time_to_live():
    given = running_job().when(exited(0), exited(1))
    given.when(c.AmendJob(namespace="default", name="train", ttl_s=60)).then_kinds(e.JobAmended)
    given.later(60).when_time_comes().then(e.JobRemoved("j1", "ttl"))


def test_nothing_else_of_a_finished_job_changes():
    given = running_job().when(exited(0), exited(1))
    for change in (
        {"active_deadline_s": 50},
        {"restart_limit": 9},
        {"clean": CleanPods.ALL},
        {"ttl_s": 60, "restart_limit": 9},
    ):
        refusal = given.refuses(limits(**change))
        assert refusal.code == "already_finished"
        assert "only its time to live" in refusal.message
