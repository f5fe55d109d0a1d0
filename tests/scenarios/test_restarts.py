"""A world that is stopped behind any step and started again ends with the log of one that never was."""

from random import Random

import pytest

from adapters.memory_log import MemoryLog
from controlplane import events as e
from controlplane.redeciding import redecide
from simulator.topology import parse_cluster
from studies.fork import fork
from tests.adapters.test_simulated_cluster import at_once
from tests.scenarios.restarts import Story, Told, first_difference, story_of, tell


def check(story: Story, whole: Told, end: int) -> None:
    again = tell(story, whole.events[:end])
    difference = first_difference(whole.events, again.events)
    assert not difference, f"stopped behind {end} events, {difference}"


@pytest.mark.parametrize("seed", range(8))
def test_a_stop_behind_some_steps_leaves_no_trace_in_the_log(seed: int) -> None:
    story = story_of(seed)
    whole = tell(story)
    for end in Random(seed).sample(whole.ends, 6):
        check(story, whole, end)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_a_stop_behind_any_step_leaves_no_trace_in_the_log(seed: int) -> None:
    story = story_of(seed)
    whole = tell(story)
    for end in whole.ends:
        check(story, whole, end)


def test_the_stories_have_in_them_what_a_restart_could_lose() -> None:
    kinds = {type(x.event) for seed in range(8) for x in tell(story_of(seed)).events}
    assert kinds >= {
        e.PoolNodesRequested,
        e.PoolNodesReturned,
        e.NodeLost,
        e.JobRestarting,
        e.RanksAdded,
        e.RanksReplaced,
        e.RanksLost,
        e.JobSuspended,
        e.JobScaled,
        e.RankRelaunched,
    }


@pytest.mark.parametrize("seed", [3, 5])
def test_many_stops_in_one_life_leave_no_trace_and_all_is_decided_alike(seed: int) -> None:
    story = story_of(seed)
    whole = tell(story)
    dice, past = Random(seed), tell(story)
    for _ in range(5):
        # Of what is left of the life, a stop in its first third.
        past = tell(story, past.events[: dice.choice(past.ends[1 : len(past.ends) // 3])])
    assert sum(isinstance(x.event, e.EngineStarted) for x in past.events) > 1
    assert first_difference(whole.events, past.events) == ""
    assert at_once(redecide(MemoryLog(past.events))) is None


def check_fork(story: Story, whole: Told, at: float) -> None:
    model = parse_cluster(story.cluster)
    forked = at_once(fork(MemoryLog(whole.events), at=at, until=story.until, model=model))
    assert forked.error.is_exact, f"forked at {at}: {forked.error.parting}"


@pytest.mark.parametrize("seed", range(6))
def test_a_fork_without_a_change_is_what_really_happened(seed: int) -> None:
    """Of jobs that train too: each has its own length, its progress and the pace of its place."""
    story = story_of(seed)
    whole = tell(story)
    dice = Random(seed)
    for end in dice.sample(whole.ends, 4):
        check_fork(story, whole, whole.events[end - 1].at + dice.choice([0.0, 7.5]))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_a_fork_at_any_instant_without_a_change_is_what_really_happened(seed: int) -> None:
    story = story_of(seed)
    whole = tell(story)
    for end in whole.ends[::3]:
        check_fork(story, whole, whole.events[end - 1].at)
