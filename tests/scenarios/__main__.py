"""Run one seed and print what happened.

python -m tests.scenarios SEED          a world of one policy, with faults
python -m tests.scenarios wide SEED     a world that uses everything at once
python -m tests.scenarios shrink SEED   the smallest plan of a wide world that fails alike
"""

import sys

from tests.scenarios.scenario import Scenario
from tests.scenarios.shrink import shrunk
from tests.scenarios.wide import WideScenario


def run(scenario: Scenario) -> None:
    print(scenario.faults)
    try:
        scenario.run()
    finally:
        for recorded in scenario.log.events:
            print(recorded.position, f"{recorded.at:.3f}", recorded.event)
        print(scenario.engines, "engines,", scenario.conflicts, "fenced out")
        print(scenario.fingerprint())


match sys.argv[1:]:
    case ["wide", seed]:
        run(WideScenario(int(seed)))
    case ["shrink", seed]:
        print(shrunk(int(seed)))
    case [seed]:
        run(Scenario(int(seed)))
    case _:
        sys.exit(__doc__)
