"""Every scenario of the Kubeflow operators, against the real kinds, documents, plans and engine."""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.conftest import all_scenarios
from tests.conformance.kubeflow import (
    admission,
    building,
    defaults,
    gang,
    legacy,
    lives,
    mpi,
    one_reconcile,
    rules,
    syncs,
    trainer,
)
from tests.conformance.kubeflow.differences import DIFFERENCES, SHARE_MAX, difference
from tests.conformance.kubeflow.tracking import Expected

Scenario = Mapping[str, Any]

# Who reads a scenario, by what happens in it. A reader asserts.
READERS: dict[str, Callable[[Scenario], None]] = {
    **one_reconcile.READERS,
    **building.READERS,
    **admission.READERS,
    **defaults.READERS,
    **mpi.READERS,
    **lives.READERS,
    **syncs.READERS,
    **gang.READERS,
    **rules.READERS,
    **legacy.READERS,
}
# Where the same words mean something else for some kinds, by the start of kind and version.
BY_KIND: dict[tuple[str, str], Callable[[Scenario], None]] = {
    ("reconcile", "MPIJob kubeflow.org/v1"): lives.mpi_v1,
    ("reconcile", "TFJob kubeflow.org/v1alpha1"): legacy.reconcile,
    ("reconcile", "TrainJob"): trainer.reconcile,
    ("reconcile", "*"): gang.reconcile,
    ("hostfile", "TrainJob"): trainer.hostfile,
}
# Words with a number or a name in them.
PATTERNS: tuple[tuple[str, Callable[[Scenario, str], None]], ...] = (
    (r"(?:wait|after) (\d+) s", lambda scenario, seconds: lives.waits(scenario, float(seconds))),
    (r"(\w+) env", lambda scenario, policy: trainer.environment(scenario)),
)


def test_a_scenario_of_the_operators(kubeflow_scenario: Scenario) -> None:
    known = difference(kubeflow_scenario)
    if known is not None:
        pytest.skip(f"ours differs, see docs/kubeflow-differences.md: {known.title}")
    read(kubeflow_scenario)


CASES = json.loads((Path(__file__).parent / "kubeflow_cases.json").read_text("utf-8"))["scenarios"]


@pytest.mark.parametrize("scenario", CASES, ids=lambda scenario: str(scenario["id"]))
def test_a_case_of_our_own_in_the_same_form(scenario: Scenario) -> None:
    read(scenario)


def read(scenario: Scenario) -> None:
    """Runs a scenario; raises AssertionError where ours differs, or where nothing was compared."""
    expected = Expected(scenario["expect"])
    _read({**scenario, "expect": expected})
    # Where a scenario has a recommendation, that is compared in place of what upstream does.
    unseen = [] if "recommended" in scenario else expected.unseen()
    assert not unseen, f"nothing compares {', '.join(unseen)}; teach a reader to, or remove it"


def _read(scenario: Scenario) -> None:
    when = scenario["when"]
    about = f"{scenario['kind']} {scenario['api']}"
    for (word, start), reader in BY_KIND.items():
        if word == when and about.startswith(start):
            return reader(scenario)
    if when in READERS:
        return READERS[when](scenario)
    for pattern, with_part in PATTERNS:
        if match := re.fullmatch(pattern, when):
            return with_part(scenario, match[1])
    raise AssertionError(
        f"there is no reader for scenarios of {when!r} for {about}; known are: {', '.join(sorted(READERS))}. "
        "Add a reader in tests/conformance/kubeflow/."
    )


ROOT = Path(__file__).parents[2]


def test_the_page_of_differences_has_the_reasons_for_all_rules_and_no_others() -> None:
    page = (ROOT / "docs" / "kubeflow-differences.md").read_text("utf-8")
    headings = re.findall(r"^## (.+)$", page, re.MULTILINE)
    assert headings == [each.title for each in DIFFERENCES]


def test_hardly_any_scenario_differs(pytestconfig: pytest.Config) -> None:
    scenarios = all_scenarios(pytestconfig, "kubeflow-conformance-scenarios")
    if not scenarios:
        pytest.skip("no file of scenarios; name one with --scenarios, or set MUSTER_SHARED")
    differing = [each["id"] for each in scenarios if difference(each) is not None]
    assert len(differing) <= SHARE_MAX * len(scenarios), differing


def test_an_unknown_scenario_fails_with_its_words() -> None:
    unknown = {"when": "the moon is full", "kind": "TFJob", "api": "kubeflow.org/v1", "expect": {}}
    with pytest.raises(AssertionError, match="no reader for scenarios of 'the moon is full'"):
        read(unknown)
