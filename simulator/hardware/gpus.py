"""GPUs from the K80 to the B200: peak rates, memory, links, power.

Dense peaks are from the vendors' data sheets, in TFLOP/s. Boards with two chips (K80, M60) count
per chip, because a framework sees each chip as a device. `matmul` is the best measured share of the
16-bit peak that large matrix products reach.
"""

import re
from dataclasses import dataclass

from simulator.hardware.names import UnknownHardware, words


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU model of the catalogue."""

    name: str
    # The generation in NCCL's tables; volta includes all earlier ones.
    generation: str
    fp32_tflops: float
    # Of tensor cores where there are any; 0 where half precision is not faster than single.
    fp16_tflops: float
    memory_gb: float
    memory_gbs: float
    # The intra-node link of its usual server; see `links.LINKS`.
    link: str
    power_w: float
    tf32_tflops: float = 0.0
    fp8_tflops: float = 0.0
    idle_w: float = 40.0
    matmul: float = 0.8

    @property
    def sms(self) -> int:
        """The number of streaming multiprocessors, each of which computes a part of a product."""
        return SMS[self.name]

    @property
    def shares_slot(self) -> bool:
        """Whether two of these GPUs sit on one board, behind one PCIe slot."""
        return self.name in ("K80", "M60")

    def peak_tflops(self, precision: str) -> float:
        """Return the dense peak for a precision; the single-precision peak if it has no fast path."""
        rate = {
            "fp16": self.fp16_tflops,
            "bf16": self.fp16_tflops,
            "tf32": self.tf32_tflops,
            "fp8": self.fp8_tflops,
        }.get(precision, 0.0)
        return rate or self.fp32_tflops


def _rows(*rows: Gpu) -> dict[str, Gpu]:
    return {row.name: row for row in rows}


GPUS = _rows(
    Gpu("K20X", "volta", 3.94, 0, 6, 250, "pcie2", 235, idle_w=25),
    Gpu("K40", "volta", 4.29, 0, 12, 288, "pcie3", 235, idle_w=25),
    Gpu("K80", "volta", 4.11, 0, 12, 240.6, "pcie3", 150, idle_w=30),
    Gpu("M40", "volta", 6.84, 0, 24, 288, "pcie3", 250, idle_w=20),
    Gpu("M60", "volta", 4.83, 0, 8, 160.4, "pcie3", 150, idle_w=20),
    Gpu("P40", "volta", 11.76, 0, 24, 346, "pcie3", 250, idle_w=20),
    Gpu("P100-PCIe", "volta", 9.53, 19.05, 16, 732, "pcie3", 250, idle_w=30),
    Gpu("P100", "volta", 10.6, 21.2, 16, 732, "nvlink1", 300, idle_w=35),
    Gpu("V100-PCIe", "volta", 14.1, 112, 16, 897, "pcie3", 250, idle_w=35),
    Gpu("V100", "volta", 15.7, 125, 16, 897, "nvlink2", 300, idle_w=40),
    Gpu("V100-32", "volta", 15.7, 125, 32, 897, "nvlink2", 300, idle_w=40),
    Gpu("T4", "volta", 8.14, 65, 16, 320, "pcie3", 70, idle_w=10),
    Gpu("RTX2080Ti", "volta", 13.4, 53.8, 11, 616, "pcie3", 250, idle_w=15),
    Gpu("A10", "ampere", 31.2, 125, 24, 600, "pcie4", 150, tf32_tflops=62.5, idle_w=20),
    Gpu("A30", "ampere", 10.3, 165, 24, 933, "pcie4", 165, tf32_tflops=82, idle_w=25),
    Gpu("A40", "ampere", 37.4, 149.7, 48, 696, "pcie4", 300, tf32_tflops=74.8, idle_w=25),
    Gpu("A100-PCIe", "ampere", 19.5, 312, 40, 1555, "pcie4", 250, tf32_tflops=156, matmul=0.87),
    Gpu("A100", "ampere", 19.5, 312, 40, 1555, "nvlink3", 400, tf32_tflops=156, matmul=0.87),
    Gpu("A100-80", "ampere", 19.5, 312, 80, 2039, "nvlink3", 400, tf32_tflops=156, matmul=0.87),
    Gpu("L4", "hopper", 30.3, 121, 24, 300, "pcie4", 72, tf32_tflops=60, fp8_tflops=242, idle_w=12),
    Gpu("L40S", "hopper", 91.6, 362, 48, 864, "pcie4", 350, tf32_tflops=183, fp8_tflops=733),
    Gpu("H100-PCIe", "hopper", 51, 756, 80, 2039, "pcie5", 350, tf32_tflops=378, fp8_tflops=1513),
    Gpu("H800", "hopper", 67, 989, 80, 3350, "nvlink4-h800", 700, 494.5, 1979, 70),
    Gpu("H100", "hopper", 67, 989, 80, 3350, "nvlink4", 700, 494.5, 1979, 70),
    Gpu("H200", "hopper", 67, 989, 141, 4800, "nvlink4", 700, 494.5, 1979, 75),
    Gpu("B200", "blackwell", 80, 2250, 180, 8000, "nvlink5", 1000, 1125, 4500, 140, matmul=0.78),
    Gpu("GB200", "blackwell", 80, 2500, 186, 8000, "nvlink5", 1200, 1250, 5000, 150, matmul=0.78),
    # Not a GPU, but published measurements use it as one: a many-core CPU that trains.
    Gpu("XeonPhi7250", "cpu", 6.1, 0, 16, 490, "none", 215, idle_w=80),
)

# Streaming multiprocessors (cores, for the many-core CPU), by the data sheets.
SMS = {
    "K20X": 14,
    "K40": 15,
    "K80": 13,
    "M40": 24,
    "M60": 16,
    "P40": 30,
    "P100-PCIe": 56,
    "P100": 56,
    "V100-PCIe": 80,
    "V100": 80,
    "V100-32": 80,
    "T4": 40,
    "RTX2080Ti": 68,
    "A10": 72,
    "A30": 56,
    "A40": 84,
    "A100-PCIe": 108,
    "A100": 108,
    "A100-80": 108,
    "L4": 58,
    "L40S": 142,
    "H100-PCIe": 114,
    "H800": 132,
    "H100": 132,
    "H200": 132,
    "B200": 148,
    "GB200": 148,
    "XeonPhi7250": 68,
}

# The models that a name may contain, longest first; form and memory are matched afterwards.
_MODEL = re.compile(
    r"\b(gb200|b200|h200|h800|h100|l40s|l4|a100|a800|a40|a30|a10|rtx ?2080 ?ti|2080 ?ti|t4|v100s?"
    r"|p100|p40|m60|m40|k80|k40m?|k20x?)"
)
_PHI = re.compile(r"xeon ?phi|\b(knl|7250)\b")
_SAME = {"v100s": "v100", "k20": "k20x", "k40m": "k40", "2080ti": "rtx2080ti"}


def find_gpu(name: object) -> Gpu:
    """Return the GPU of a name such as `A100-80` or `NVIDIA H100 80GB HBM3`.

    Raise UnknownHardware if no GPU of the catalogue matches.
    """
    text = words(name) if isinstance(name, str) else ""
    if _PHI.search(text):
        return GPUS["XeonPhi7250"]
    match = _MODEL.search(text)
    if match is None:
        raise UnknownHardware("GPU", name, list(GPUS))
    model = match[1].replace(" ", "")
    model = _SAME.get(model, model)
    if model == "a800":
        model = "a100"
    rest = text[match.end() :]
    by_name = {gpu.name.lower().replace("-pcie", " pcie"): gpu for gpu in GPUS.values()}
    if "pcie" in text and f"{model} pcie" in by_name:
        return by_name[f"{model} pcie"]
    if model == "v100" and re.search(r"\b32 ?gb?\b|\b32\b", rest):
        return GPUS["V100-32"]
    if model == "a100" and re.search(r"\b80 ?gb?\b|\b80\b", rest):
        return GPUS["A100-80"]
    return by_name[model]
