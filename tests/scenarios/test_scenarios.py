"""Two hundred worlds of one policy in `make test`, five thousand in `make test-slow`; each is one seed."""

import os
import subprocess
import sys

import pytest

from controlplane.model import events as e
from tests.scenarios.scenario import Scenario

SEEDS = 200
SLOW_BLOCKS = 48
BLOCK = 100


def run(seed: int) -> Scenario:
    scenario = Scenario(seed)
    try:
        return scenario.run()
    except Exception as error:
        repeat = f"python -m tests.scenarios {seed}"
        raise AssertionError(f"seed {seed} failed; repeat it with: {repeat}") from error


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_promise_is_kept_under_any_fault(seed):
    run(seed)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(SLOW_BLOCKS))
def test_every_promise_is_kept_in_many_more_worlds(block):
    first = SEEDS + block * BLOCK
    for seed in range(first, first + BLOCK):
        run(seed)


def test_faults_are_really_met():
    """The suite is worth something only if its worlds are troubled."""
    scenarios = [run(seed) for seed in range(40)]
    kinds = {type(r.event).__name__ for s in scenarios for r in s.log.events}

    assert sum(s.engines for s in scenarios) > 200
    assert sum(s.conflicts for s in scenarios) > 5
    assert {"JobRestarting", "RankRestarting", "RanksLost", "JobFailed", "NodeLost"} <= kinds


@pytest.mark.parametrize("seed", range(5))
def test_the_same_seed_gives_the_same_log(seed):
    assert run(seed).fingerprint() == run(seed).fingerprint()


def test_another_process_with_another_hash_seed_gives_the_same_log():
    seed = 7
    fingerprints = {
        subprocess.run(
            [sys.executable, "-m", "tests.scenarios", str(seed)],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(fingerprints) == 1
    assert run(seed).fingerprint() in fingerprints.pop()


def test_without_faults_timers_fire_on_the_second():
    fired = [late for seed in range(10) for late in lateness(Scenario(seed, calm=True).run())]

    assert len(fired) > 5
    assert fired == pytest.approx([0.0] * len(fired), abs=1e-6)


def lateness(scenario: Scenario) -> list[float]:
    """How long after its active deadline each job that ran out of time was failed."""
    active: dict[str, float] = {}
    limits: dict[str, float | None] = {}
    late = []
    for recorded in scenario.log.events:
        event = recorded.event
        if isinstance(event, e.GangPlaced):
            active.setdefault(event.job, recorded.at)
        elif isinstance(event, e.JobSuspended):
            active.pop(event.job, None)
        elif isinstance(event, e.JobFailed) and event.reason == "deadline_exceeded":
            late.append(recorded.at - active[event.job] - limits[event.job])
        elif isinstance(event, e.JobSubmitted):
            limits[event.job] = event.spec.active_deadline_s
    return late
