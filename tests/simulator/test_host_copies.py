"""What a host copies: for TCP flows, for MPI, and the batches that it hands to its GPUs."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.hardware.constants import FITTED
from simulator.hardware.gpus import find_gpu
from simulator.hardware.hosts import SERVERS, Host, usual_host
from simulator.hardware.links import find_link
from simulator.hardware.networks import find_network
from simulator.network.topology import grid
from simulator.training.exchange import HOST_LINK_GBS, plan
from simulator.training.input_pipeline import HOST_COPY_GBS, TO_DEVICE_GBS, hand_over_s
from simulator.training.models import MODELS, find_model
from simulator.training.pace import pace
from simulator.training.placement import RDMA_SHARE, TCP_SHARE, Place
from simulator.training.plans import Scheme
from simulator.training.recipes import BadRecipe, Recipe
from tests.simulator.stepwise import Job, finish_times

PCIE = Place(find_gpu("P100"), find_link("pcie3"), 64, 16, find_network("25GbE"))
ONE = replace(PCIE, ranks=1, nodes=1)


def test_one_tcp_flow_carries_what_one_stream_was_measured_to() -> None:
    # bytedance/byteps#29: 13.7 Gb/s by one stream of iperf on 25 GbE, 21.1 by four.
    assert PCIE.net_gbs(FITTED) == pytest.approx(13.7 / 8.0, rel=0.05)
    assert PCIE.net_gbs(FITTED, flows=4) == pytest.approx(21.1 / 8.0, rel=0.10)


@given(st.sampled_from([1, 10, 25, 40, 100, 400]), st.integers(1, 64))
def test_a_tcp_flow_is_slower_than_its_copies_and_than_its_wire(gbps: int, flows: int) -> None:
    place = replace(PCIE, network=find_network(f"{gbps}GbE"))
    one, many = place.net_gbs(FITTED), place.net_gbs(FITTED, flows=flows)
    line = place.network.line_gbs
    assert one < min(line, FITTED.tcp_copy_gbs)
    assert one <= many <= max(one, TCP_SHARE * line)


def test_a_cloud_s_limit_on_one_flow_holds_whatever_the_host_does() -> None:
    capped = replace(PCIE, network=find_network("25GbE", flow_gbps_max=5.0))
    assert capped.net_gbs(FITTED) == pytest.approx(5.0 / 8.0)


def test_nics_reach_host_memory_without_staging() -> None:
    roce = replace(PCIE, network=find_network("25GbE RoCE"))
    assert roce.net_gbs(FITTED, from_host=True) == pytest.approx(RDMA_SHARE * 25.0 / 8.0)
    assert roce.net_gbs(FITTED) < roce.net_gbs(FITTED, from_host=True)


def test_adding_gradients_takes_three_times_the_memory_of_reading_parameters() -> None:
    size, slow = 4e8, Host(memory_gbs=12.0)
    node = replace(PCIE, ranks=8, nodes=1, host=slow)
    kept = plan(node, ((size, 1.0),), Scheme.PS_HOST, FITTED)
    read_s = 8 * size / 12e9
    assert kept.tail_s == pytest.approx(read_s)
    assert kept.intra_s_per_byte * size == pytest.approx(3.0 * read_s)


def test_hosts_with_much_memory_bandwidth_are_as_fast_as_their_slots() -> None:
    node = replace(PCIE, ranks=2, nodes=1, host=Host(memory_gbs=400.0))
    kept = plan(node, ((4e8, 1.0),), Scheme.PS_HOST, FITTED)
    assert kept.tail_s == pytest.approx(4e8 / (HOST_LINK_GBS * 1e9))


def test_without_prefetch_gpus_wait_until_their_batch_is_copied() -> None:
    fed, waiting = (
        pace(Recipe("alexnet", batch=512, real_data=True, prefetch=prefetch), ONE).step()
        for prefetch in (True, False)
    )
    copied = 512 * 224 * 224 * 3 * 4 / (HOST_COPY_GBS * 1e9)
    assert waiting.total_s - fed.total_s == pytest.approx(copied)
    parts = waiting.compute_s + waiting.straggler_s + waiting.exchange_s + waiting.input_s
    assert parts == pytest.approx(waiting.total_s)
    # Made-up samples are made on the device.
    with pytest.raises(BadRecipe, match="without real_data nothing is read"):
        pace(Recipe("alexnet", batch=512, prefetch=False), ONE)


def test_a_slow_pipeline_hides_concurrent_copies() -> None:
    starved = replace(ONE, host=Host(cpus=1))
    fed, waiting = (
        pace(Recipe("alexnet", batch=512, real_data=True, prefetch=prefetch), starved).step()
        for prefetch in (True, False)
    )
    # One thread prepares the next batch meanwhile, so it alone sets the pace.
    assert waiting.total_s == pytest.approx(fed.total_s)


def test_memory_that_is_not_pinned_goes_as_fast_as_a_thread_copies_and_larger_pictures_take_longer() -> (
    None
):
    small, large = find_model("alexnet"), find_model("inception_v3")
    pinned = hand_over_s(small, 64, pinned=True)
    slower = TO_DEVICE_GBS / HOST_COPY_GBS
    assert hand_over_s(small, 64, pinned=False) == pytest.approx(slower * pinned)
    # The measurements of NVIDIA's blog "How to Optimize Data Transfers in CUDA C/C++" on two hosts.
    assert 2.31 / 5.77 < 1.0 / slower < 5.37 / 6.19
    assert hand_over_s(large, 64, pinned=True) == pytest.approx(pinned * (299 / 224) ** 2)
    assert all(hand_over_s(model, 1, pinned=True) >= 0.0 for model in MODELS.values())


def test_step_by_step_hands_over_as_well() -> None:
    took = [
        finish_times(grid(), [Job("x", recipe, {"rack-0-0": 1}, 10)], seed=1)["x"]
        for prefetch in (True, False)
        for recipe in [Recipe("alexnet", real_data=True, prefetch=prefetch)]
    ]
    assert took[1] > 1.05 * took[0]


@pytest.mark.parametrize(
    ("gpu", "gpus", "link", "server"),
    [
        ("P100", 4, "nvlink1", "dgx-1"),
        ("P100", 4, "pcie3", "pcie-p100"),
        ("P100", 4, None, "pcie-p100"),
        ("K80", 1, "none", "p2.xlarge"),
        ("K80", 4, "pcie3", "p2.8xlarge"),
        ("K80", 16, "pcie3", "p2.16xlarge"),
        ("V100-32", 8, "nvlink2-nvswitch", "dgx-2"),
        ("A100", 2, "nvlink3", "dgx-a100"),
    ],
)
def test_the_host_is_that_of_the_server_with_such_links(
    gpu: str, gpus: int, link: str | None, server: str
) -> None:
    assert usual_host(gpu, gpus, link) == SERVERS[server].host


def test_an_unknown_server_has_the_default_host() -> None:
    assert usual_host("P100", 16, "nvlink1") == Host()
    assert usual_host("P100", 3) == Host()
    assert usual_host("abacus", 8, "pcie3") == Host()
