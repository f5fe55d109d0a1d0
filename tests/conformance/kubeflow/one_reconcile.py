"""Scenarios of one look at a job's pods."""

from collections.abc import Mapping
from typing import Any

from tests.conformance.kubeflow import recommended
from tests.conformance.kubeflow.reconcile import Outcome, differences, run


def one_reconcile(scenario: Mapping[str, Any]) -> None:
    outcome = run(scenario["given"], scenario["kind"], scenario["api"])
    expect = scenario["expect"]
    if "recommended" in scenario:
        problems = recommended.problems(outcome, scenario["recommended"])
    elif "any_of" in expect:
        each = [differences(outcome, one) for one in expect["any_of"]]
        problems = [] if [] in each else each[0]
        problems += recommended.invariants(outcome)
    else:
        problems = differences(outcome, expect) + recommended.invariants(outcome)
    assert not problems, explain(outcome, problems)


def explain(outcome: Outcome, problems: list[str]) -> str:
    events = [type(each.event).__name__ for each in outcome.bench.recorded()]
    return "\n".join([*problems, f"status: {outcome.status}", f"log: {' '.join(events)}"])


READERS = {"one reconcile": one_reconcile}
