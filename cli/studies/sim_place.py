"""Options that describe the hardware of a question to the physics."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import click

from cli.errors import WRONG_USAGE, CliError
from simulator.hardware.gpus import GPUS, Gpu, find_gpu
from simulator.hardware.hosts import usual_host
from simulator.hardware.links import find_link
from simulator.hardware.names import UnknownHardware, words
from simulator.hardware.networks import Network, find_network
from simulator.training.placement import Place

F = TypeVar("F", bound=Callable[..., Any])


def place_options(command: F) -> F:
    """Add the options for GPUs, nodes, links and network to a command."""
    for option in reversed(
        (
            click.option("--gpu", default="A100", show_default=True, help="GPU model."),
            click.option("--gpus", type=click.IntRange(1, 1_000_000), default=8, show_default=True),
            click.option("--nodes", type=click.IntRange(1, 100_000), default=1, show_default=True),
            click.option(
                "--link", help="Link between the GPUs of a node. Default: usual for the GPU."
            ),
            click.option("--net", help="Network between nodes, such as 25GbE or '8x200Gb HDR IB'."),
            click.option("--transport", type=click.Choice(["tcp", "tcp_grpc", "rdma"])),
        )
    ):
        command = option(command)
    return command


def place_of(
    gpu: str, gpus: int, nodes: int, link: str | None, net: str | None, transport: str | None
) -> Place:
    if nodes > gpus:
        raise wrong(f"{gpus} GPUs cannot fill {nodes} nodes")
    if nodes == 1 and (net or transport):
        option = "--net" if net else "--transport"
        raise wrong(f"{option} connects nodes, but there is only one: give --nodes 2 or more")
    if nodes == gpus and link:
        raise wrong("--link is between the GPUs of a node, and each node has one")
    try:
        gpu_model = _exactly(gpu)
        network = find_network(net, transport=transport) if net else Network()
        if nodes > 1 and not net:
            network = find_network("100Gb", transport=transport or "rdma")
            click.echo("no --net given: 100 Gb/s RDMA is taken", err=True)
        inside = find_link(link or gpu_model.link)
    except UnknownHardware as unknown:
        raise wrong(str(unknown)) from None
    host = usual_host(gpu_model.name, -(-gpus // nodes), inside.name)
    return Place(gpu_model, inside, gpus, nodes, network, host)


# Words in the name of a GPU other than its model: maker, form factor, type of memory.
_GPU_WORDS = re.compile(
    r"nvidia|tesla|geforce|quadro|intel|xeon|phi|knl|rtx|ti|sxm\d?|pcie|pci|e|nvl|hbm\d?e?|gddr\d|gb|\d+ ?gb?|\d+"
)


def _exactly(name: str) -> Gpu:
    """Return the GPU of this name; every word of the name must be known."""
    gpu = find_gpu(name)
    model = words(gpu.name.split("-")[0])
    for word in words(name).split():
        size = re.fullmatch(r"(\d+)gb?", word)
        if size and float(size[1]) != gpu.memory_gb:
            raise UnknownHardware("GPU", name, list(GPUS), word=word)
        same = word.startswith(model) or model.startswith(word) or word in _SAME
        if not same and _GPU_WORDS.fullmatch(word) is None:
            raise UnknownHardware("GPU", name, list(GPUS), word=word)
    return gpu


# Other names of the same chips.
_SAME = frozenset({"a800", "v100s", "k20", "k40m", "2080ti", "2080"})


def wrong(message: str) -> CliError:
    return CliError(message, exit_code=WRONG_USAGE)


def scaled_place(place: Place, ranks: int, per_node: int) -> Place:
    """Return the same hardware with another number of GPUs."""
    nodes = -(-ranks // per_node)
    return replace(place, ranks=ranks, nodes=nodes)


def gpu_counts(most: int) -> list[int]:
    """Return the powers of two up to `most`, and `most`."""
    counts = [2**i for i in range(most.bit_length()) if 2**i < most]
    return [*counts[-7:], most]


def place_view(place: Place) -> dict[str, Any]:
    return {
        "gpu": place.gpu.name,
        "gpus": place.ranks,
        "nodes": place.nodes,
        "link": place.link.name,
        "net": place.network.name,
        "net_gbps": place.network.gbps,
        "transport": place.network.transport,
    }


def time_text(seconds: float) -> str:
    for size, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= size:
            return f"{seconds / size:.4g} {unit}"
    return f"{seconds * 1e6:.3g} us"
