"""The catalogue: names in many spellings, and rates that follow from the links."""

import pytest

from simulator.hardware.gpus import GPUS, find_gpu
from simulator.hardware.hosts import SERVERS, find_server
from simulator.hardware.links import LINKS, find_link
from simulator.hardware.names import UnknownHardware
from simulator.hardware.networks import Transport, find_network


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("K80", "K80"),
        ("Tesla K80", "K80"),
        ("P100", "P100"),
        ("P100-PCIe", "P100-PCIe"),
        ("Tesla P100-PCIE-16GB", "P100-PCIe"),
        ("V100-16", "V100"),
        ("V100-SXM2-32GB", "V100-32"),
        ("NVIDIA A100-SXM4-80GB", "A100-80"),
        ("a100 80GB", "A100-80"),
        ("A100-40", "A100"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("H100-80", "H100"),
        ("H200", "H200"),
        ("NVIDIA B200", "B200"),
        ("Xeon Phi 7250", "XeonPhi7250"),
        ("RTX 2080 Ti", "RTX2080Ti"),
    ],
)
def test_every_spelling_of_a_gpu_is_recognised(name: str, expected: str) -> None:
    assert find_gpu(name).name == expected


@pytest.mark.parametrize("name", ["", None, 7, "GTX", "Z9000", "200Gb", "DGX"])
def test_an_unknown_gpu_is_named_with_what_is_near(name: object) -> None:
    with pytest.raises(UnknownHardware, match="no GPU"):
        find_gpu(name)


def test_every_gpu_has_its_own_name_and_a_known_link() -> None:
    for gpu in GPUS.values():
        assert find_gpu(gpu.name) is gpu
        assert find_link(gpu.link).name == gpu.link


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nvlink2", "nvlink2"),
        ("NVLink 2 NVSwitch", "nvlink2-nvswitch"),
        ("nvlink2_nvswitch", "nvlink2-nvswitch"),
        ("nvlink4_nvls", "nvlink4-nvls"),
        ("nvlink3", "nvlink3"),
        ("PCIe gen4 x16", "pcie4"),
        ("pcie", "pcie3"),
        (None, "none"),
    ],
)
def test_every_spelling_of_a_link_is_recognised(name: str | None, expected: str) -> None:
    assert find_link(name).name == expected


def test_a_cube_mesh_gives_a_small_gang_only_the_links_its_members_share() -> None:
    mesh = LINKS["nvlink2"]
    assert [mesh.ring_gbs(n) / mesh.link_gbs for n in (2, 4, 8)] == [1, 4, 6]
    switched = LINKS["nvlink2-nvswitch"]
    assert switched.ring_gbs(2) == switched.ring_gbs(16)


@pytest.mark.parametrize(
    ("name", "gbps", "transport"),
    [
        ("25GbE", 25, Transport.TCP),
        ("25GbE RoCE", 25, Transport.RDMA),
        ("8x200Gb HDR IB", 1600, Transport.RDMA),
        ("IB FDR 56Gb", 54.5, Transport.RDMA),
        ("8x400Gb EFAv4", 3200, Transport.RDMA),
        ("100 Gb/s", 100, Transport.TCP),
        ("Omni-Path 100Gb", 100, Transport.RDMA),
    ],
)
def test_a_network_is_read_from_its_name(name: str, gbps: float, transport: Transport) -> None:
    network = find_network(name)
    assert (network.gbps, network.transport) == (gbps, transport)


def test_explicit_fields_override_the_name_and_a_guess_is_marked() -> None:
    assert find_network("10GbE (iperf 9.3 Gb/s)", gbps=9.3).gbps == 9.3
    assert find_network("RoCE/IB unspecified").assumed
    assert not find_network("10GbE").assumed
    with pytest.raises(UnknownHardware, match="network"):
        find_network("carrier pigeon")


def test_servers_name_hardware_that_exists() -> None:
    for server in SERVERS.values():
        assert find_server(server.name) is server
        find_gpu(server.gpu)
        find_link(server.link)
        assert find_network(server.network).gbps > 0
    with pytest.raises(UnknownHardware, match="server"):
        find_server("p9")
