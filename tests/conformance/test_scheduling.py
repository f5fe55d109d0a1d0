"""Every gang scenario on the real scheduler; those with a clock on the real engine in virtual time."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.gangs import one_cycle, timeline


def test_gang_scenario(gang_scenario: dict[str, Any]) -> None:
    if gang_scenario["policy"]["mode"] == "one_cycle":
        one_cycle.check(gang_scenario, one_cycle.run(gang_scenario))
    else:
        timeline.check(gang_scenario, timeline.Story(gang_scenario).run())


VARIANTS = json.loads((Path(__file__).parent / "variants.json").read_text())["scenarios"]


@pytest.mark.parametrize("scenario", VARIANTS, ids=lambda scenario: scenario["id"])
def test_a_variant_of_our_own(scenario: dict[str, Any]) -> None:
    """The neighbours of the shared scenarios, worked out by hand from the same rules."""
    test_gang_scenario(scenario)
