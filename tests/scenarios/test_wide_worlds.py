"""Worlds that use everything at once: some in `make test`, thousands in `make test-slow`."""

import pytest

from controlplane.disciplines.registry import DISCIPLINES
from controlplane.model import events as e
from controlplane.scheduling.quota_models.quota_model import QUOTA_MODELS
from tests.scenarios.jobs import SHAPES
from tests.scenarios.plan import ACTIONS, LEFT_OUT, Flap, drawn_plan
from tests.scenarios.wide import WideScenario

SEEDS = 48
SLOW_BLOCKS = 40
BLOCK = 50


def run(seed: int) -> WideScenario:
    world = WideScenario(seed)
    try:
        world.run()
    except Exception as error:
        repeat = f"python -m tests.scenarios wide {seed}"
        smaller = f"python -m tests.scenarios shrink {seed}"
        hint = f"wide seed {seed} failed; repeat it with: {repeat}; make it smaller with: {smaller}"
        raise AssertionError(hint) from error
    return world


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_promise_is_kept_under_any_combination_of_features(seed: int) -> None:
    run(seed)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(SLOW_BLOCKS))
def test_every_promise_is_kept_in_many_more_wide_worlds(block: int) -> None:
    first = SEEDS + block * BLOCK
    for seed in range(first, first + BLOCK):
        run(seed)


def test_plans_use_everything() -> None:
    """The suite is worth something only if its worlds are as wide as declared."""
    plans = [drawn_plan(seed) for seed in range(SEEDS)]
    assert {plan.policy.discipline for plan in plans} == set(DISCIPLINES.names)
    assert {plan.policy.model for plan in plans} == set(QUOTA_MODELS.names)
    steps = {type(step) for plan in plans for _, step in plan.timeline}
    assert Flap in steps
    assert len(steps) >= len(ACTIONS) - 4
    assert not set(LEFT_OUT) - set(SHAPES)
    assert any(plan.stops for plan in plans)
    assert {plan.policy.starts_per_cycle_max for plan in plans} >= {None, 1, 2, 4}


def test_what_is_rare_is_met() -> None:
    kinds = {type(r.event) for seed in range(50) for r in run(seed).log.events}
    assert kinds >= {
        e.RanksAdded,
        e.RanksReplaced,
        e.JobRestarting,
        e.RankRestarting,
        e.NodeLost,
        e.NodeCordoned,
        e.QueueRemoved,
        e.PolicySet,
        e.JobAmended,
        e.ProtectionEnded,
        e.CycleEnded,
        e.DependenciesMet,
        e.OwnerReady,
        e.OwnerSuspended,
        e.OwnerResumed,
        e.OwnerCancelled,
        e.OwnerSucceeded,
        e.OwnerFailed,
        e.OwnerRemoved,
        e.MembersRetried,
    }


@pytest.mark.parametrize("seed", range(2))
def test_the_same_seed_gives_the_same_log(seed: int) -> None:
    assert run(seed).fingerprint() == run(seed).fingerprint()
