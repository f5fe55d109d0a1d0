"""The parts of a scenario, each a choice that can be written down and compared."""

import msgspec


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """A value that is written with everything in it, so that it is written alike everywhere.

    (What equals a default and what is the default are not the same after a trip between processes.)
    """


class ClusterChoice(Choice, frozen=True):
    """One of: a pool of GPUs; nodes as in `128x8` or `128x8:H100`; the document of a cluster file."""

    gpus: int | None = None
    nodes: str = ""
    file: str = ""
    # As JSON.
    document: str | None = None

    @property
    def name(self) -> str:
        return f"{self.gpus} GPUs" if self.gpus is not None else self.nodes or self.file


class WorkloadChoice(Choice, frozen=True):
    """A trace in a file, known by its content too; or a synthetic workload like it."""

    path: str
    form: str = ""
    sha256: str = ""
    # Only jobs submitted from here on and so long, in seconds of the trace.
    begin_s: float = 0.0
    length_s: float | None = None
    # How much more (or less) work comes in the same time.
    load: float = 1.0
    synthetic_days: float | None = None


class Faults(Choice, frozen=True):
    """How often nodes fail, and how long they are away; no faults without a mean time."""

    name: str = "none"
    node_mtbf_s: float | None = None
    node_repair_s: float = 600.0


class Checkpoints(Choice, frozen=True):
    """A checkpoint after so much work, and how long the work stands still for it; 0 means none."""

    every_s: float = 0.0
    write_s: float = 0.0


class Autoscale(Choice, frozen=True):
    """Nodes beyond the least are rented when jobs wait, and given back when they stand idle."""

    nodes_min: int
    boot_s: float = 300.0
    idle_s: float = 600.0
