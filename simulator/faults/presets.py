"""Published fault conditions of real clusters: rates, causes and durations of node failures.

Figures are those of the papers: Llama 3 (arXiv:2407.21783, table 5), Meta's research clusters
(arXiv:2410.21680), Acme (NSDI'24, table 3), Philly (ATC'19, tables 6 and 7); repair times and the
unevenness between nodes are of the StepFun trace where a paper has none.
"""

from dataclasses import dataclass

DAY = 86_400.0
HOUR = 3_600.0
MINUTE = 60.0


@dataclass(frozen=True, slots=True)
class Cause:
    """A cause of faults: its count among all faults, and whether the node must be repaired."""

    name: str
    count: float
    # A software fault needs only a reboot.
    hardware: bool = True
    # It affects all nodes of a rack at once.
    rack: bool = False


@dataclass(frozen=True, slots=True)
class Reason:
    """A reason why attempts fail on their own: its count, and the time until the failure."""

    name: str
    category: str
    count: float
    median_s: float
    mean_s: float
    exit_code: int = 1
    out_of_memory: bool = False
    # A bug of the user, which recurs at every attempt.
    repeats: bool = True


@dataclass(frozen=True, slots=True)
class Preset:
    name: str
    # Faults of a node in a day, of all causes together.
    node_rate_day: float
    causes: tuple[Cause, ...]
    # Down times are lognormal, which has the long tail of measured ones.
    repair_median_s: float = 0.9 * HOUR
    repair_mean_s: float = 5.9 * HOUR
    reboot_s: float = 10.0 * MINUTE
    # A few nodes fail much more often than the others.
    lemon_share: float = 0.017
    lemon_factor: float = 4.5
    # Or all differ: the shape of a gamma distribution of their rates.
    frailty: float | None = None
    # Nodes that are temporarily slower than the others, and by how much.
    slow_rate_day: float = 0.0
    slow_factor: float = 0.9
    slow_s: float = 12 * HOUR
    # From a fault until the gang has recovered its progress: detection, restart, recomputation.
    restart_s: float = 15.0 * MINUTE
    # The share of jobs that fail on their own, and why.
    failing_jobs: float = 0.0
    reasons: tuple[Reason, ...] = ()


_LLAMA3 = (
    Cause("faulty GPU", 148),
    Cause("GPU HBM3 memory", 72),
    Cause("software bug", 54, hardware=False),
    Cause("network switch or cable", 35, rack=True),
    Cause("host maintenance", 32),
    Cause("GPU SRAM memory", 19),
    Cause("GPU system processor", 17),
    Cause("NIC", 7),
    Cause("NCCL watchdog timeout", 7, hardware=False),
    Cause("silent data corruption", 6),
    Cause("GPU thermal interface or sensor", 6),
    Cause("SSD", 3),
    Cause("power supply", 3),
    Cause("server chassis", 2),
    Cause("IO expansion board", 2),
    Cause("dependency", 2, hardware=False),
    Cause("CPU", 2),
    Cause("system memory", 2),
)
_RSC = (
    Cause("GPU", 282),
    Cause("DIMM", 205),
    Cause("PCIe", 154),
    Cause("extensive utility diagnostics", 103),
    Cause("BIOS", 77),
    Cause("NIC", 77),
    Cause("PSU", 51),
    Cause("optics", 26, rack=True),
)
_ACME_NODES = (
    Cause("NVLink", 54),
    Cause("CUDA", 21),
    Cause("node", 16),
    Cause("ECC", 12),
    Cause("network", 12, rack=True),
    Cause("S3 storage", 10, hardware=False),
    Cause("NCCL timeout", 6, hardware=False),
    Cause("NCCL remote", 3, hardware=False),
)
_STEPFUN = (
    Cause("GPU", 158),
    Cause("unknown error", 144, hardware=False),
    Cause("stress test", 97),
    Cause("parameter plane cable", 40, rack=True),
    Cause("fan", 33),
    Cause("NIC", 30),
    Cause("power supply", 26),
    Cause("other", 56, hardware=False),
)


# The reasons that are a lack of memory; "invalid memory access" is none.
_OUT_OF_MEMORY = frozenset(
    ("OutOfMemoryError", "CPU out of memory", "GPU out of memory", "out of memory")
)


def _reasons(category: str, *rows: tuple[str, float, float, float]) -> tuple[Reason, ...]:
    """Rows of name, count, and median and mean minutes to the failure."""
    return tuple(
        Reason(
            name,
            category,
            count,
            median * MINUTE,
            max(mean, median) * MINUTE,
            137 if name in _OUT_OF_MEMORY else 1,
            out_of_memory=name in _OUT_OF_MEMORY,
            repeats=category in ("Script", "user"),
        )
        for name, count, median, mean in rows
    )


ACME_REASONS = (
    *_reasons(
        "Infrastructure",
        ("NVLinkError", 54, 155.3, 868.1),
        ("CUDAError", 21, 586.0, 923.2),
        ("NodeFailure", 16, 535.8, 1288.8),
        ("ECCError", 12, 1192.3, 1303.4),
        ("NetworkError", 12, 310.1, 549.6),
        ("ConnectionError", 147, 0.5, 51.9),
        ("S3StorageError", 10, 202.2, 2317.8),
        ("NCCLTimeoutError", 6, 48.1, 159.7),
        ("NCCLRemoteError", 3, 22.6, 50.5),
    ),
    *_reasons(
        "Framework",
        ("DataloaderKilled", 6, 961.4, 1580.6),
        ("AttributeError", 67, 1.2, 67.8),
        ("OutOfMemoryError", 14, 14.5, 323.8),
        ("RuntimeError", 65, 3.9, 66.4),
        ("AssertionError", 105, 3.0, 41.7),
        ("ValueError", 33, 3.7, 9.9),
        ("ZeroDivisionError", 5, 14.5, 15.6),
        ("ModelLoadingError", 104, 2.6, 2.6),
        ("DatasetLoadingError", 5, 1.6, 1.6),
    ),
    # Medians of these rows are not published; scripts fail early, so half of the mean is taken.
    *_reasons(
        "Script",
        ("FileNotFoundError", 568, 7.1, 14.2),
        ("OSError", 266, 4.8, 9.6),
        ("TypeError", 620, 0.45, 0.9),
        ("NameError", 18, 1.6, 3.2),
        ("PermissionError", 7, 2.2, 4.3),
        ("ImportError", 111, 0.55, 1.1),
        ("KeyError", 260, 1.5, 3.0),
        ("SyntaxError", 10, 0.35, 0.7),
        ("ArgumentError", 3, 0.35, 0.7),
        ("CalledProcessError", 4, 0.1, 0.2),
        ("IndexError", 23, 0.8, 1.6),
    ),
)
PHILLY_REASONS = _reasons(
    "user",
    ("CPU out of memory", 12076, 13.45, 16.0),
    ("incorrect inputs", 9690, 1.87, 170.0),
    ("semantic error", 2943, 2.72, 150.0),
    ("core dump", 2912, 0.85, 60.0),
    ("invalid memory access", 2602, 1.03, 120.0),
    ("checkpoint error", 1995, 181.67, 1500.0),
    ("CUDA failure", 1484, 1.32, 15.0),
    ("syntax error", 1132, 0.58, 2.5),
    ("traceback from crash", 777, 1.02, 150.0),
    ("MPI error", 634, 1.62, 500.0),
    ("GPU out of memory", 487, 18.53, 300.0),
    ("MPI runtime failure", 478, 1389.48, 4500.0),
    ("no signature", 1684, 1.87, 20.0),
)
# Of failed exits of RSC-1's jobs: the person's own, memory, the node.
_RSC_REASONS = _reasons("user", ("user exit", 240, 5.0, 60.0), ("out of memory", 1, 15.0, 60.0))

# 419 interruptions in 54 days on 2,048 nodes were counted; what fell into a restart was not.
_LLAMA3_RATE = 419.0 / (54.0 - 419.0 * 15.0 * MINUTE / DAY) / 2048.0

PRESETS = {
    preset.name: preset
    for preset in (
        Preset("llama3", _LLAMA3_RATE, _LLAMA3, slow_rate_day=2e-4),
        Preset(
            "rsc1",
            6.5e-3,
            _RSC,
            failing_jobs=0.24,
            reasons=_RSC_REASONS,
            slow_rate_day=2e-4,
        ),
        Preset("rsc2", 2.34e-3, _RSC, failing_jobs=0.24, reasons=_RSC_REASONS, slow_rate_day=2e-4),
        Preset(
            "acme",
            3.8e-3,
            _ACME_NODES,
            failing_jobs=0.413,
            reasons=ACME_REASONS,
            restart_s=68 * MINUTE,
        ),
        Preset("philly", 1.0e-3, _RSC, failing_jobs=0.172, reasons=PHILLY_REASONS),
        Preset(
            "stepfun",
            584 / (400 * 348),
            _STEPFUN,
            repair_median_s=0.85 * DAY,
            repair_mean_s=5.5 * DAY,
            frailty=0.91,
            lemon_share=0.0,
        ),
    )
}
