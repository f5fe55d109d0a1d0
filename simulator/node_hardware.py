"""The hardware of nodes in a cluster file: named parts of the catalogue, with usual ones for the rest."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from simulator.fields import BadCluster, Fields
from simulator.hardware.gpus import Gpu, find_gpu
from simulator.hardware.hosts import Host, Server, find_server, usual_host
from simulator.hardware.links import IntraLink, find_link
from simulator.hardware.names import UnknownHardware
from simulator.hardware.networks import Network, find_network

# What nodes of a generation usually have for a network, where a file says nothing.
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
    """What a node is made of, as far as the physics knows it."""

    # None for a node without GPUs; its CPUs may train, or serve parameters.
    gpu: Gpu | None
    link: IntraLink
    network: Network
    host: Host
    # For an hour of the node; 0 where nobody said.
    price_h: float = 0.0


def host_of(
    fields: Fields, server: Server | None, gpu_type: str, gpus: int
) -> tuple[Host, dict[str, int]]:
    """A node's host, and what ranks may request of it: what is said of it, and nothing assumed.

    A host of which nobody says how many cores it has holds as many ranks as one likes.
    """
    host = server.host if server else _usual(gpu_type, gpus)
    said = {name for name in ("cpus", "memory_gb") if server is not None or fields.has(name)}
    found = replace(
        host,
        cpus=fields.integer("cpus", host.cpus, least=1, most=CPUS_MAX),
        memory_gb=fields.number("memory_gb", host.memory_gb, least=1.0),
        storage_gbs=fields.number("storage_gbs", host.storage_gbs, least=1e-6),
        storage_write_gbs=fields.number("storage_write_gbs", host.storage_write_gbs, least=1e-6),
    )
    # Memory is sold in powers of two, whatever its unit is called.
    has = {
        "cpu": ("cpus", found.cpus * 1_000),
        "memory": ("memory_gb", int(found.memory_gb * 2**30)),
    }
    return found, {name: amount for name, (field, amount) in has.items() if field in said}


def hardware_of(
    fields: Fields, server: Server | None, gpus: int, gpu_type: str, host: Host
) -> Hardware | None:
    """The hardware that a node's fields name; None for a GPU that the catalogue does not know.

    Such a node still takes jobs with given durations; only its physics is unknown.
    """
    said = {name: fields.text(name) for name in ("link", "net", "transport") if fields.has(name)}
    price = fields.number("price_h", server.price_h if server else 0.0)
    gpu = None
    if gpus or gpu_type:
        try:
            gpu = find_gpu(gpu_type)
        except UnknownHardware as unknown:
            if said:
                raise BadCluster(fields.at("gpu_type"), str(unknown)) from None
            return None
    elif "link" in said:
        raise BadCluster(fields.at("link"), "joins the GPUs of a node, and this one has none")
    link = said.get("link") or (server.link if server else gpu.link if gpu else "none")
    generation = gpu.generation if gpu else ""
    usual = server.network if server else USUAL_NETWORKS.get(generation, "25GbE")
    return Hardware(
        gpu,
        _found(fields.at("link"), lambda: find_link(link if gpus > 1 else "none")),
        _found(
            fields.at("net"),
            lambda: find_network(said.get("net") or usual, transport=said.get("transport")),
        ),
        host,
        price,
    )


def server_of(fields: Fields) -> Server | None:
    if not fields.has("server"):
        return None
    name = fields.text("server")
    return _found(fields.at("server"), lambda: find_server(name))


def _found(path: str, find: Callable[[], T]) -> T:
    try:
        return find()
    except UnknownHardware as unknown:
        raise BadCluster(path, str(unknown)) from None


def _usual(gpu_type: str, gpus: int) -> Host:
    try:
        return usual_host(find_gpu(gpu_type).name, gpus)
    except UnknownHardware:
        return Host()
