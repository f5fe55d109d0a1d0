"""Runs one seed and tells what happened: `python -m tests.scenarios SEED`."""

import sys

from tests.scenarios.scenario import Scenario

scenario = Scenario(int(sys.argv[1]))
print(scenario.faults)
try:
    scenario.run()
finally:
    for recorded in scenario.log.events:
        print(recorded.position, f"{recorded.at:.3f}", recorded.event)
    print(scenario.engines, "engines,", scenario.conflicts, "fenced out")
    print(scenario.fingerprint())
