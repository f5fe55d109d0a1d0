"""The parts of a scenario, each a value that can be stored and compared."""

import msgspec


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """A value that is always encoded with all of its fields, and so alike everywhere.

    With defaults left out, a field that equals its default and a field that was not set could
    differ after a trip between processes.
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
    """A trace in a file, identified by path and content, or a synthetic workload fitted to it."""

    path: str
    form: str = ""
    sha256: str = ""
    # The window of submissions, in seconds from the first submission; None has no end.
    begin_s: float = 0.0
    length_s: float | None = None
    # The factor on the amount of work that arrives in the same time.
    load: float = 1.0
    synthetic_days: float | None = None


class Faults(Choice, frozen=True):
    """The mean time between failures of a node and its mean repair time; None means no faults."""

    name: str = "none"
    node_mtbf_s: float | None = None
    node_repair_s: float = 600.0


class Checkpoints(Choice, frozen=True):
    """Seconds of work between checkpoints, and seconds that writing one takes; 0 means none."""

    every_s: float = 0.0
    write_s: float = 0.0


class Autoscale(Choice, frozen=True):
    """Rent nodes beyond `nodes_min` when jobs wait, and return them after `idle_s` idle seconds."""

    nodes_min: int
    boot_s: float = 300.0
    idle_s: float = 600.0
