"""What is started in the machine: gangs, their parts, and what each has to do."""

from collections.abc import Callable, Hashable, Sequence
from enum import Flag, auto
from itertools import chain
from typing import NamedTuple, Protocol

from simulator.training.recipes import Recipe

# What the caller calls a gang; jitter is drawn from it, so it must print the same in every run.
Key = Hashable
# Calls something for a gang, and sees to it that what that raises concerns the gang alone.
Guarded = Callable[[Key, Callable[[], None]], None]


def unguarded(key: Key, call: Callable[[], None]) -> None:
    call()


class Place(Protocol):
    """Where one rank runs."""

    @property
    def node(self) -> str: ...

    @property
    def devices(self) -> tuple[int, ...]: ...


class Duty(Flag):
    """What ranks do in a training; `Duty(0)` are those that only end with it."""

    # Their devices compute.
    COMPUTE = auto()
    # They hold parameters: their nodes carry the traffic of parameter servers.
    SERVE_PARAMETERS = auto()
    # They start the program on the others, which do nothing before one of these is up.
    DRIVE = auto()


class Work(NamedTuple):
    """Steps of training, at the pace that the place allows.

    What a checkpoint holds is remembered under `resume`, so that the next attempt goes on there; and
    gangs with the same one train together. Steps count for a gang of `gpus` (on CPUs: of so many
    ranks): fewer need more of them.
    A training that is `driven` goes on only while a rank that drives it is there.
    """

    recipe: Recipe
    steps: float
    resume: Hashable = None
    gpus: int = 0
    driven: bool = False


class Mishap(NamedTuple):
    """A rank that will exit by itself, so long after the gang began to work, if it gets there."""

    rank: int
    after_s: float
    code: int
    reason: str
    # Another try would end the same way.
    permanent: bool = False


class Part(NamedTuple):
    """Ranks of a gang that behave alike.

    They work for `run_s` and exit with `code`; without `run_s` they run until they are stopped.
    With `elapsed_s` they are up already and have that much of their work behind them. Ranks with
    `work` take part in a training instead, if the hardware under it is known: `duty` says how. They
    end with it, or, without `run_s`, run on until they are stopped.
    """

    ranks: tuple[int, ...]
    run_s: float | None
    code: int = 0
    elapsed_s: float | None = None
    work: Work | None = None
    duty: Duty = Duty.COMPUTE


class Gang(NamedTuple):
    """Ranks that are started in one go; `places` holds every rank that a part may name.

    Ranks that work `together` begin when the last of them is up, as after a rendezvous; and when
    a fault takes one of them, the others hang until they are stopped, as in a collective, or until
    somebody who `joins` them has come in its place: then all begin again from the last checkpoint.

    `shares` has, for every rank that shares its one device, the thousandths of it that it asked for,
    and 0 for every other; it may be empty where nothing is shared.
    """

    key: Key
    places: Sequence[Place]
    parts: tuple[Part, ...]
    together: bool = True
    mishap: Mishap | None = None
    joins: Key | None = None
    shares: Sequence[int] = ()
    # Those that are left after a fault meet again and go on without the lost ones, unless they are
    # stopped meanwhile.
    elastic: bool = False

    def share(self, rank: int) -> int:
        """The thousandths of its device that a rank has, or 0 for whole devices."""
        return self.shares[rank] if rank < len(self.shares) else 0


def coming_ranks(parts: tuple[Part, ...]) -> tuple[int, ...]:
    """The ranks that are not up yet."""
    coming = [part.ranks for part in parts if part.elapsed_s is None]
    return coming[0] if len(coming) == 1 else tuple(sorted(chain.from_iterable(coming)))


def only_ranks(parts: tuple[Part, ...], ranks: tuple[int, ...]) -> list[Part]:
    """The parts reduced to some of their ranks."""
    chosen = set(ranks)
    reduced = [part._replace(ranks=tuple(r for r in part.ranks if r in chosen)) for part in parts]
    return [part for part in reduced if part.ranks]
