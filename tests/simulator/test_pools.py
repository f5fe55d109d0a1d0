"""Pools: nodes come when they are wanted, go when they are idle, and cost what they cost."""

from typing import Any

import pytest

from simulator.kernel.virtual_time import VirtualTime
from simulator.machine.autoscaling import Autoscaler
from simulator.machine.events import NodeDown, NodeUp
from simulator.machine.gang import Gang, Part
from simulator.machine.machine import Machine
from simulator.machine.pools import Pool, Rent, ready_after_s, wanted_nodes
from simulator.network.topology import parse_cluster
from tests.gangs import on


def _world(**pool: Any) -> tuple[VirtualTime, Machine, Autoscaler, list[Any], list[int]]:
    fields = {"rack": "cloud", "most": 4, "delay_s": 100, "delay_spread": 0, "idle_s": 300}
    cluster = parse_cluster(
        {
            "racks": [{"name": "own", "gpus": 8}, {"name": "cloud", "nodes": 4, "gpus": 8}],
            "pools": [fields | {"price_h": 36.0} | pool],
            "start_delay_s": 0,
        }
    )
    env = VirtualTime()
    events: list[Any] = []
    waiting = [0]
    machine = Machine(env, cluster, lambda happening: events.append((env.now, happening)))
    return env, machine, Autoscaler(env, cluster, machine, lambda: waiting[0]), events, waiting


def test_nodes_of_a_pool_are_not_there_at_first() -> None:
    _, machine, scaler, _, _ = _world(least=1)
    up = [name for name in machine.nodes if (node := machine.node(name)) and node[1]]
    assert up == ["own-0", "cloud-0"]
    assert scaler.spent() == {"cloud": 0.0}


def test_waiting_gangs_bring_as_many_nodes_as_they_need_after_the_delay() -> None:
    env, _, _, events, waiting = _world()
    waiting[0] = 12
    env.run(until=120)
    assert [(at, h.node) for at, h in events if isinstance(h, NodeUp)] == [
        (115.0, "cloud-0"),
        (115.0, "cloud-1"),
    ]


def test_no_more_nodes_come_than_the_pool_may_have() -> None:
    env, _, _, events, waiting = _world()
    waiting[0] = 1000
    env.run(until=1000)
    assert sum(isinstance(h, NodeUp) for _, h in events) == 4


def test_idle_nodes_are_given_back_and_busy_ones_are_not() -> None:
    env, machine, scaler, events, waiting = _world()
    waiting[0] = 16
    env.run(until=120)
    waiting[0] = 0
    machine.start(Gang("g", on("cloud-0:0"), (Part((0,), 1000.0),)))
    env.run(until=900)
    gone = [(at, h.node) for at, h in events if isinstance(h, NodeDown)]
    assert [node for _, node in gone] == ["cloud-1"]
    assert gone[0][0] == pytest.approx(420.0, abs=16)
    env.run(until=2000)
    assert [h.node for _, h in events if isinstance(h, NodeDown)] == ["cloud-1", "cloud-0"]
    # Paid from the request on: a cent a second for each.
    spent = scaler.spent()["cloud"]
    ends = {h.node: at for at, h in events if isinstance(h, NodeDown)}
    assert spent == pytest.approx(0.01 * sum(end - 15.0 for end in ends.values()))


def test_a_node_that_failed_meanwhile_comes_when_it_is_repaired() -> None:
    env, machine, _, events, waiting = _world(idle_s=1000)
    machine.fail("cloud-0", 500.0)
    waiting[0] = 8
    env.run(until=20)
    waiting[0] = 0
    env.run(until=600)
    ups = [(at, h.node) for at, h in events if isinstance(h, NodeUp)]
    assert ups == [(500.0, "cloud-0")]
    assert not machine.is_withheld("cloud-0")


def test_what_is_wanted_is_what_waits_within_bounds() -> None:
    pool = Pool("p", least=1, most=5)
    assert wanted_nodes(pool, waiting_gpus=0, gpus_per_node=8, busy=0, coming=0) == 1
    assert wanted_nodes(pool, waiting_gpus=17, gpus_per_node=8, busy=1, coming=0) == 3
    assert wanted_nodes(pool, waiting_gpus=17, gpus_per_node=8, busy=1, coming=3) == 0
    assert wanted_nodes(pool, waiting_gpus=999, gpus_per_node=8, busy=2, coming=0) == 3


def test_refusals_delay_a_node_and_the_same_seed_refuses_alike() -> None:
    sure, rare = Pool("p", delay_s=100), Pool("p", delay_s=100, refused=0.8)
    delays = [[ready_after_s(pool, i, 1) for i in range(200)] for pool in (sure, rare)]
    assert sum(delays[1]) > 3 * sum(delays[0])
    assert delays[1] == [ready_after_s(rare, i, 1) for i in range(200)]


def test_rent_counts_what_still_runs() -> None:
    rent = Rent(3600.0)
    rent.begin("a", 0.0)
    rent.begin("b", 5.0)
    rent.end("a", 10.0)
    assert rent.cost(20.0) == pytest.approx(10.0 + 15.0)


def test_nodes_of_a_spot_pool_are_reclaimed_even_without_a_rate_in_the_file() -> None:
    racks = [{"name": "own"}, {"name": "cloud"}]
    cluster = parse_cluster({"racks": racks, "pools": [{"rack": "cloud", "most": 1, "spot": True}]})
    assert cluster.faults.spot is not None
    assert cluster.faults.spot.racks == ("cloud",)
    assert parse_cluster({"racks": racks}).faults.spot is None
