"""Nodes as the cluster reports them, and slots of ranks on them."""

from controlplane.model.values import ArrayValue, Value


class Slot(ArrayValue, frozen=True):
    """Where one rank runs: a node, and the indices of the rank's devices there."""

    node: str
    devices: tuple[int, ...] = ()


# One slot for each rank, in the order of the ranks.
Placement = tuple[Slot, ...]


class NodeInfo(Value, frozen=True):
    """A machine as the cluster reports it."""

    name: str
    gpus: int
    gpu_type: str = ""
    gpu_memory_mib: int = 0
    rack: str = ""
    labels: dict[str, str] = {}
    # The topology domains of the node, outermost first; empty: `rack` is the only one.
    path: tuple[str, ...] = ()
    taints: tuple[str, ...] = ()
    # Devices that are never allocated: unhealthy ones, and those that pods of others use.
    unusable: tuple[int, ...] = ()
    # Allocatable resources besides GPUs, and how much of them pods of others use. Amounts are as in
    # `model/resources.py`. A resource that is not listed is unlimited.
    resources: dict[str, int] = {}
    used_by_others: dict[str, int] = {}

    @property
    def domains(self) -> tuple[str, ...]:
        return self.path or ((self.rack,) if self.rack else ())

    @property
    def flavor(self) -> str:
        return self.labels.get("flavor", self.gpu_type)

    @property
    def offers(self) -> dict[str, int]:
        """Return what ranks may use in total, besides GPUs; negative if others use too much."""
        others = self.used_by_others
        return {name: most - others.get(name, 0) for name, most in self.resources.items()}
