"""Faults: the same seed gives the same crashes, node by node."""

from itertools import islice, pairwise

import pytest

from simulator.faults import Fault, FaultModel, chance_crashes

DAILY = FaultModel(node_mtbf_s=86400.0, node_repair_s=600.0)


def crashes(node: str, seed: int = 7, count: int = 50) -> list[Fault]:
    return list(islice(chance_crashes(node, DAILY, seed), count))


def test_the_same_seed_gives_the_same_crashes() -> None:
    assert crashes("n1") == crashes("n1")
    # Written down, so that another Python or hash seed that draws otherwise is noticed.
    assert crashes("n1")[0].at_s == pytest.approx(203123.12743)


def test_another_seed_or_node_gives_other_crashes() -> None:
    assert crashes("n1") != crashes("n1", seed=8)
    assert [fault.at_s for fault in crashes("n1")] != [fault.at_s for fault in crashes("n2")]


def test_a_node_crashes_again_only_after_its_repair() -> None:
    faults = crashes("n1")
    assert all(first.over_at_s < second.at_s for first, second in pairwise(faults))


def test_mean_times_are_those_of_the_model() -> None:
    faults = crashes("n1", count=20_000)
    down_s = sum(fault.repair_s or 0.0 for fault in faults)
    up_s = faults[-1].over_at_s - down_s
    assert abs(up_s / len(faults) / 86400.0 - 1) < 0.03
    assert abs(down_s / len(faults) / 600.0 - 1) < 0.03


def test_without_a_mean_time_nothing_crashes_by_chance() -> None:
    assert list(chance_crashes("n1", FaultModel(), 7)) == []
