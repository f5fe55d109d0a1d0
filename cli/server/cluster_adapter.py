"""The interface between `muster up` and a cluster adapter.

`--cluster SCHEME[:REST]` names an adapter by its scheme (`cli.server.clusters` has the registry).
The adapter reads the rest in two steps:

    configure(rest, flags) -> ClusterSetup     before anything starts; raises CliError
    setup.open(context)    -> OpenCluster      when log and clock are open

Everything else (engine, API, dashboard, election) is the same on every cluster.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from adapters.clocks.asyncio_clock import AsyncioClock
from api.engine.engine_client import EngineClient
from controlplane.ports import Cluster, Telemetry

if TYPE_CHECKING:
    from adapters.database.database import Database

# A decorator of click that adds an option to a command.
Option = Callable[[Callable[..., Any]], Callable[..., Any]]


class ClusterContext(NamedTuple):
    """What the server offers to the cluster that it opens."""

    # The log, and the engine that leads it, if this process leads.
    engine_client: EngineClient
    clock: AsyncioClock
    # The database of the log; None for a log in memory.
    database: "Database | None"


async def _forever() -> None:
    await asyncio.Event().wait()


async def _nothing() -> None:
    pass


class OpenCluster(NamedTuple):
    """A cluster, ready for the engine."""

    cluster: Cluster
    # The readings of devices and links, if the cluster itself has them.
    telemetry: Telemetry | None = None
    # Runs next to the engine until it is cancelled.
    run: Callable[[], Coroutine[Any, Any, None]] = _forever
    # Called when the server stops, while the engine still leads.
    stop: Callable[[], Awaitable[None]] = _nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSetup:
    """A cluster as the command line describes it, not opened yet."""

    # One line for people, printed at the start.
    description: str
    # Opens the cluster, and closes it when the server ends; raises CliError.
    open: Callable[[ClusterContext], AbstractAsyncContextManager[OpenCluster]]
    # What kind of cluster it is, in one word that clients of the API show.
    kind: str = ""
    # Seconds of the cluster's time in a second of real time; only a model has more than one.
    speed: float = 1.0


@dataclass(frozen=True, slots=True)
class NoFlags:
    """The flags of an adapter that has no options of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAdapter:
    """A cluster adapter: one entry of the registry."""

    scheme: str
    # How it is written after `--cluster`, in help texts and messages, such as `sim[:FILE]`.
    form: str
    # Reads what follows the scheme (empty if nothing does) and the flags; raises CliError.
    configure: Callable[[str, Any], ClusterSetup]
    # The options of `muster up` that belong to this adapter, and the dataclass of their values.
    # Only adapters of this repository have any; all others read everything from the rest.
    options: tuple[Option, ...] = ()
    flags: type = NoFlags
