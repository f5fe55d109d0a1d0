"""Formulas: textbook identities, NCCL's choices, parameter servers, buckets, compression."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.collectives import algorithms as a
from simulator.collectives import nccl
from simulator.collectives import parameter_server as ps
from simulator.collectives.buckets import Bucket, Fusion, exposure, fill
from simulator.collectives.compression import COMPRESSIONS, wire_bytes

COSTS = nccl.Costs(20.0, 1.5)
sizes = st.floats(1e3, 1e10)
powers = st.integers(1, 10).map(lambda q: 2.0**q)


@given(size=sizes, n=powers)
def test_ring_and_halving_doubling_move_the_same_bytes(size: float, n: float) -> None:
    assert a.ring(size, n, 0.0, 1e-9) == pytest.approx(a.halving_doubling(size, n, 0.0, 1e-9))


@given(size=sizes, n=powers, alpha=st.floats(1e-7, 1e-4))
def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather(
    size: float, n: float, alpha: float
) -> None:
    both = a.reduce_scatter(size, n, alpha, 1e-9) + a.all_gather(size, n, alpha, 1e-9)
    assert a.ring(size, n, alpha, 1e-9) == pytest.approx(both)


def test_ranks_beyond_a_power_of_two_cost_a_fold() -> None:
    folded = a.halving_doubling(8e6, 5.0, 1e-5, 1e-9)
    assert folded == pytest.approx(a.halving_doubling(8e6, 4.0, 1e-5, 1e-9) + 2e-5 + 16e-3)


def test_a_torus_of_one_row_is_a_ring() -> None:
    assert a.torus_2d(1e6, 8.0, 1.0, 1e-6, (1e-9, 1e-9)) == pytest.approx(
        a.ring(1e6, 8.0, 1e-6, 1e-9)
    )


def test_a_butterfly_inside_one_leaf_feels_no_oversubscription() -> None:
    inside = a.butterfly_over_leaves(1e7, 8.0, 0.0, 1e-9, 8.0, 2.0)
    assert inside == pytest.approx(a.halving_doubling(1e7, 8.0, 0.0, 1e-9))
    # Of 16 nodes, the first exchange leaves the leaf: half of the bytes at half of the rate.
    across = a.butterfly_over_leaves(1e7, 16.0, 0.0, 1e-9, 8.0, 2.0)
    assert across == pytest.approx(1e7 * 1e-9 * 2 * (0.5 * 2 + 7 / 16))


@given(size=sizes, n=st.integers(2, 64))
def test_formulas_take_arrays(size: float, n: int) -> None:
    for formula in (*a.ALL_REDUCE.values(), *a.OTHERS.values()):
        one = float(np.asarray(formula(size, float(n), 1e-6, 1e-9)))
        many = formula(np.full(3, size), np.full(3, float(n)), 1e-6, 1e-9)
        assert np.asarray(many) == pytest.approx(one)
        assert one > 0


def _who(ranks: int, nodes: int, net: float = 192.0, **more: object) -> nccl.Ranks:
    return nccl.ranks_of(
        ranks=np.array([ranks]), nodes=nodes, intra_gbs=234.0, net_gbs=net, generation=1, **more
    )


def _choice(size: float, who: nccl.Ranks) -> tuple[str, str]:
    chosen = nccl.all_reduce(size, who, COSTS)
    return nccl.ALGORITHMS[int(chosen.algorithm[0])], nccl.PROTOCOLS[int(chosen.protocol[0])]


def test_nccl_takes_low_latency_for_small_and_simple_for_large_messages() -> None:
    assert _choice(8e3, _who(8, 1)) == ("ring", "LL")
    assert _choice(1e9, _who(8, 1)) == ("ring", "Simple")
    assert _choice(64e3, _who(256, 32))[0] == "tree"
    assert _choice(8e9, _who(256, 32)) == ("ring", "Simple")


def test_a_network_that_does_not_keep_order_leaves_only_simple() -> None:
    assert _choice(64e3, _who(32, 4, ordered=False))[1] == "Simple"
    assert _choice(64e3, _who(8, 1, ordered=False))[1] == "LL"


def _latency_us(who: nccl.Ranks) -> float:
    return 1e6 * float(nccl.all_reduce(64e3, who, COSTS).latency_s[0])


def test_every_hop_adds_the_latency_of_the_network() -> None:
    near, far = (_latency_us(_who(32, 4, ordered=False, net_us=us)) for us in (0.0, 35.0))
    # Two levels of a tree, up and down; and before Hopper what has come is flushed.
    assert far - near == pytest.approx(COSTS.hop_factor * 4 * 2 * 35.0)


def test_gpus_from_hopper_on_flush_nothing() -> None:
    def hop_us(generation: str) -> float:
        return float(nccl.reach_us(35.0, nccl.generation_of(generation)))

    assert [hop_us(name) for name in nccl.GENERATIONS] == [70.0, 70.0, 35.0, 35.0]
    assert nccl.reach_us(35.0, nccl.generation_of("ampere"), flushes=False) == 35.0


def test_one_node_does_not_feel_the_network() -> None:
    assert _latency_us(_who(8, 1, net_us=35.0)) == _latency_us(_who(8, 1))


def test_large_messages_reach_the_bus_bandwidth_of_the_slowest_link() -> None:
    for who, limit in ((_who(8, 1), 234.0), (_who(64, 8, net=20.0), 20.0)):
        seconds = nccl.all_reduce(64e9, who, COSTS).seconds
        bus = a.bus_bandwidth("all_reduce", 64e9, who.ranks, seconds)
        assert float(np.asarray(bus)[0]) / 1e9 == pytest.approx(limit, rel=0.01)


@given(size=sizes, ranks=st.sampled_from([2, 4, 8, 16, 64, 512]))
def test_more_bytes_never_take_less_time_within_a_choice(size: float, ranks: int) -> None:
    who = _who(ranks, max(1, ranks // 8))
    less, more = (float(nccl.all_reduce(s, who, COSTS).seconds[0]) for s in (size, 2 * size))
    # The tuner minimises its own numbers, so at a switch the real time may drop a little.
    assert more > 0.7 * less


def test_no_job_waits_for_itself() -> None:
    assert float(nccl.all_reduce(1e9, _who(1, 1), COSTS).seconds[0]) == 0.0


def test_the_hottest_server_holds_the_largest_tensor_unless_it_is_split() -> None:
    who = ps.Servers(64.0, 16.0, 1e9, 4e9, clients_per_node=4.0, colocated=False)
    vgg, fc6 = 553e6, 411e6
    whole, split = (
        float(ps.one_way_s(vgg, who, ps.hottest_bytes(vgg, who.servers, fc6, split=is_split)))
        for is_split in (False, True)
    )
    # 64 clients fetch 411 MB from one server: 26 s one way.
    assert whole == pytest.approx(26.3, abs=0.1)
    assert whole > 8 * split


def test_asynchronous_clients_go_until_the_hottest_server_is_full() -> None:
    few = ps.asynchronous(1e8, ps.Servers(2.0, 1.0, 1e9, 1e10, colocated=False), 1e7, 1.0)
    many = ps.asynchronous(1e8, ps.Servers(500.0, 1.0, 1e9, 1e10, colocated=False), 1e7, 1.0)
    assert float(np.asarray(few.steps_per_s)) == pytest.approx(2 / 1.2, rel=0.05)
    assert float(np.asarray(many.steps_per_s)) == pytest.approx(1e9 / 1e8, rel=0.02)
    assert many.staleness == 499.0


def test_incast_waits_only_when_the_buffer_is_too_small() -> None:
    assert float(np.asarray(ps.incast_s(4.0, 1e5, 1e6))) == 0.0
    assert 0.0 < float(np.asarray(ps.incast_s(64.0, 1e5, 1e6))) < ps.RTO_S_MIN


@given(
    st.lists(st.tuples(st.floats(1.0, 1e8), st.floats(0.0, 1.0)), min_size=1, max_size=40),
    st.floats(0.0, 1.0),
    st.floats(1e-12, 1e-7),
)
def test_the_formula_equals_the_simulated_stream_of_buckets(
    layers: list[tuple[float, float]], backward_s: float, s_per_byte: float
) -> None:
    total = sum(share for _, share in layers) or 1.0
    gradients = [(size, share / total) for size, share in layers]
    buckets = fill(gradients, Fusion(3e7, 1e6))
    assert sum(b.size_bytes for b in buckets) == pytest.approx(sum(s for s, _ in gradients))
    end = 0.0
    for bucket in buckets:
        end = max(end, bucket.ready * backward_s) + 1e-5 + bucket.size_bytes * s_per_byte
    lines = exposure(buckets, lambda _: 1e-5)
    assert lines.end_s(backward_s, s_per_byte) == pytest.approx(end, rel=1e-9)


def test_a_bucket_is_ready_with_its_last_gradient() -> None:
    gradients = [(6.0, 0.25), (6.0, 0.25), (6.0, 0.5)]
    assert fill(gradients, Fusion(10.0, 5.0)) == (Bucket(6.0, 0.25), Bucket(12.0, 1.0))


def test_what_is_gathered_pays_only_for_few_ranks() -> None:
    how = COMPRESSIONS["topk"]
    assert wire_bytes(32e6, how, 8) == pytest.approx(32e6 * 2e-3 * 4)
    assert wire_bytes(32e6, how, 1024) > 32e6 * COMPRESSIONS["fp16"].ratio
    assert wire_bytes(32e6, COMPRESSIONS["1bit"], 1024) == pytest.approx(1e6)
