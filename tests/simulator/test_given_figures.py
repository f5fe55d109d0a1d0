"""Figures that are given, not fitted: each against where it comes from, and what follows from it."""

import json
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.hardware.constants import FITTED, NAMES, Constants
from simulator.hardware.gpus import GPUS, SMS, find_gpu
from simulator.hardware.hosts import SERVERS
from simulator.hardware.links import LINKS, find_link
from simulator.hardware.networks import find_network
from simulator.training.exchange import USUAL_LEAF, plan
from simulator.training.placement import TCP_SHARE, Place
from simulator.training.plans import Scheme, Software
from simulator.training.products import TILE, dense_s, padding
from simulator.training.served_exchange import servers_of
from simulator.validation.fit import BLOCKS
from tests.shared_data import shared

VALIDATION = Path(__file__).parents[2] / "docs" / "validation.md"
K20X = find_gpu("K20X")
ARIES = Place(
    find_gpu("P100"),
    find_link(None),
    64,
    64,
    find_network("Cray Aries", gbps=80, transport="tcp_grpc"),
)


def test_every_constant_is_fitted_by_the_search_and_there_are_ten_at_most() -> None:
    fitted = [name for block in BLOCKS for name in block.names]
    assert sorted(fitted) == sorted(NAMES)
    assert len(fields(Constants)) <= 10


def test_the_documentation_shows_the_constants_that_are_used() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([\d.]+) \|", VALIDATION.read_text("utf-8"), re.MULTILINE)
    assert {name for name, _ in rows} == set(NAMES)
    for name, shown in rows:
        digits = len(shown.replace(".", "").lstrip("0"))
        assert float(f"{getattr(FITTED, name):.{digits}g}") == float(shown), name


@pytest.fixture(scope="module")
def nccl() -> dict[str, Any]:
    document = json.loads(shared("calibration", "nccl_tuner_constants.json").read_text("utf-8"))
    bandwidths: dict[str, Any] = document["link_bw_gbs"]
    return bandwidths


@pytest.mark.parametrize(
    ("link", "name"),
    [
        ("nvlink1", "nvlink_sm60"),
        ("nvlink2-nvswitch", "nvlink_sm70"),
        ("nvlink3", "nvlink_sm80"),
        ("nvlink4", "nvlink_sm90"),
        ("nvlink4-nvls", "nvlink_sm90"),
        ("nvlink5", "nvlink_sm100"),
        ("nvlink5-nvls", "nvlink_sm100"),
        ("pcie3", "pci_gen3_x16"),
    ],
)
def test_links_are_as_fast_as_in_nccl_s_source(nccl: dict[str, Any], link: str, name: str) -> None:
    assert LINKS[link].link_gbs == nccl[name]


@pytest.mark.parametrize(
    ("network", "latency_us"),
    [
        ("8x400Gb EFAv4", 35),
        ("16x200Gb EFA v3", 35),
        ("32x100Gb EFA", 75),
        ("4x100Gb EFAv2", 75),
        ("8x400Gb NDR IB", 0),
        ("100GbE", 0),
    ],
)
def test_only_efa_has_a_latency_above_that_of_infiniband(network: str, latency_us: float) -> None:
    assert find_network(network).latency_us == latency_us


def test_rings_over_two_sockets_go_through_qpi(nccl: dict[str, Any]) -> None:
    assert LINKS["pcie3"].ring_gbs(8) == nccl["qpi_broadwell"]


def test_links_from_gpu_to_gpu_lose_a_tenth_to_a_sixth_of_their_line() -> None:
    shares = [
        LINKS[name].link_gbs * LINKS[name].links / LINKS[name].line_gbs
        for name in ("nvlink1", "nvlink2")
    ]
    assert shares == pytest.approx([0.90, 0.84])


@pytest.mark.parametrize(
    ("server", "gbs"),
    [
        ("dgx-1", 136.5),
        ("dgx-2", 256),
        ("dgx-a100", 409.6),
        ("dgx-h100", 614.4),
        ("p2.16xlarge", 153.6),
    ],
)
def test_a_host_has_the_memory_bandwidth_of_its_channels(server: str, gbs: float) -> None:
    assert SERVERS[server].host.memory_gbs == pytest.approx(gbs, rel=1e-3)


def test_a_part_of_a_server_has_its_part_of_the_memory() -> None:
    whole, half, one = (SERVERS[n].host for n in ("p2.16xlarge", "p2.8xlarge", "p2.xlarge"))
    assert half.memory_gbs / whole.memory_gbs == half.cpus / whole.cpus
    assert one.memory_gbs / whole.memory_gbs == one.cpus / whole.cpus


def test_every_gpu_has_its_multiprocessors() -> None:
    assert set(SMS) == set(GPUS)
    assert all(gpu.sms > 0 for gpu in GPUS.values())


def test_class_high_of_ec2_gives_what_iperf_measured() -> None:
    high = find_network("EC2 'High' (unspecified)")
    assert TCP_SHARE * high.gbps == pytest.approx(2.0)
    assert high.assumed


def test_servers_are_freed_of_packets_where_those_are_large() -> None:
    big = servers_of(ARIES, 64, FITTED, Software(), every_gpu=True)
    assert big.server_rate == pytest.approx(1e9 / (1 / 10 + 1 / FITTED.tcp_copy_gbs))
    ethernet = replace(ARIES, network=find_network("100GbE", transport="tcp_grpc"))
    small = servers_of(ethernet, 64, FITTED, Software(), every_gpu=True)
    assert small.server_rate == pytest.approx(FITTED.ps_server_gbs * 1e9)


def test_a_butterfly_feels_switches_only_when_it_leaves_its_leaf() -> None:
    gradients = ((100e6, 1.0),)

    def sent(nodes: int) -> float:
        place = Place(find_gpu("P100"), find_link("pcie3"), nodes, nodes, find_network("25GbE"))
        return plan(place, gradients, Scheme.MPI, FITTED).node_bytes / (2.0 * (1.0 - 1.0 / nodes))

    assert sent(2) == pytest.approx(100e6)
    assert sent(USUAL_LEAF) == pytest.approx(100e6)
    assert 100e6 < sent(2 * USUAL_LEAF) < sent(8 * USUAL_LEAF) < 100e6 / 0.575


def test_products_that_fill_the_gpu_lose_nothing() -> None:
    assert padding(TILE, TILE * K20X.sms, K20X.sms) == 1.0
    # One row more is one tile more, and one tile more is a wave more.
    assert padding(TILE + 1, TILE * K20X.sms, K20X.sms) == pytest.approx(2.0 * TILE / (TILE + 1))
    assert padding(TILE, TILE, K20X.sms) == K20X.sms


@given(st.integers(1, 20_000), st.integers(1, 20_000), st.sampled_from(sorted(SMS.values())))
def test_products_never_take_less_than_their_arithmetic(rows: int, columns: int, sms: int) -> None:
    assert padding(rows, columns, sms) >= 1.0


@given(st.integers(1, 5_000), st.sampled_from([2, 4, 8]))
def test_a_batch_cut_into_parts_never_computes_faster_than_its_share(rows: int, parts: int) -> None:
    whole = dense_s(46e6, rows * parts, 20, K20X.sms, 2e12)
    part = dense_s(46e6, rows, 20, K20X.sms, 2e12)
    assert parts * part >= whole * (1.0 - 1e-12)


def test_one_bit_gradients_are_encoded_by_the_gpu_itself_and_nothing_hides_it() -> None:
    place = Place(K20X, find_link("pcie"), 8)
    planned = plan(place, ((184e6, 1.0),), Scheme.ONE_BIT, FITTED)
    assert planned.tail_s == pytest.approx(8 * 184e6 / (K20X.memory_gbs * 1e9))
