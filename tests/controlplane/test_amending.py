"""What may change in the life of a job without touching its ranks."""

from controlplane.model import commands as c
from controlplane.model import events as e
from controlplane.model.policy import Queue
from controlplane.model.reasons import JobRemovalReason
from controlplane.model.spec import CleanPods, Scheduling
from tests.controlplane.specification import Given, exited, node, running_job, spec, submit


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
    given.then(e.JobAmended("j1", clean=CleanPods.ALL))
    given.when(c.AmendJob(namespace="default", name="train", ttl_s=None))
    assert (given.job().spec.ttl_s, given.job().spec.clean) == (None, CleanPods.ALL)
    given.when(c.AmendJob(namespace="default", name="train")).then()


def test_a_finished_job_may_still_be_given_a_time_to_live():
    given = running_job().when(exited(0), exited(1))
    given.when(c.AmendJob(namespace="default", name="train", ttl_s=60)).then_kinds(e.JobAmended)
    given.later(60).when_time_comes().then(e.JobRemoved("j1", JobRemovalReason.TTL))


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


def move(**changes):
    return c.AmendJob(namespace="default", name="second", **changes)


def two_waiting_jobs() -> Given:
    return (
        Given(node(), e.QueueDefined(Queue("urgent")))
        .when(submit("first", "j1"))
        .when(submit("second", "j2"))
    )


def order(given: Given, queue: str = "default") -> list[str]:
    return [key.job for key in given.world.waiting.keys(queue)]


def test_a_waiting_job_with_a_higher_priority_goes_ahead():
    given = two_waiting_jobs()
    assert order(given) == ["j1", "j2"]
    given.when(move(priority=5)).then(e.JobAmended("j2", priority=5))
    assert order(given) == ["j2", "j1"]
    given.when(move(priority=5)).then()
    assert given.refuses(move(priority=10**12)).code == "invalid_job"
    given.world.check()


def test_a_waiting_job_moves_to_another_queue():
    given = two_waiting_jobs()
    given.when(move(queue="urgent")).then(e.JobAmended("j2", queue="urgent"))
    assert (order(given), order(given, "urgent")) == (["j1"], ["j2"])
    refusal = given.refuses(move(queue="nowhere"))
    assert refusal.code == "unknown_queue"
    given.world.check()


def test_a_job_that_holds_devices_keeps_its_place():
    given = running_job()
    for change in ({"priority": 7}, {"queue": "default", "priority": 1}):
        refusal = given.refuses(c.AmendJob(namespace="default", name="train", **change))
        assert (refusal.code, refusal.field) == ("cannot_change", "priority")
    given.when(c.AmendJob(namespace="default", name="train", priority=0, queue="default")).then()


def test_a_gang_of_a_group_stays_in_its_queue():
    grouped = spec(scheduling=Scheduling(group="pair", group_size=2))
    given = Given(node(), e.QueueDefined(Queue("urgent"))).when(submit("second", "j2", grouped))
    assert given.refuses(move(queue="urgent")).code == "cannot_change"
    given.when(move(priority=3)).then(e.JobAmended("j2", priority=3))
