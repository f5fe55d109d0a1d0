"""The past carried on: without a change it is what happened, and with one it shows what changed."""

import asyncio
from collections.abc import Sequence

import pytest
import yaml
from msgspec.structs import replace

from adapters.logs.memory_log import MemoryLog
from adapters.simulated_cluster.workload import Workload, hints_of
from controlplane.model import events as e
from studies.analysis.job_history import JobHistories
from studies.fork import Change, Forked, ForkError, fork, parse_change
from studies.fork.branch import run_branch
from studies.fork.comparison import part
from studies.fork.fork import _setting
from studies.fork.learned import Learned
from studies.fork.past import NodeFault, look_back
from tests.incidents.day import ORIGIN, Day
from tests.scenarios.scenario import run_now


def comparable(events: Sequence[e.Recorded]) -> list[tuple[float, e.Event, str, str]]:
    return [(x.at, x.event, x.cause, x.actor) for x in events]


def forked(day: Day, at: float, change: Change | None = None, **how) -> Forked:  # type: ignore[no-untyped-def]
    return run_now(fork(day.log, at=ORIGIN + at, change=change, model=day.model, **how))


@pytest.mark.parametrize("at", [600.5, 9_000.0, 30_000.25, 44_444.0, 70_000.0, 86_000.0])
def test_a_fork_without_a_change_is_what_happened_event_for_event(day: Day, at: float) -> None:
    """Bit for bit: every event, its time, its cause and who asked for it."""
    origin = run_now(look_back(day.log, at=ORIGIN + at, until=None))
    branch = run_branch(_setting(origin, Change(), day.model, Learned(JobHistories(), trusts=True)))
    assert comparable(branch.events) == comparable(origin.real)
    assert not branch.refused


@pytest.mark.parametrize("seed", [11, 12, 13])
def test_other_days_are_carried_on_as_they_were(seed: int) -> None:
    day = Day(seed, jobs=300, day_s=30_000.0, racks=2, nodes=4).run()
    for at in (2_000.0, 10_000.5, 20_001.0):
        result = forked(day, at)
        assert result.error.is_exact, result.error.parting
        assert result.comparison.parting is None
        assert result.error.finish_s_max in (0.0, None)


@pytest.mark.parametrize("seed", range(3))
def test_drains_and_amendments_are_carried_on_as_they_were(seed: int) -> None:
    day = Day(seed, jobs=400, day_s=20_000.0, racks=2, nodes=4, restless=True).run()
    for at in (2_000.0, 9_000.5):
        result = forked(day, at)
        assert result.error.is_exact, result.error.parting


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20, 40))
def test_many_days_are_carried_on_as_they_were(seed: int) -> None:
    day = Day(seed, jobs=900, racks=2, nodes=4).run()
    for at in range(1_000, 80_000, 9_000):
        assert forked(day, at + 0.5).error.is_exact


def test_more_nodes_let_jobs_start_earlier(day: Day) -> None:
    result = forked(day, 20_000.0, parse_change(add_nodes=4))
    one, other = result.comparison.one, result.comparison.other
    assert result.error.is_exact
    assert other.started > one.started
    assert other.wait_s_mean < one.wait_s_mean
    assert other.cost == pytest.approx(2.0 * other.gpu_hours)
    assert result.first_decision is not None
    assert result.first_decision.other.type == "GangPlaced"
    assert any(
        slot.node.startswith("added-") for slot in result.first_decision.other.event.placement
    )
    assert result.comparison.jobs


def test_a_changed_ceiling_is_the_first_thing_that_differs(day: Day) -> None:
    result = forked(day, 20_000.0, parse_change(settings=["queue.research.gpus_max=64"]))
    parting = result.comparison.parting
    assert parting is not None
    assert parting.other.type == "QueueDefined"
    assert parting.other.event.queue.gpus_max == 64
    first = result.first_decision
    assert first is not None
    placed = first.other.event
    queue = next(
        r.event.spec.queue
        for r in day.log.events
        if isinstance(r.event, e.JobSubmitted) and r.event.job == placed.job
    )
    assert (first.other.type, queue) == ("GangPlaced", "research")


def test_a_changed_policy_differs_first_at_a_decision_that_names_it() -> None:
    """A node that fails again and again, and a policy that puts it aside."""
    from examples.incident import BEGIN, CLUSTER, night
    from simulator.network.topology import parse_cluster

    model = parse_cluster(yaml.safe_load(CLUSTER.read_text()))
    change = parse_change(settings=["policy.quarantine_after=3"])
    result = run_now(fork(MemoryLog(night()), at=BEGIN + 2_520.0, change=change, model=model))
    assert result.error.is_exact
    assert result.comparison.parting.other.type == "PolicySet"
    assert result.comparison.parting.other.event.policy.quarantine_after == 3
    first = result.first_decision.other
    assert (first.type, first.event.node) == ("NodeCordoned", "rack-0-1")
    assert (first.event.reason, first.event.losses) == ("quarantined", 3)
    assert result.comparison.other.restarts < result.comparison.one.restarts


def losses(day: Day, after: float) -> list[e.Recorded]:
    return [r for r in day.log.events if isinstance(r.event, e.NodeLost) and r.at > ORIGIN + after]


def test_a_fault_that_does_not_happen_saves_what_it_took(day: Day) -> None:
    lost = losses(day, 10_000.0)
    assert lost
    result = forked(day, 10_000.0, parse_change(without_fault=["all"]))
    assert result.error.is_exact
    assert result.comparison.parting.at == pytest.approx(lost[0].at)
    assert result.comparison.other.succeeded > result.comparison.one.succeeded


def test_a_fault_that_is_added_takes_its_node_down(day: Day) -> None:
    at = ORIGIN + 30_000.0
    fault = NodeFault(at, "rack-0-0", None, at + 1_000.0)
    result = forked(day, 29_000.0, parse_change(with_fault=[fault]))
    parting = result.comparison.parting
    assert parting is not None
    assert parting.at == at
    assert parting.other.type in ("RanksExited", "NodeLost")


def test_requests_that_no_longer_fit_are_reported(day: Day) -> None:
    result = forked(day, 10_000.0, parse_change(add_nodes=8))
    assert all(":" in refusal for refusal in result.refused)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (parse_change(cordon=["nowhere"]), "there was no node 'nowhere' then"),
        (parse_change(settings=["colour=blue"]), "cannot be set"),
        (parse_change(settings=["queue.q.gpus_max=many"]), "will not do"),
        (parse_change(settings=["policy=fair"]), "one of fifo, fit, sjf"),
        (parse_change(settings=["queue.q.discipline=fair"]), "one of fifo, fit, sjf"),
        (parse_change(without_fault=["nowhere"]), "no node"),
    ],
)
def test_a_change_that_cannot_be_made_is_refused(day: Day, change: Change, message: str) -> None:
    with pytest.raises(ForkError, match=message):
        forked(day, 10_000.0, change)


def test_work_is_learned_where_jobs_give_no_duration() -> None:
    """As on a real cluster, where the workload in a manifest means nothing."""
    day = Day(14, jobs=200, day_s=30_000.0, racks=4, nodes=4).run()
    silent = [
        replace(r, event=replace(r.event, spec=replace(r.event.spec, hints=hints_of(Workload()))))
        if isinstance(r.event, e.JobSubmitted)
        else r
        for r in day.log.events
    ]
    log = MemoryLog(silent)
    result = asyncio.run(fork(log, at=ORIGIN + 10_000.0, until=ORIGIN + 25_000.0))
    assert result.work == "learned from the log"
    assert result.error.finish_s_median < 60.0
    assert not result.error.is_exact


def test_futures_part_at_what_only_one_of_them_has_then() -> None:
    def future(*cordons: tuple[float, str]) -> list[e.Recorded]:
        events = [(at, e.NodeCordoned(name)) for at, name in cordons]
        return [e.Recorded(i, at, event) for i, (at, event) in enumerate(events, 1)]

    def parted(one: list[e.Recorded], other: list[e.Recorded]) -> tuple[object, ...] | None:
        parting = part(one, other)
        sides = [] if parting is None else [parting.one, parting.other]
        return parting and (parting.at, *[side and side.event.node for side in sides])

    whole = future((0, "a"), (1, "b"), (1, "c"), (5, "d"))
    assert parted(whole, whole) is None
    assert parted(whole, future((0, "a"), (5, "d"))) == (1, "b", None)
    assert parted(future((0, "a"), (1, "c"), (5, "d")), whole) == (1, None, "b")
    assert parted(whole, future((0, "a"), (1, "b"), (1, "x"), (5, "d"))) == (1, "c", "x")
    assert parted(whole, future((0, "a"), (1, "c"), (1, "b"), (5, "d"))) == (1, "b", "c")
    assert parted(whole, whole[:2]) == (1, "c", None)
    assert parted([], whole) == (0, None, "a")
