"""A state as one value, and what a state holds besides jobs."""

from controlplane.lifecycle.job import Job
from controlplane.lifecycle.owner import Owner
from controlplane.model.cluster import NodeInfo
from controlplane.model.phases import NodeState
from controlplane.model.policy import Policy, Queue
from controlplane.model.reasons import CordonReason, Loss
from controlplane.model.values import Value

DEFAULT_POLICY = Policy()


class Node(Value, frozen=True, kw_only=True):
    """A machine as the log knows it. Ordinals count nodes in the order of their first report."""

    info: NodeInfo
    ordinal: int
    ready: bool = True
    cordoned: bool = False
    removed: bool = False
    # Why it does not answer, if so.
    loss: Loss | None = None
    # Why it was cordoned, and how often it had been lost if it is in quarantine for that.
    cordon_reason: CordonReason | None = None
    cordon_losses: int = 0
    # When it was lost lately: a node that is lost too often is put in quarantine.
    losses: tuple[float, ...] = ()

    @property
    def name(self) -> str:
        return self.info.name

    @property
    def state(self) -> NodeState:
        if self.removed:
            return NodeState.REMOVED
        return NodeState.READY if self.ready else NodeState.LOST

    @property
    def devices(self) -> int:
        """Its devices as bits. A device that vanished while a rank held it is not among them."""
        mask = (1 << self.info.gpus) - 1
        for device in self.info.unusable:
            mask &= ~(1 << device)
        return mask

    @property
    def takes_work(self) -> bool:
        return self.ready and not self.cordoned and not self.removed


class Cycle(Value, frozen=True, kw_only=True):
    """A scheduling cycle in which gangs started, under a policy that limits starts per cycle."""

    ends_at: float
    # Gangs that were placed, or for which victims were preempted.
    admitted: int
    # Whether gangs were left over for the next cycle, which then begins at `ends_at`.
    limited: bool = False


class Receipt(Value, frozen=True):
    """The answer to a command: the position of its last event, and the stream of its first."""

    position: int
    stream: str


class StateImage(Value, frozen=True, kw_only=True):
    """A state as one value: what a snapshot holds and the state hash covers.

    `hash` is the chain's at this position, so that what follows a snapshot can be checked.
    """

    position: int
    at: float
    hash: bytes
    surveyed: bool
    jobs: list[Job]
    nodes: list[Node]
    queues: list[Queue]
    receipts: list[tuple[str, int, str]]
    # The number of the latest step that recorded something.
    step: int = 0
    # How many commands of that step have recorded something.
    step_commands: int = 0
    policy: Policy = DEFAULT_POLICY
    leader: str = ""
    # Queue, GPUs times seconds that its removed jobs have had, faded by then, and when that was.
    usage: tuple[tuple[str, float, float], ...] = ()
    # How long removed jobs ran, by group, where some line looks at that: see `run_lengths`.
    lengths: tuple[tuple[tuple[str, ...], tuple[tuple[float, float, float], ...]], ...] = ()
    cycle: Cycle | None = None
    owners: tuple[Owner, ...] = ()
