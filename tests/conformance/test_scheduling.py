"""Every gang scenario on the real scheduler; those with a clock on the real engine in virtual time."""

from typing import Any

from tests.conformance.gangs import one_cycle, timeline


def test_gang_scenario(gang_scenario: dict[str, Any]) -> None:
    if gang_scenario["policy"]["mode"] == "one_cycle":
        one_cycle.check(gang_scenario, one_cycle.run(gang_scenario))
    else:
        timeline.check(gang_scenario, timeline.Story(gang_scenario).run())
