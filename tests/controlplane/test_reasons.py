"""Reasons name what is in the way, and how much is needed of it."""

from controlplane.model import commands as c
from controlplane.model import events as e
from controlplane.model.policy import Policy, Queue
from controlplane.model.spec import Repair, Role, Scheduling
from controlplane.queries.queries import why
from tests.controlplane.specification import Given, node, spec, submit
from tests.controlplane.test_scheduling_features import passed, started


def explained(given: Given, job: str) -> str:
    answer = why(given.world, given.job(job))
    return " / ".join([answer.summary, *[reason.message for reason in answer.reasons]])


def test_the_ceiling_of_a_cohort_is_not_blamed_on_its_queue():
    lab = e.QueueDefined(Queue("lab", gpus_max=2))
    team = e.QueueDefined(Queue("team", parent="lab", nominal=8, gpus_max=6))
    given = Given(lab, team, node("n1", 8))
    given.when(submit("a", "j1", spec(workers=1, gpus=4, queue="team")))
    assert "queue lab has 2 left of its ceiling of 2" in explained(given, "j1")


def test_the_reason_of_a_job_that_waits_for_a_share_names_shares():
    share = (Role(name="Worker", gpu_share=700),)
    given = Given(node("n1", 1)).when(
        submit("a", "j1", spec(roles=share)), submit("b", "j2", spec(roles=share))
    )
    passed(given)
    assert "a rank needs 0.7 of a GPU" in explained(given, "j2")
    assert " 0 GPUs" not in explained(given, "j2")


def test_an_elastic_gang_needs_only_its_fewest_replicas():
    elastic = (Role(name="Worker", replicas=8, gpus=1, min_replicas=2),)
    given = Given(e.PolicySet(Policy()), node("n1", 1)).when(submit("a", "j1", spec(roles=elastic)))
    assert "it needs 2 GPUs; 1 are free" in explained(given, "j1")
    assert "8 GPUs" not in explained(given, "j1")


def test_a_gang_that_waits_for_a_lost_rank_shows_it():
    given = Given(node("n1", 4), node("n2", 4))
    asks = Scheduling(repair=Repair.REPLACE)
    given.when(submit("a", "j1", spec(workers=2, gpus=4, scheduling=asks)))
    passed(given)
    started(given, "j1")
    given.when(c.ReportNodeLost(node="n2"))
    assert "1 of 2 ranks run" in explained(given, "j1")
    assert "all ranks have started" not in explained(given, "j1")
