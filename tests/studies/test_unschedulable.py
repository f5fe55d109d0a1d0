"""Studies in which jobs cannot start: they are reported, and nothing waits for them."""

from controlplane.model import events as e
from controlplane.model.policy import Queue
from studies.metrics.summary import summarise
from studies.simulation.run import run
from studies.whatif.clusters import equal_nodes
from studies.whatif.policies import policy_named
from studies.whatif.scenario_parts import Autoscale
from studies.workloads.trace import make_trace


def test_a_study_ends_though_a_job_can_never_start_and_reports_it() -> None:
    trace = make_trace(
        "quota", ["big", "small"], [0, 1], [8, 2], [10, 10], labels={"queue": ["q", "q"]}
    )
    queues = [Queue("lab", gpus_max=4, nominal=16), Queue("q", parent="lab")]
    result = run(trace, equal_nodes(2, 8), policy_named("fifo"), queues=queues)
    assert list(result.unschedulable) == [0]
    assert result.finished[1] == 11.0
    summary = summarise(result)
    assert (summary["unschedulable"], summary["unfinished"], summary["refused"]) == (1, 1, 0)
    assert "the ceiling of queue lab is 4" in summary["unschedulable_examples"][0]["why"]


def test_a_gang_that_needs_more_nodes_than_are_rented_waits_for_them() -> None:
    trace = make_trace("grow", ["small", "whole"], [0, 1], [8, 32], [600, 10])
    result = run(
        trace,
        equal_nodes(4, 8),
        policy_named("fifo"),
        autoscale=Autoscale(nodes_min=1, boot_s=120.0, idle_s=600.0),
        keep_events=True,
    )
    assert result.log is not None
    kinds = [type(recorded.event) for recorded in result.log]
    assert kinds.count(e.JobUnschedulable) == kinds.count(e.JobSchedulable) == 1
    assert not result.refused
    assert not result.unschedulable
    assert result.finished[1] > 600.0
