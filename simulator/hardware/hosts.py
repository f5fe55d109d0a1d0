"""Hosts, and servers as they are sold or rented: cores, memory, storage, GPUs, NICs."""

import re
from dataclasses import dataclass

from simulator.hardware.gpus import Gpu
from simulator.hardware.names import UnknownHardware, words


@dataclass(frozen=True, slots=True)
class Host:
    """The host that feeds the GPUs. Storage rates are reads of the data set, in GB/s."""

    # Hardware threads.
    cpus: int = 64
    memory_gb: float = 512.0
    storage_gbs: float = 2.0
    # Writes of checkpoints from this node.
    storage_write_gbs: float = 1.0
    # All channels of all sockets: channels x transfers per second x 8 bytes, by the data sheets.
    memory_gbs: float = 153.6


# The peak of one hardware thread in single precision, in TFLOP/s: a core of a Xeon E5 v4 has two
# AVX2 units, which make 32 operations in each of its 2.2e9 cycles per second, and two threads.
THREAD_TFLOPS = 0.5 * 32 * 2.2e9 * 1e-12
# The generation of devices that are parts of a host.
HOST = "host"


def as_device(host: Host, threads: float) -> Gpu:
    """Return `threads` hardware threads of a host as a device, with their part of its memory."""
    part = min(1.0, threads / host.cpus)
    return Gpu(
        name=f"{threads:g} CPUs",
        generation=HOST,
        fp32_tflops=threads * THREAD_TFLOPS,
        fp16_tflops=0.0,
        memory_gb=host.memory_gb * part,
        memory_gbs=host.memory_gbs * part,
        link="none",
        power_w=0.0,
        idle_w=0.0,
    )


@dataclass(frozen=True, slots=True)
class Server:
    """A node as a product: its GPUs, their links, its network and its host."""

    name: str
    gpu: str
    gpus: int
    link: str
    network: str
    host: Host
    # On-demand price of an hour of the whole node; 0 where it is not rented.
    price_h: float = 0.0


def _memory_gbs(channels: int, mts: int, sockets: float = 2.0) -> float:
    """Return the memory bandwidth in GB/s of `sockets` sockets.

    Each has `channels` channels of `mts` million transfers per second.
    """
    return sockets * channels * mts * 8.0e-3


# By the data sheets of the CPUs: Xeon E5 v4, and the same in the DGX-1; Skylake and Cascade Lake;
# EPYC of two generations; Sapphire and Emerald Rapids. A part of a server has its part.
_BROADWELL, _DGX1 = _memory_gbs(4, 2400), _memory_gbs(4, 2133)
_SKYLAKE, _CASCADE = _memory_gbs(6, 2666), _memory_gbs(6, 2933)
_EPYC, _SAPPHIRE, _EMERALD = _memory_gbs(8, 3200), _memory_gbs(8, 4800), _memory_gbs(8, 5600)


def _rows(*rows: Server) -> dict[str, Server]:
    return {row.name: row for row in rows}


SERVERS = _rows(
    Server("p2.xlarge", "K80", 1, "none", "EC2 High", Host(4, 61, 0.2, 0.1, _BROADWELL / 16), 0.90),
    Server(
        "p2.8xlarge", "K80", 8, "pcie3", "10GbE", Host(32, 488, 0.5, 0.25, _BROADWELL / 2), 7.20
    ),
    Server("p2.16xlarge", "K80", 16, "pcie3", "20Gb", Host(64, 732, 1.0, 0.5, _BROADWELL), 14.40),
    Server(
        "p3.16xlarge", "V100", 8, "nvlink2", "25GbE", Host(64, 488, 1.5, 0.7, _BROADWELL), 24.48
    ),
    Server(
        "p3dn.24xlarge", "V100-32", 8, "nvlink2", "100GbE", Host(96, 768, 4.0, 2.0, _SKYLAKE), 31.21
    ),
    Server(
        "p4d.24xlarge",
        "A100",
        8,
        "nvlink3",
        "4x100Gb EFA",
        Host(96, 1152, 8.0, 4.0, _CASCADE),
        32.77,
    ),
    Server(
        "p5.48xlarge", "H100", 8, "nvlink4", "32x100Gb EFA", Host(192, 2048, 16, 8, _EPYC), 98.32
    ),
    Server(
        "p6-b200", "B200", 8, "nvlink5", "8x400Gb EFAv4", Host(192, 2048, 20, 10, _EMERALD), 113.93
    ),
    Server("dgx-1", "P100", 8, "nvlink1", "4x100Gb EDR IB", Host(80, 512, 2.0, 1.0, _DGX1)),
    Server("dgx-1v", "V100", 8, "nvlink2", "4x100Gb EDR IB", Host(80, 512, 2.0, 1.0, _DGX1)),
    Server(
        "dgx-2",
        "V100-32",
        16,
        "nvlink2-nvswitch",
        "8x100Gb EDR IB",
        Host(96, 1536, 12, 6, _SKYLAKE),
    ),
    Server("dgx-a100", "A100-80", 8, "nvlink3", "8x200Gb HDR IB", Host(256, 2048, 25, 12, _EPYC)),
    Server("dgx-h100", "H100", 8, "nvlink4", "8x400Gb NDR IB", Host(224, 2048, 50, 25, _SAPPHIRE)),
    Server("dgx-b200", "B200", 8, "nvlink5", "8x400Gb NDR IB", Host(224, 4096, 50, 25, _EMERALD)),
    Server("pcie-p100", "P100-PCIe", 4, "pcie3", "25GbE", Host(40, 256, 1.0, 0.5, _BROADWELL)),
)


def find_server(name: str) -> Server:
    """Return the server of this name; raise UnknownHardware if the catalogue does not have it."""
    wanted = re.sub(r"[ _]", "-", words(name))
    for server in SERVERS.values():
        if re.sub(r"[ _]", "-", words(server.name)) == wanted:
            return server
    raise UnknownHardware("server", name, list(SERVERS))


# The usual servers of a GPU, for clusters that name only the GPU: smaller ones first.
_USUAL: dict[str, tuple[str, ...]] = {
    "K80": ("p2.xlarge", "p2.8xlarge", "p2.16xlarge"),
    "V100": ("p3.16xlarge",),
    "V100-32": ("dgx-1v", "dgx-2"),
    "P100": ("pcie-p100", "dgx-1"),
    "A100": ("dgx-a100",),
    "A100-80": ("dgx-a100",),
    "H100": ("dgx-h100",),
    "H200": ("dgx-h100",),
    "B200": ("dgx-b200",),
}


def usual_host(gpu: str, gpus: int, link: str | None = None) -> Host:
    """Return the host of the usual server with `gpus` such GPUs, or the default host.

    If `link` is given, it is the first usual server that has this link and at least `gpus` GPUs: a
    gang may use four of the eight GPUs of a DGX-1.
    """
    for name in _USUAL.get(gpu, ()):
        server = SERVERS[name]
        if server.gpus == gpus if link is None else server.link == link and server.gpus >= gpus:
            return server.host
    return Host()
