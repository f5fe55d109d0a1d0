"""The machine: the events that it emits for gangs, and its accounts of devices."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.faults import Fault, FaultKind, FaultModel
from simulator.kernel.virtual_time import VirtualTime
from simulator.machine.events import (
    End,
    Ended,
    MachineEvent,
    NodeDown,
    NodeUp,
    PlacementFailed,
    Started,
    Stopped,
)
from simulator.machine.gang import Gang, Part
from simulator.machine.machine import Machine
from simulator.network.topology import ClusterModel, Delays, NodeModel

DELAYS = Delays(start_s=5.0, stop_s=2.0)
CLUSTER = ClusterModel(tuple(NodeModel(f"n{i}", gpus=8) for i in range(3)), DELAYS)


@dataclass(frozen=True)
class At:
    node: str
    devices: tuple[int, ...] = ()


class Bench:
    """A machine, and what it emitted and when."""

    def __init__(self, cluster: ClusterModel = CLUSTER, begin_at_s: float = 0.0) -> None:
        self.env = VirtualTime(begin_at_s)
        self.emitted: list[tuple[float, MachineEvent]] = []
        self.machine = Machine(
            self.env, cluster, lambda happening: self.emitted.append((self.env.now, happening))
        )

    def start(self, gang: Gang) -> None:
        self.machine.start(gang)

    def until(self, at_s: float) -> list[tuple[float, MachineEvent]]:
        """What was emitted before `at_s` and was not returned yet."""
        self.env.run(until=at_s)
        events, self.emitted = self.emitted, []
        return events


def pair(run_s: float | None = 60.0, elapsed_s: float | None = None) -> Gang:
    """Two ranks on two nodes that behave alike."""
    part = Part((0, 1), run_s, elapsed_s=elapsed_s)
    return Gang(("pair",), (At("n0", (0, 1)), At("n1", (0, 1))), (part,))


def test_a_gang_starts_after_the_delay_and_ends_after_its_time() -> None:
    bench = Bench()
    bench.start(pair())
    assert bench.until(1000.0) == [
        (5.0, Started(("pair",), (0, 1))),
        (65.0, Ended(("pair",), (End((0, 1), 0),))),
    ]


def test_alike_ranks_cost_two_events_however_many_they_are() -> None:
    bench = Bench()
    places = tuple(At("n0") for _ in range(1000))
    bench.start(Gang(("many",), places, (Part(tuple(range(1000)), 60.0),)))
    steps = 0
    while bench.env.peek() < float("inf"):
        bench.env.step()
        steps += 1
    assert steps == 2


def test_parts_that_end_at_one_instant_are_reported_together() -> None:
    bench = Bench()
    places = tuple(At("n0", (i,)) for i in range(4))
    parts = (Part((0,), 60.0, code=3), Part((1, 2), 60.0), Part((3,), None))
    bench.start(Gang(("mixed",), places, parts))
    assert bench.until(1000.0) == [
        (5.0, Started(("mixed",), (0, 1, 2, 3))),
        (65.0, Ended(("mixed",), (End((0,), 3), End((1, 2), 0)))),
    ]


def test_a_rank_without_a_time_runs_until_it_is_stopped() -> None:
    bench = Bench()
    bench.start(pair(None))
    assert bench.until(1000.0) == [(5.0, Started(("pair",), (0, 1)))]
    bench.machine.stop(("pair",))
    assert bench.until(2000.0) == [(1002.0, Stopped(("pair",), (0, 1)))]


def test_stopping_twice_stopping_late_and_stopping_the_unknown_are_harmless() -> None:
    bench = Bench()
    bench.start(pair())
    bench.machine.stop(("pair",))
    bench.machine.stop(("pair",))
    bench.machine.stop(("other",))
    assert bench.until(10.0) == [(2.0, Stopped(("pair",), (0, 1)))]
    bench.machine.stop(("pair",))
    assert bench.until(1000.0) == []


def test_a_gang_that_is_stopping_ends_only_as_stopped() -> None:
    bench = Bench()
    bench.start(pair())
    bench.until(64.0)
    bench.machine.stop(("pair",))
    assert bench.until(1000.0) == [(66.0, Stopped(("pair",), (0, 1)))]


def test_a_device_given_to_two_ranks_is_a_bug() -> None:
    bench = Bench()
    bench.start(pair())
    with pytest.raises(AssertionError, match="is taken"):
        bench.start(Gang(("thief",), (At("n1", (1, 2)),), (Part((0,), 1.0),)))


def test_ranks_of_one_gang_do_not_share_a_device_either() -> None:
    with pytest.raises(AssertionError, match="is taken"):
        Bench().start(Gang(("g",), (At("n0", (1,)), At("n0", (1,))), (Part((0, 1), 1.0),)))


def test_devices_are_free_again_at_the_end_and_not_before() -> None:
    bench = Bench()
    bench.start(pair())
    bench.until(66.0)
    bench.start(pair())
    bench.machine.stop(("pair",))
    bench.until(67.0)
    with pytest.raises(AssertionError):
        bench.start(pair()._replace(key=("next",)))
    bench.until(69.0)
    bench.start(pair()._replace(key=("last",)))


def test_jitter_spreads_the_starts_and_work_begins_when_all_are_up() -> None:
    jittery = replace(CLUSTER, delays=replace(DELAYS, start_jitter_s=10.0), seed=3)
    first, second, other = Bench(jittery), Bench(jittery), Bench(replace(jittery, seed=4))
    for bench in (first, second, other):
        bench.start(pair())
    events = first.until(1000.0)
    assert events == second.until(1000.0) != other.until(1000.0)
    *starts, (ended_at, ended) = events
    assert sorted(happening.ranks for _, happening in starts) == [(0,), (1,)]  # type: ignore[union-attr]
    assert all(5.0 <= at < 15.0 for at, _ in starts)
    assert ended == Ended(("pair",), (End((0, 1), 0),))
    assert ended_at == starts[-1][0] + 60.0


def test_ranks_on_their_own_do_not_wait_for_each_other() -> None:
    jittery = replace(CLUSTER, delays=replace(DELAYS, start_jitter_s=10.0))
    bench = Bench(jittery)
    bench.start(pair()._replace(together=False))
    events = bench.until(1000.0)
    starts = {happening.ranks: at for at, happening in events if isinstance(happening, Started)}
    ends = {h.ends[0].ranks: at for at, h in events if isinstance(h, Ended)}
    assert ends == {ranks: at + 60.0 for ranks, at in starts.items()}
    assert len(ends) == 2


def test_a_gang_taken_over_has_only_its_remaining_work_to_do() -> None:
    bench = Bench()
    bench.start(pair(elapsed_s=45.0))
    assert bench.until(1000.0) == [(15.0, Ended(("pair",), (End((0, 1), 0),)))]


def test_work_that_was_done_long_ago_ends_at_once() -> None:
    bench = Bench()
    bench.start(pair(elapsed_s=1e6))
    assert bench.until(1000.0) == [(0.0, Ended(("pair",), (End((0, 1), 0),)))]


def test_ranks_that_are_up_wait_for_those_that_are_not() -> None:
    bench = Bench()
    parts = (Part((0,), 60.0, elapsed_s=0.0), Part((1,), 60.0))
    bench.start(pair()._replace(parts=parts))
    assert bench.until(1000.0) == [
        (5.0, Started(("pair",), (1,))),
        (65.0, Ended(("pair",), (End((0,), 0), End((1,), 0)))),
    ]


def test_a_crash_ends_what_runs_there_and_the_rest_of_the_gang_hangs() -> None:
    bench = Bench()
    bench.start(pair())
    bench.until(10.0)
    bench.machine.fail("n1", 300.0)
    assert bench.until(1000.0) == [
        (10.0, Ended(("pair",), (End((1,), None, FaultKind.CRASH, "n1"),))),
        (10.0, NodeDown("n1", FaultKind.CRASH)),
        (310.0, NodeUp("n1")),
    ]
    bench.machine.stop(("pair",))
    assert bench.until(2000.0) == [(1002.0, Stopped(("pair",), (0,)))]


def test_a_crash_during_the_start_leaves_the_others_waiting() -> None:
    bench = Bench()
    bench.start(pair())
    bench.machine.fail("n1", 300.0)
    assert bench.until(300.0)[2:] == [(5.0, Started(("pair",), (0,)))]


def test_a_crash_takes_what_is_stopping_too() -> None:
    bench = Bench()
    bench.start(pair())
    bench.until(10.0)
    bench.machine.stop(("pair",))
    bench.machine.fail("n1", 300.0)
    assert bench.until(300.0)[2:] == [(12.0, Stopped(("pair",), (0,)))]


def test_ranks_sent_to_a_node_that_cannot_take_them_end_at_once() -> None:
    bench = Bench()
    bench.machine.fail("n1", None)
    bench.until(1.0)
    places = (At("n0", (0,)), At("n1", (0,)), At("n9", (0,)), At("n2", (8,)))
    bench.start(Gang(("g",), places, (Part((0, 1, 2, 3), 60.0),)))
    events = bench.until(1000.0)
    assert events[0][1] == Ended(
        ("g",), tuple(End((i,), None, node=place.node) for i, place in enumerate(places) if i)
    )
    assert [happening for _, happening in events[1:4]] == [
        PlacementFailed(f"n{i}") for i in (1, 9, 2)
    ]
    assert events[4:] == [(6.0, Started(("g",), (0,)))]


def test_a_second_failure_prolongs_the_first() -> None:
    bench = Bench()
    bench.machine.fail("n1", 100.0)
    bench.until(50.0)
    bench.machine.fail("n1", 200.0, FaultKind.SPOT_RECLAIM)
    bench.machine.fail("n1", 10.0)
    assert bench.until(1000.0) == [(250.0, NodeUp("n1"))]


def test_a_node_without_repair_never_comes_back() -> None:
    bench = Bench()
    bench.machine.fail("n1", None)
    bench.machine.fail("n1", 10.0)
    assert bench.until(1e9) == [(0.0, NodeDown("n1", FaultKind.CRASH))]
    node = bench.machine.node("n1")
    assert node is not None
    assert not node[1]


SCRIPT = (
    Fault(100.0, "n0", 50.0),
    Fault(120.0, "n1", 100.0, FaultKind.SPOT_RECLAIM),
    Fault(300.0, "n2"),
)
SCRIPTED = replace(CLUSTER, faults=FaultModel(script=SCRIPT))


def test_scripted_faults_strike_at_their_time() -> None:
    assert Bench(SCRIPTED).until(1e6) == [
        (100.0, NodeDown("n0", FaultKind.CRASH)),
        (120.0, NodeDown("n1", FaultKind.SPOT_RECLAIM)),
        (150.0, NodeUp("n0")),
        (220.0, NodeUp("n1")),
        (300.0, NodeDown("n2", FaultKind.CRASH)),
    ]


def test_a_machine_built_later_is_where_the_first_one_would_be() -> None:
    assert Bench(SCRIPTED, begin_at_s=200.0).until(1e6) == [
        (200.0, NodeDown("n1", FaultKind.SPOT_RECLAIM)),
        (220.0, NodeUp("n1")),
        (300.0, NodeDown("n2", FaultKind.CRASH)),
    ]


def test_chance_goes_on_too_in_a_machine_built_later() -> None:
    model = replace(CLUSTER, faults=FaultModel(node_mtbf_s=1000.0, node_repair_s=10.0), seed=1)
    first, later = Bench(model), Bench(model, begin_at_s=50_000.0)
    events = [happening for at, happening in first.until(100_000.0) if at >= 50_010.0]
    again = [happening for at, happening in later.until(100_000.0) if at >= 50_010.0]
    assert len(events) > 50
    assert events == again


def test_another_node_changes_no_other_nodes_faults() -> None:
    model = replace(CLUSTER, faults=FaultModel(node_mtbf_s=1000.0, node_repair_s=10.0), seed=1)
    larger = replace(model, nodes=(NodeModel("n9"), *model.nodes))
    events = Bench(model).until(20_000.0)
    others = [(at, h) for at, h in Bench(larger).until(20_000.0) if h.node != "n9"]  # type: ignore[union-attr]
    assert events == others


Action = tuple[str, int, float]
ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["start", "stop", "fail"]),
        st.integers(0, 7),
        st.floats(0.0, 30.0).map(lambda delay: round(delay, 1)),
    ),
    max_size=40,
)


@given(actions=ACTIONS, jitter_s=st.sampled_from([0.0, 8.0]), together=st.booleans())
def test_every_rank_is_over_exactly_once_and_devices_are_free_in_the_end(
    actions: list[Action], jitter_s: float, together: bool
) -> None:
    bench = Bench(replace(CLUSTER, delays=replace(DELAYS, start_jitter_s=jitter_s)))
    started: list[Gang] = []
    for number, (action, which, delay_s) in enumerate(actions):
        bench.env.run(until=bench.env.now + delay_s + 0.01)
        if action == "fail":
            bench.machine.fail(f"n{which % 3}", 20.0)
        elif action == "stop" and started:
            bench.machine.stop(started[which % len(started)].key)
        elif action == "start":
            gang = Gang((number,), _free_places(bench, started), _PARTS, together)
            started.append(gang)
            bench.machine.start(gang)
    bench.env.run(until=bench.env.now + 1000.0)
    for gang in started:
        bench.machine.stop(gang.key)
    bench.env.run(until=bench.env.now + 1000.0)
    for gang in started:
        assert sorted(_over(bench.emitted, gang)) == [0, 1, 2, 3]
    all_devices = tuple(At(f"n{i}", tuple(range(8))) for i in range(3))
    bench.machine.start(Gang(("all",), all_devices, (Part((0, 1, 2), 1.0),)))


_PARTS = (Part((0, 1), 40.0), Part((2,), 20.0, code=1), Part((3,), None))


def _free_places(bench: Bench, started: list[Gang]) -> tuple[At, ...]:
    """Four devices that are free as far as was emitted; without devices if there are none."""
    held = {
        (place.node, device)
        for gang in started
        for rank, place in enumerate(gang.places)
        if rank not in _over(bench.emitted, gang)
        for device in place.devices
    }
    free = [(f"n{i}", d) for d in range(8) for i in range(3) if (f"n{i}", d) not in held][:4]
    if len(free) < 4:
        return tuple(At(f"n{i % 3}") for i in range(4))
    return tuple(At(node, (device,)) for node, device in free)


def _over(events: Iterable[tuple[float, MachineEvent]], gang: Gang) -> list[int]:
    ranks: list[int] = []
    for _, happening in events:
        match happening:
            case Ended(key, ends) if key == gang.key:
                ranks.extend(rank for end in ends for rank in end.ranks)
            case Stopped(key, gone) if key == gang.key:
                ranks.extend(gone)
    return ranks
