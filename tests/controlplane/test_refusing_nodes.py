"""Nodes that turn a rank down before it runs: the gang goes elsewhere, and in no hurry."""

import pytest

from controlplane.model import commands as c
from controlplane.model.failures import Cause, Exit
from controlplane.model.phases import Phase
from tests.controlplane.specification import Given, node, spec, submit
from tests.controlplane.test_scheduling_features import passed


def refused(given, attempt):
    exits = (Exit(0, None, Cause.REFUSED, "too little", reason="OutOfcpu"),)
    given.when(c.ReportRanks(job="j1", attempt=attempt, exited=exits))
    given.when(c.ReportRanks(job="j1", attempt=attempt, gone=(0, 1)))


@pytest.mark.parametrize("gpus", [0, 4])
def test_a_gang_that_was_turned_down_is_tried_elsewhere_after_a_while(gpus):
    given = Given(node("n1"), node("n2")).when(submit(of=spec(workers=1, gpus=gpus)))
    passed(given)
    first = given.job().attempt.placement[0].node
    refused(given, 1)
    job = given.job()
    assert (job.phase, job.failures) == (Phase.RESTARTING, 0)
    assert job.retry_at >= given.world.at + 5
    given.later(60).when_time_comes()
    passed(given)
    assert given.job().attempt.placement[0].node not in (first, "")
    # When all have turned it down, one of them is asked again, and each time later.
    refused(given, 2)
    assert given.job().retry_at >= given.world.at + 10
    given.later(60).when_time_comes()
    passed(given)
    assert given.job().attempt.number == 3


def test_a_gang_that_ran_since_avoids_no_node():
    given = Given(node("n1"), node("n2")).when(submit(of=spec(workers=1, gpus=4)))
    passed(given)
    first = given.job().attempt.placement[0].node
    refused(given, 1)
    given.later(60).when_time_comes()
    passed(given)
    given.when(c.ReportRanks(job="j1", attempt=2, started=(0,)))
    given.when(c.ReportRanks(job="j1", attempt=2, exited=(Exit(0, 1),)))
    given.later(60).when_time_comes()
    passed(given)
    assert given.job().attempt.placement[0].node == first
