"""What is started in the machine: gangs, the parts of a gang, and the work of each part."""

from collections.abc import Callable, Hashable, Sequence
from enum import Flag, auto
from itertools import chain
from typing import NamedTuple, Protocol

from simulator.training.recipes import Recipe

# The caller's name of a gang. Jitter is drawn from its text, which must be the same in every run.
Key = Hashable
# Runs a call for a gang, and confines what it raises to that gang.
Guarded = Callable[[Key, Callable[[], None]], None]


def unguarded(key: Key, call: Callable[[], None]) -> None:
    call()


class RankPlace(Protocol):
    """The node and the devices of one rank."""

    @property
    def node(self) -> str: ...

    @property
    def devices(self) -> tuple[int, ...]: ...


class Duty(Flag):
    """What a rank does in a training; a rank with `Duty(0)` only ends with it."""

    # Its devices compute.
    COMPUTE = auto()
    # It holds parameters: its node carries the traffic of a parameter server.
    SERVE_PARAMETERS = auto()
    # It starts the program on the other ranks, which are idle until such a rank is up.
    DRIVE = auto()


class Work(NamedTuple):
    """Steps of training, at the pace that the placement allows.

    The progress in checkpoints is kept under `resume`, where the next attempt continues; gangs with
    the same `resume` train together. `steps` is the number for a gang of `gpus` GPUs (on CPUs, of
    `gpus` ranks); a smaller gang needs more. A `driven` training runs only while a rank drives it.
    """

    recipe: Recipe
    steps: float
    resume: Hashable = None
    gpus: int = 0
    driven: bool = False


class PlannedFailure(NamedTuple):
    """A rank that will exit on its own, `after_s` after the gang began to work."""

    rank: int
    after_s: float
    code: int
    reason: str
    # A retry would end the same way.
    permanent: bool = False
    out_of_memory: bool = False


class Part(NamedTuple):
    """Ranks of a gang that behave alike.

    They work for `run_s` and exit with `code`; without `run_s` they run until they are stopped.
    With `elapsed_s` they are up already and have worked that long. Ranks with `work` take part in a
    training with their `duty` instead, if the hardware is known. They end with the training or,
    without `run_s`, run until they are stopped.
    """

    ranks: tuple[int, ...]
    run_s: float | None
    code: int = 0
    elapsed_s: float | None = None
    work: Work | None = None
    duty: Duty = Duty.COMPUTE


class Gang(NamedTuple):
    """Ranks that are started at once; `places` has the place of every rank that a part names.

    Ranks that work `together` begin when the last of them is up, as after a rendezvous. When a fault
    takes one of them, the others hang in their collective until they are stopped, or until a gang
    that `joins` them replaces it; then all of them continue from the last checkpoint.

    `shares` has, for every rank that shares its one device, the thousandths of it that it requested,
    and 0 for every other rank; it may be empty if no rank shares.
    """

    key: Key
    places: Sequence[RankPlace]
    parts: tuple[Part, ...]
    together: bool = True
    failure: PlannedFailure | None = None
    joins: Key | None = None
    shares: Sequence[int] = ()
    # After a fault the ranks that are left form a new rendezvous and continue without the lost ones,
    # unless they are stopped before.
    elastic: bool = False

    def share(self, rank: int) -> int:
        """Return the thousandths of its device that a rank has, or 0 for whole devices."""
        return self.shares[rank] if rank < len(self.shares) else 0


def coming_ranks(parts: tuple[Part, ...]) -> tuple[int, ...]:
    """Return the ranks that are not up yet."""
    coming = [part.ranks for part in parts if part.elapsed_s is None]
    return coming[0] if len(coming) == 1 else tuple(sorted(chain.from_iterable(coming)))


def only_ranks(parts: tuple[Part, ...], ranks: tuple[int, ...]) -> list[Part]:
    """Return the parts with only these ranks."""
    chosen = set(ranks)
    reduced = [part._replace(ranks=tuple(r for r in part.ranks if r in chosen)) for part in parts]
    return [part for part in reduced if part.ranks]
