"""The control plane as the operator has it, and what may be asked of the operator."""

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar

from controlplane.commands import Request
from controlplane.image import Receipt
from controlplane.world import World

T = TypeVar("T")


class Desk(Protocol):
    """Commands and questions, as every client of the control plane has them.

    Both raise Rejected; with the code `unavailable` if nobody leads at the moment.
    """

    @property
    def leads(self) -> bool:
        """Whether the engine that leads is this control plane's own."""

    async def submit(self, command: Request) -> Receipt: ...

    async def ask(self, question: Callable[[World], T]) -> T: ...


class Options(NamedTuple):
    # Other schedulers whose queues are left alone; see `reading.QUEUE_MARKS`.
    leave: frozenset[str] = frozenset()
    # Where resources are looked for; everywhere, unless said.
    namespaces: tuple[str, ...] = ()
    # So many resources are looked at at the same time.
    workers: int = 8
    # Whether Muster binds pods itself, and so refuses what it cannot keep to.
    binds_itself: bool = True
