"""Links between the GPUs of one node, and the bandwidth of a ring over them.

Ring rates are those that NCCL's source (src/graph/topo.h) gives to a link, in GB/s one way, or for
PCIe 4 and 5 the bus bandwidth that NVIDIA expects of them (GTC 2024, S62129). In a cube mesh a
small gang has only the links between its members: a pair has one, a quad three or four of the six.
Behind switches every gang has all links.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from simulator.hardware.names import UnknownHardware, words


class Wiring(StrEnum):
    """How the GPUs of a node are connected."""

    # GPUs under PCIe switches and two sockets; a ring crosses the link between the sockets.
    TREE = "tree"
    # The hybrid cube mesh of the DGX-1: quads, and links between them.
    CUBE_MESH = "cube mesh"
    # Every GPU reaches every other at full rate.
    SWITCHED = "switched"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class IntraLink:
    """A kind of link between the GPUs of one node. Rates are in GB/s."""

    name: str
    wiring: Wiring
    # One link of a GPU, as a ring uses it; NVLink counts several, PCIe one.
    link_gbs: float
    links: int
    # All links of a GPU together by the data sheet, one way.
    line_gbs: float
    generation: str
    # The limit of rings over two sockets.
    ring_gbs_max: float = float("inf")
    # Reduction in the switch (NVLink SHARP), as a share of the line rate; 0 where there is none.
    in_switch: float = 0.0

    @property
    def is_nvlink(self) -> bool:
        return self.wiring in (Wiring.CUBE_MESH, Wiring.SWITCHED) and self.line_gbs >= 80

    def ring_gbs(self, gpus: int) -> float:
        """Return the bus bandwidth in GB/s of a ring over `gpus` GPUs of a node."""
        if self.wiring is Wiring.CUBE_MESH:
            return self.link_gbs * _mesh_links(self.links, gpus)
        return min(self.link_gbs * self.links, self.ring_gbs_max)


def _mesh_links(links: int, gpus: int) -> int:
    """Return how many links of a GPU stay inside a gang of this size, with the best placement."""
    if gpus <= 2:
        return 1
    # A quad is fully connected, with the doubled edges of the six-link version.
    return {4: 3, 6: 4}.get(links, links) if gpus <= 4 else links


def _rows(*rows: IntraLink) -> dict[str, IntraLink]:
    return {row.name: row for row in rows}


# PCIe 2: the value of the CUDA C best practices guide for pinned memory. PCIe 3: 12 GB/s through a
# switch, and 6 over QPI between two sockets of Broadwell. NVLink as in NCCL 2.30; but for direct
# links of the second generation between GPUs, the 21 GB/s of NCCL's first values (2.5 to 2.9; then
# 22, and from 2.18 on 20, which is what NVIDIA expects behind its switches: 122 by six).
LINKS = _rows(
    IntraLink("none", Wiring.NONE, 0.0, 0, 0.0, "volta"),
    IntraLink("pcie2", Wiring.TREE, 6.0, 1, 8.0, "volta"),
    IntraLink("pcie3", Wiring.TREE, 12.0, 1, 15.75, "volta", ring_gbs_max=6.0),
    IntraLink("pcie4", Wiring.TREE, 24.0, 1, 31.0, "ampere"),
    IntraLink("pcie5", Wiring.TREE, 48.0, 1, 63.0, "hopper"),
    IntraLink("nvlink1", Wiring.CUBE_MESH, 18.0, 4, 80.0, "volta"),
    IntraLink("nvlink2", Wiring.CUBE_MESH, 21.0, 6, 150.0, "volta"),
    IntraLink("nvlink2-nvswitch", Wiring.SWITCHED, 20.0, 6, 150.0, "volta"),
    IntraLink("nvlink3", Wiring.SWITCHED, 20.0, 12, 300.0, "ampere"),
    IntraLink("nvlink4", Wiring.SWITCHED, 20.6, 18, 450.0, "hopper"),
    IntraLink("nvlink4-h800", Wiring.SWITCHED, 20.6, 8, 200.0, "hopper"),
    IntraLink("nvlink4-nvls", Wiring.SWITCHED, 20.6, 18, 450.0, "hopper", in_switch=0.85),
    IntraLink("nvlink5", Wiring.SWITCHED, 40.1, 18, 900.0, "blackwell"),
    IntraLink("nvlink5-nvls", Wiring.SWITCHED, 40.1, 18, 900.0, "blackwell", in_switch=0.74),
)


def find_link(name: object) -> IntraLink:
    """Return the link of a name such as `nvlink3`, `NVLink 2 NVSwitch` or `PCIe gen4 x16`.

    An empty name is `none`. Raise UnknownHardware if no link of the catalogue matches.
    """
    if name is None or name == "":
        return LINKS["none"]
    text = words(name) if isinstance(name, str) else ""
    if text in ("none", "null"):
        return LINKS["none"]
    nvlink = re.search(r"nv ?link ?v?([1-5])(?:\.0)?", text)
    if nvlink:
        generation = int(nvlink[1])
        if generation == 2 and ("switch" in text or "dgx 2" in text):
            return LINKS["nvlink2-nvswitch"]
        if generation >= 4 and re.search(r"nvls|sharp", text):
            return LINKS[f"nvlink{generation}-nvls"]
        if generation == 4 and "h800" in text:
            return LINKS["nvlink4-h800"]
        return LINKS[f"nvlink{generation}"]
    pcie = re.search(r"pci ?e?(?: ?express)?(?: ?gen)? ?v?(\d+)?", text)
    if pcie and f"pcie{pcie[1] or 3}" in LINKS:
        return LINKS[f"pcie{pcie[1] or 3}"]
    raise UnknownHardware("intra-node link", name, list(LINKS))
