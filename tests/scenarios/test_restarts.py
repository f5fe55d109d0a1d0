"""A world that is stopped behind any step and started again ends with the log of one that never was."""

from random import Random

import pytest

from adapters.logs.memory_log import MemoryLog
from controlplane.audit.redecide import redecide
from controlplane.model import events as e
from simulator.network.topology import parse_cluster
from studies.fork import fork, parse_change
from tests.adapters.test_simulated_cluster import at_once
from tests.scenarios.restarts import (
    RecordedStory,
    Story,
    first_difference,
    live,
    story_of,
    with_faults,
)


def check(story: Story, whole: RecordedStory, end: int) -> None:
    again = live(story, whole.events[:end])
    difference = first_difference(whole.events, again.events)
    assert not difference, f"stopped behind {end} events, {difference}"


@pytest.mark.parametrize("seed", range(8))
def test_a_stop_behind_some_steps_leaves_no_trace_in_the_log(seed: int) -> None:
    story = story_of(seed)
    whole = live(story)
    for end in Random(seed).sample(whole.ends, 6):
        check(story, whole, end)


@pytest.mark.parametrize("seed", range(6))
def test_faults_that_a_person_asks_for_come_again_after_a_stop_and_in_a_fork(seed: int) -> None:
    story = with_faults(story_of(seed), seed)
    whole = live(story)
    injected = [n for n, x in enumerate(whole.events) if isinstance(x.event, e.FaultInjected)]
    assert len(injected) == 8
    taken = [whole.events[n] for n in injected if whole.events[n].event.fault.kind.takes_node]
    lost = [x for x in whole.events if isinstance(x.event, e.NodeLost)]
    for fault in taken:
        begins = fault.at + fault.event.delay_s
        assert any(x.event.node == fault.event.node and x.at <= begins + 121.0 for x in lost), fault
    near = [end for end in whole.ends if any(n < end <= n + 6 for n in injected)]
    for end in Random(seed).sample(near, 5):
        check(story, whole, end)
    check_fork(story, whole, whole.events[injected[2]].at + 0.1)
    check_fork(story, whole, whole.events[injected[4]].at - 0.1)
    assert at_once(redecide(MemoryLog(whole.events))) is None


def test_a_fork_without_the_faults_of_a_node_has_none_that_a_person_asked_for() -> None:
    story = with_faults(story_of(1), 1)
    whole = live(story)
    crash = next(
        x
        for x in whole.events
        if isinstance(x.event, e.FaultInjected) and x.event.fault.kind.takes_node
    )
    change = parse_change(without_fault=[crash.event.node])
    model = parse_cluster(story.cluster)
    log = MemoryLog(whole.events)
    forked = at_once(fork(log, at=crash.at - 1, until=story.until, model=model, change=change))
    assert forked.error.is_exact
    assert forked.comparison.parting is not None


@pytest.mark.parametrize("seed", [17, 26])
def test_a_stop_behind_a_step_between_two_events_of_the_cluster_leaves_no_trace(seed: int) -> None:
    """The step is at a time at which nothing is due in the cluster, so recovery runs up to it.

    Stopping there one bit too early or too late shifts everything that follows by as much.
    """
    story = story_of(seed)
    whole = live(story)
    assert isinstance(whole.events[16].event, e.GangPlaced)
    check(story, whole, 17)
    check_fork(story, whole, whole.events[19].at)


@pytest.mark.parametrize("seed", [62, 84])
def test_a_warning_that_is_due_when_the_engine_starts_is_reported_once(seed: int) -> None:
    """Whether the engine stops before it has recorded the warning, or behind it."""
    story = story_of(seed)
    whole = live(story)
    assert any(isinstance(x.event, e.NodeLost) and x.at == 0.0 for x in whole.events)
    for end in whole.ends[:3]:
        check(story, whole, end)


def test_an_eviction_that_a_pass_left_to_the_next_one_does_not_come_with_a_start() -> None:
    story = story_of(166)
    whole = live(story)
    assert isinstance(whole.events[48].event, e.RanksReplaced)
    check(story, whole, 49)


def test_an_elastic_gang_gives_back_only_ranks_that_have_not_exited() -> None:
    story = story_of(460)
    whole = live(story)
    assert whole.events[-1].at > 5_000.0


def test_a_rank_that_loses_its_node_in_back_off_does_not_wait_for_a_restart() -> None:
    """Rank 0 of job 11 exits at 3,352 s, and before its back-off is over its node gets a warning."""
    story = story_of(102)
    whole = live(story)
    (number,) = (
        i
        for i, x in enumerate(whole.events)
        if isinstance(x.event, e.RanksLost) and x.event.job == "id-11" and x.event.ranks == (0,)
    )
    for end in [end for end in whole.ends if end > number][:4]:
        check(story, whole, end)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_a_stop_behind_any_step_leaves_no_trace_in_the_log(seed: int) -> None:
    story = story_of(seed)
    whole = live(story)
    for end in whole.ends:
        check(story, whole, end)


def test_the_stories_have_in_them_what_a_restart_could_lose() -> None:
    kinds = {type(x.event) for seed in range(8) for x in live(story_of(seed)).events}
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
    whole = live(story)
    dice, past = Random(seed), live(story)
    for _ in range(5):
        # Of what is left of the life, a stop in its first third.
        past = live(story, past.events[: dice.choice(past.ends[1 : len(past.ends) // 3])])
    assert sum(isinstance(x.event, e.EngineStarted) for x in past.events) > 1
    assert first_difference(whole.events, past.events) == ""
    assert at_once(redecide(MemoryLog(past.events))) is None


def check_fork(story: Story, whole: RecordedStory, at: float) -> None:
    model = parse_cluster(story.cluster)
    forked = at_once(fork(MemoryLog(whole.events), at=at, until=story.until, model=model))
    assert forked.error.is_exact, f"forked at {at}: {forked.error.parting}"


@pytest.mark.parametrize("seed", range(6))
def test_a_fork_without_a_change_is_what_really_happened(seed: int) -> None:
    """Of jobs that train too: each has its own length, its progress and the pace of its place."""
    story = story_of(seed)
    whole = live(story)
    dice = Random(seed)
    for end in dice.sample(whole.ends, 4):
        check_fork(story, whole, whole.events[end - 1].at + dice.choice([0.0, 7.5]))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_a_fork_at_any_instant_without_a_change_is_what_really_happened(seed: int) -> None:
    story = story_of(seed)
    whole = live(story)
    for end in whole.ends[::3]:
        check_fork(story, whole, whole.events[end - 1].at)
