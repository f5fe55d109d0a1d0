"""A state as one value, what of it is no job, and how a snapshot holds it."""

import msgspec

from controlplane.attempt import Rank
from controlplane.job import Job
from controlplane.model import JobSpec, NodeInfo, Placement, Row, Value
from controlplane.sharing import Policy, Queue

DEFAULT_POLICY = Policy()


class Node(Value, frozen=True, kw_only=True):
    """A machine as the log knows it. Its ordinal tells when it was first seen."""

    info: NodeInfo
    ordinal: int
    ready: bool = True
    cordoned: bool = False
    removed: bool = False
    message: str = ""
    # Why it was cordoned, if not by a person.
    cordon_reason: str = ""
    # When it was lost, lately: who is lost too often is put in quarantine.
    losses: tuple[float, ...] = ()

    @property
    def name(self) -> str:
        return self.info.name

    @property
    def devices(self) -> int:
        """The devices it has, as bits; one that vanished under a rank is nobody's to give."""
        mask = (1 << self.info.gpus) - 1
        for device in self.info.unusable:
            mask &= ~(1 << device)
        return mask

    @property
    def takes_work(self) -> bool:
        return self.ready and not self.cordoned and not self.removed


class Cycle(Value, frozen=True, kw_only=True):
    """A scheduling cycle in which gangs have started, where the policy limits how many may."""

    ends_at: float
    # Gangs that were placed, or for which others began to make room.
    admitted: int
    # Whether gangs were left over for the next cycle, which then begins at `ends_at`.
    limited: bool = False


class Receipt(Value, frozen=True):
    """The first answer to a command: the position of its last event, and what it was about."""

    position: int
    stream: str


class Image(Value, frozen=True, kw_only=True):
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
    policy: Policy = DEFAULT_POLICY
    leader: str = ""
    # Queue, GPUs times seconds that its removed jobs have had, faded by then, and when that was.
    usage: tuple[tuple[str, float, float], ...] = ()
    rules: int = 0
    # How long removed jobs ran, by group, where some line looks at that: see `run_lengths`.
    lengths: tuple[tuple[tuple[str, ...], tuple[tuple[float, float, float], ...]], ...] = ()
    cycle: Cycle | None = None


class Sheet(msgspec.Struct, array_like=True, gc=False, forbid_unknown_fields=True):
    """Some jobs as columns; see `sheets.py`. The columns keep their order for ever."""

    # What jobs are like in all of which there is no column, and which of these each one is like;
    # the same of their specs.
    patterns: list[Job] = []
    pattern_of: list[int] = []
    specs: list[JobSpec] = []
    spec_of: list[int] = []
    ids: list[str] = []
    names: list[str] = []
    durations_s: list[float] = []
    submitted_at: list[float] = []
    submitted_as: list[int] = []
    queued_as: list[int] = []
    queued_at: list[float] = []
    active_at: list[float | None] = []
    running_at: list[float | None] = []
    finished_at: list[float | None] = []
    # Of the jobs that have an attempt.
    placements: list[Placement] = []
    ranks: list[tuple[Rank, ...]] = []
    placed_at: list[float] = []
    came_up_at: list[float | None] = []
    ended_at: list[float | None] = []


class Written(Row, frozen=True):
    """A snapshot's body. The first format was an image alone, which begins in another way."""

    format: int
    # Without its jobs, which are on sheets.
    image: Image
    sheets: list[Sheet]
