"""Devices that several ranks share: the ledger, and how fast they compute together."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.faults import Fault, FaultModel
from simulator.machine.events import Ended, MachineEvent, Stopped
from simulator.machine.gang import Gang, Part, Work
from simulator.machine.time_slicing import SWITCH_COST, WHOLE, Ask, Owner, speeds_of
from simulator.network.topology import ClusterModel, Delays, NodeModel, parse_cluster
from simulator.training.recipes import Recipe
from tests.simulator.test_machine import At, Bench

DELAYS = Delays(start_s=5.0, stop_s=2.0)
CLUSTER = ClusterModel((NodeModel("n0", gpus=2, gpu_memory_mib=16_000),), DELAYS)
KEPT = 1.0 - SWITCH_COST
# Computing only: no exchange, no input, so a step takes what it computes.
RECIPE = Recipe("resnet50", compute_s=0.1)


def sharer(
    name: str,
    *shares: int,
    device: int = 0,
    run_s: float | None = 60.0,
    steps: float = 0.0,
    together: bool = True,
) -> Gang:
    """A gang whose ranks all have a share of one device."""
    ranks = tuple(range(len(shares)))
    work = Work(RECIPE, steps, gpus=len(shares)) if steps else None
    places = tuple(At("n0", (device,)) for _ in ranks)
    return Gang((name,), places, (Part(ranks, run_s, work=work),), together, shares=shares)


def ends(events: Iterable[tuple[float, MachineEvent]]) -> dict[str, list[float]]:
    """When the ranks of each gang exited."""
    by_gang: dict[str, list[float]] = {}
    for at, happening in events:
        if isinstance(happening, Ended):
            for end in happening.ends:
                by_gang.setdefault(happening.key[0], []).extend([at] * len(end.ranks))  # type: ignore[index]
    return by_gang


def test_two_ranks_of_a_gang_share_one_device() -> None:
    bench = Bench(CLUSTER)
    bench.start(sharer("a", 250, 250))
    (_, _, held), (_, _, free) = bench.machine.allocations()
    assert [(each.owner, each.share, each.memory_mib) for each in held] == [
        (Owner(("a",), 0), 250, 4_000),
        (Owner(("a",), 1), 250, 4_000),
    ]
    assert free == ()
    assert ends(bench.until(1e6)) == {"a": [pytest.approx(5.0 + 60.0 / KEPT)] * 2}
    assert all(not held for _, _, held in bench.machine.allocations())


def test_work_of_a_given_duration_has_its_share_and_pays_for_the_switching() -> None:
    bench = Bench(CLUSTER)
    bench.start(sharer("a", 500, run_s=100.0))
    bench.until(45.0)
    # It computed 40 s alone; the second one comes up at 50.
    bench.start(sharer("b", 250, run_s=19.0))
    ended = ends(bench.until(1e6))
    assert ended["b"] == [pytest.approx(50.0 + 19.0 / KEPT)]
    together_s = 19.0 / KEPT
    assert ended["a"] == [pytest.approx(50.0 + together_s + (100.0 - 45.0 - 19.0))]


def test_a_rank_that_shares_with_no_other_loses_nothing() -> None:
    bench = Bench(CLUSTER)
    bench.start(sharer("a", 10))
    bench.start(sharer("b", 10, device=1))
    assert ends(bench.until(1e6)) == {"a": [65.0], "b": [65.0]}


@pytest.fixture
def v100() -> ClusterModel:
    node = {"name": "n0", "gpus": 2, "gpu_type": "V100", "gpu_memory_mib": 16_000}
    return parse_cluster({"nodes": [node], "start_delay_s": 5, "stop_delay_s": 2})


def test_gangs_that_train_divide_a_device_by_their_shares(v100: ClusterModel) -> None:
    bench = Bench(v100)
    bench.start(sharer("a", 600, steps=1_000))
    assert ends(bench.until(1e6)) == {"a": [pytest.approx(105.0)]}
    now = bench.env.now
    bench.start(sharer("large", 600, steps=1_000))
    bench.start(sharer("small", 200, steps=1_000))
    ended = ends(bench.until(now + 1e6))
    # Three quarters and one quarter while both are there, as nothing else wants the device.
    first_s = 100.0 / (KEPT * 0.75)
    assert ended["large"] == [pytest.approx(now + 5.0 + first_s)]
    left_s = 100.0 - first_s * KEPT * 0.25
    assert ended["small"] == [pytest.approx(now + 5.0 + first_s + left_s)]


def test_training_gets_what_work_of_given_duration_leaves(v100: ClusterModel) -> None:
    bench = Bench(v100)
    bench.start(sharer("trains", 100, steps=1_000))
    bench.start(sharer("serves", 300, run_s=None))
    assert ends(bench.until(1e6)) == {"trains": [pytest.approx(5.0 + 100.0 / (KEPT * 0.7))]}


def test_ranks_that_work_by_themselves_go_at_their_own_speed(v100: ClusterModel) -> None:
    bench = Bench(v100)
    places = (At("n0", (0,)), At("n0", (1,)))
    alone = Gang(("a",), places, (Part((0, 1), 60.0),), together=False, shares=(500, 500))
    bench.start(alone)
    bench.start(sharer("b", 500, run_s=None))
    assert ends(bench.until(1e6)) == {"a": [65.0, pytest.approx(5.0 + 60.0 / KEPT)]}


def test_a_gang_that_works_together_goes_at_the_speed_of_its_slowest_rank() -> None:
    bench = Bench(CLUSTER)
    places = (At("n0", (0,)), At("n0", (1,)))
    bench.start(Gang(("a",), places, (Part((0, 1), 60.0),), shares=(500, 500)))
    bench.start(sharer("b", 500, run_s=None))
    assert ends(bench.until(1e6)) == {"a": [pytest.approx(5.0 + 60.0 / KEPT)] * 2}


def test_a_stopped_sharer_gives_its_part_back() -> None:
    bench = Bench(CLUSTER)
    bench.start(sharer("a", 500, run_s=100.0))
    bench.start(sharer("b", 500, run_s=None))
    bench.until(30.0)
    bench.machine.stop(("b",))
    events = bench.until(1e6)
    assert [(at, each) for at, each in events if isinstance(each, Stopped)] == [
        (32.0, Stopped(("b",), (0,)))
    ]
    assert ends(events) == {"a": [pytest.approx(32.0 + 100.0 - 27.0 * KEPT)]}


def test_a_lost_node_takes_all_sharers() -> None:
    fault = Fault(20.0, "n0", 10.0)
    bench = Bench(ClusterModel(CLUSTER.nodes, DELAYS, FaultModel(script=(fault,))))
    bench.start(sharer("a", 500, 250))
    bench.start(sharer("b", 250))
    assert ends(bench.until(25.0)) == {"a": [20.0, 20.0], "b": [20.0]}
    assert not list(bench.machine.keys)
    bench.until(35.0)
    assert all(not held for _, _, held in bench.machine.allocations())


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (sharer("a", 600), sharer("b", 500)),
        (sharer("a", 1_000), sharer("b", 1)),
        (sharer("a", 1), Gang(("b",), (At("n0", (0,)),), (Part((0,), 60.0),))),
        (Gang(("a",), (At("n0", (0,)),), (Part((0,), 60.0),)), sharer("b", 1)),
    ],
)
def test_a_device_is_never_given_away_beyond_its_whole(first: Gang, second: Gang) -> None:
    bench = Bench(CLUSTER)
    bench.start(first)
    with pytest.raises(AssertionError):
        bench.start(second)


asks = st.lists(st.tuples(st.integers(1, WHOLE), st.booleans()), min_size=1, max_size=8).filter(
    lambda drawn: sum(share for share, _ in drawn) <= WHOLE
)


@given(asks)
def test_every_rank_gets_its_share_and_the_device_is_no_faster_than_it_is(
    wanted: list[tuple[int, bool]],
) -> None:
    asks_by_holder = {
        Owner("g", rank): Ask(share, WHOLE if trains else share)
        for rank, (share, trains) in enumerate(wanted)
    }
    speeds = speeds_of(asks_by_holder)
    kept = KEPT if len(asks_by_holder) > 1 else 1.0
    used = sum(speeds[holder] * ask.usable for holder, ask in asks_by_holder.items())
    assert used <= WHOLE * kept * (1 + 1e-9)
    for holder, ask in asks_by_holder.items():
        assert ask.share * kept * (1 - 1e-9) <= speeds[holder] * ask.usable
        assert speeds[holder] <= kept * (1 + 1e-9)
    # Nothing is left while some holder could use more.
    if any(ask.usable == WHOLE for ask in asks_by_holder.values()):
        assert used == pytest.approx(WHOLE * kept)
