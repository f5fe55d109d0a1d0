"""What a log teaches, against counts made by hand from the same events."""

import pytest

from adapters.logs.memory_log import MemoryLog
from controlplane.model import events as e
from studies.analysis import analyse
from studies.analysis.counting import spread_of
from tests.incidents.day import Day
from tests.scenarios.scenario import run_now


def test_the_counts_are_those_of_the_events(day: Day) -> None:
    analysis, events = run_now(analyse(day.log)), [r.event for r in day.log.events]
    submitted = [x for x in events if isinstance(x, e.JobSubmitted)]
    assert analysis.jobs == len(submitted)
    assert analysis.succeeded == sum(isinstance(x, e.JobSucceeded) for x in events)
    assert analysis.failed == sum(isinstance(x, e.JobFailed) for x in events)
    lost = sum(isinstance(x, e.NodeLost) for x in events)
    assert sum(node.losses for node in analysis.nodes) == lost
    causes = {group.name: group.attempts for group in analysis.by_cause}
    gangs = [x.restart.cause for x in events if isinstance(x, e.JobRestarting)]
    assert causes["node_lost"] == sum(cause == "node_lost" for cause in gangs)
    codes = {group.name for group in analysis.by_exit_code}
    assert codes == {"1", "137"}


def test_gpu_hours_are_those_that_were_held(day: Day) -> None:
    """Summed up from the world itself, event by event."""
    from controlplane.state.world import World

    world, held = World(), 0.0
    for recorded in day.log.events:
        held += sum(world.devices.used.values()) * (
            recorded.at - world.at if world.position else 0.0
        )
        world.apply(recorded)
    analysis = run_now(analyse(day.log))
    # Ranks let their devices go one by one, and attempts are booked until their end.
    assert analysis.gpu_hours == pytest.approx(held / 3600, rel=0.02)
    assert 0 < analysis.gpu_hours_lost < analysis.gpu_hours


def test_a_span_counts_only_what_lies_in_it(day: Day) -> None:
    whole = run_now(analyse(day.log))
    middle = (whole.since + whole.until) / 2
    halves = [run_now(analyse(day.log, until=middle)), run_now(analyse(day.log, since=middle))]
    assert sum(half.attempts_lost for half in halves) == whole.attempts_lost
    assert all(half.jobs < whole.jobs for half in halves)


def test_what_was_held_and_lost_before_a_span_is_not_counted_in_it(day: Day) -> None:
    """Of two halves each counts its own part, so that together they are the whole."""
    whole = run_now(analyse(day.log))
    middle = (whole.since + whole.until) / 2
    one, two = (run_now(analyse(day.log, until=middle)), run_now(analyse(day.log, since=middle)))
    assert one.gpu_hours + two.gpu_hours == pytest.approx(whole.gpu_hours)
    for node in whole.nodes:
        parts = [x for half in (one, two) for x in half.nodes if x.node == node.node]
        assert sum(x.losses for x in parts) == node.losses
        assert sum(x.failed_attempts for x in parts) == node.failed_attempts
        if len(parts) == 2:
            assert sum(x.gpu_hours for x in parts) == pytest.approx(node.gpu_hours)
            assert sum(x.down_hours for x in parts) == pytest.approx(node.down_hours)


def test_a_span_is_no_longer_than_the_log(day: Day) -> None:
    whole = run_now(analyse(day.log))
    assert run_now(analyse(day.log, since=0.0, until=9e9)) == whole


@pytest.mark.parametrize("count", [2, 3, 5, 9, 20])
def test_nine_in_ten_are_not_longer_than_the_longest(count: int) -> None:
    spread = spread_of([float(x * x) for x in range(1, count + 1)])
    assert spread is not None
    assert spread.median <= spread.p90 <= spread.max


def test_the_fit_gives_back_what_the_day_was_drawn_from(day: Day) -> None:
    fit = run_now(analyse(day.log)).fit
    assert fit.jobs_per_hour == pytest.approx(1_200 / 24, rel=0.1)
    assert fit.arrival_variation == pytest.approx(1.0, abs=0.15)
    assert fit.run_s is not None
    assert fit.run_s.lognormal_mu == pytest.approx(5.5, abs=0.3)
    assert fit.run_s.lognormal_sigma == pytest.approx(1.1, abs=0.2)
    assert sum(fit.gpus.values()) == pytest.approx(1.0)
    assert sum(fit.jobs_by_hour_of_day) == sum(
        isinstance(r.event, e.JobSubmitted) for r in day.log.events
    )


def test_an_empty_log_teaches_nothing() -> None:
    analysis = run_now(analyse(MemoryLog()))
    assert (analysis.jobs, analysis.by_cause, analysis.fit.run_s) == (0, [], None)
