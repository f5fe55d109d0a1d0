"""The hardware of nodes in a cluster file: parts of the catalogue by name, with usual defaults."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from simulator.config.parsing import BadCluster, Fields
from simulator.hardware.gpus import Gpu, find_gpu
from simulator.hardware.hosts import Host, Server, find_server, usual_host
from simulator.hardware.links import IntraLink, find_link
from simulator.hardware.names import UnknownHardware
from simulator.hardware.networks import Network, find_network

# The usual network of each GPU generation, for a file that names none.
USUAL_NETWORKS = {
    "volta": "25GbE",
    "ampere": "8x200Gb HDR IB",
    "hopper": "8x400Gb NDR IB",
    "blackwell": "8x400Gb NDR IB",
}
CPUS_MAX = 4096

T = TypeVar("T")


@dataclass(frozen=True)
class Hardware:
    """The parts of a node that the physics models."""

    # None for a node without GPUs; its CPUs may train, or serve parameters.
    gpu: Gpu | None
    link: IntraLink
    network: Network
    host: Host
    # The price of an hour of the node; 0 if the file has none.
    price_h: float = 0.0


def host_of(
    fields: Fields, server: Server | None, gpu_type: str, gpus: int
) -> tuple[Host, dict[str, int]]:
    """Return a node's host, and the resources that ranks may request: only those that the file states.

    A host without a stated number of cores has no limit on ranks.
    """
    host = server.host if server else _usual(gpu_type, gpus)
    stated = {name for name in ("cpus", "memory_gb") if server is not None or fields.has(name)}
    host = replace(
        host,
        cpus=fields.integer("cpus", host.cpus, least=1, most=CPUS_MAX),
        memory_gb=fields.number("memory_gb", host.memory_gb, least=1.0),
        storage_gbs=fields.number("storage_gbs", host.storage_gbs, least=1e-6),
        storage_write_gbs=fields.number("storage_write_gbs", host.storage_write_gbs, least=1e-6),
    )
    # Memory is sold in powers of two, whatever its unit is called.
    has = {
        "cpu": ("cpus", host.cpus * 1_000),
        "memory": ("memory_gb", int(host.memory_gb * 2**30)),
    }
    return host, {name: amount for name, (field, amount) in has.items() if field in stated}


def hardware_of(
    fields: Fields, server: Server | None, gpus: int, gpu_type: str, host: Host
) -> Hardware | None:
    """Return the hardware that a node's fields name; None for a GPU that is not in the catalogue.

    Such a node still runs jobs of fixed duration.
    """
    stated = {name: fields.text(name) for name in ("link", "net", "transport") if fields.has(name)}
    price = fields.number("price_h", server.price_h if server else 0.0)
    gpu = None
    if gpus or gpu_type:
        try:
            gpu = find_gpu(gpu_type)
        except UnknownHardware as unknown:
            if stated:
                raise BadCluster(fields.at("gpu_type"), str(unknown)) from None
            return None
    elif "link" in stated:
        raise BadCluster(fields.at("link"), "joins the GPUs of a node, and this one has none")
    link = stated.get("link") or (server.link if server else gpu.link if gpu else "none")
    generation = gpu.generation if gpu else ""
    usual = server.network if server else USUAL_NETWORKS.get(generation, "25GbE")
    return Hardware(
        gpu,
        _find_or_refuse(fields.at("link"), lambda: find_link(link if gpus > 1 else "none")),
        _find_or_refuse(
            fields.at("net"),
            lambda: find_network(stated.get("net") or usual, transport=stated.get("transport")),
        ),
        host,
        price,
    )


def server_of(fields: Fields) -> Server | None:
    if not fields.has("server"):
        return None
    name = fields.text("server")
    return _find_or_refuse(fields.at("server"), lambda: find_server(name))


def _find_or_refuse(path: str, find: Callable[[], T]) -> T:
    try:
        return find()
    except UnknownHardware as unknown:
        raise BadCluster(path, str(unknown)) from None


def _usual(gpu_type: str, gpus: int) -> Host:
    try:
        return usual_host(find_gpu(gpu_type).name, gpus)
    except UnknownHardware:
        return Host()
