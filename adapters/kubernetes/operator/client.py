"""The control plane as the operator uses it, and the operator's options."""

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar

from controlplane.model.commands import Request
from controlplane.state.image import Receipt
from controlplane.state.world import World

T = TypeVar("T")


class ControlPlaneClient(Protocol):
    """Commands and queries, as for every client of the control plane.

    Both raise Rejected, with the code `unavailable` if no engine leads at the moment.
    """

    @property
    def leads(self) -> bool:
        """Whether the engine of this process leads."""

    async def submit(self, command: Request) -> Receipt: ...

    async def ask(self, question: Callable[[World], T]) -> T: ...


class OperatorOptions(NamedTuple):
    """The settings of the operator."""

    # Other schedulers whose queued jobs are left alone; see `parse.QUEUE_MARKS`.
    leave: frozenset[str] = frozenset()
    # The namespaces that are watched; empty means all.
    namespaces: tuple[str, ...] = ()
    # The number of resources that are reconciled at the same time.
    workers: int = 8
    # Whether Muster binds pods itself, and so refuses constraints that it does not support.
    binds_itself: bool = True
