"""The components of a control plane, built and joined: log, clock, cluster, engine, API."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING

from aiohttp import web

from adapters.clocks.asyncio_clock import AsyncioClock
from adapters.logs.memory_log import MemoryLog
from adapters.prometheus import PrometheusTelemetry
from api.access import Access, Token, token_hash
from api.app import make_app
from api.cluster.about import AboutCluster
from api.engine.engine_client import EngineClient
from api.history.annotations import ANNOTATIONS
from api.server import Runner
from api.studies.forecasts import FORECASTS
from cli.errors import CliError
from cli.log.sources import Kind, Source
from cli.policies import load_policies
from cli.server.annotations import annotations_of
from cli.server.cluster_adapter import ClusterContext, ClusterSetup, OpenCluster
from cli.server.elections import Election, FileElection
from cli.server.file_lock import sole_writer
from cli.server.kinds import load_kinds
from cli.server.pod_names import PodNames
from cli.server.supervisor import Notes, Supervisor
from cli.settings import DEFAULT_HOST, reason
from controlplane.engine import EngineOptions
from controlplane.model.errors import LogUnavailable
from controlplane.ports import EventLog, SearchableLog
from studies.forecast.accuracy import ForecastAccuracy

if TYPE_CHECKING:
    from adapters.database.database import Database

Work = asyncio.Task[None]

# The actor of requests with the server's own token.
OPERATOR = "operator"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The configuration of a control plane."""

    source: Source
    cluster: ClusterSetup
    host: str = DEFAULT_HOST
    # Whether it is one of several control planes on this log, of which one leads.
    standby: bool = False
    # The Lease by which they elect the leader, as NAMESPACE/NAME; empty: the log's own election.
    lease: str = ""
    # How to reach the cluster that has the Lease.
    kubeconfig: str = ""
    context: str = ""
    # The URL at which other control planes reach this one; empty means where it listens.
    advertise: str = ""
    # The URL of a Prometheus that has the GPUs' counters, and the token that it requires.
    prometheus: str = ""
    prometheus_token: str = field(default="", repr=False)
    # Tokens that the API accepts.
    tokens: tuple[str, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    log: EventLog
    clock: AsyncioClock
    cluster: OpenCluster
    engine_client: EngineClient
    supervisor: Supervisor
    app: web.Application
    # The number of events that the log already held.
    events: int


@asynccontextmanager
async def assembled(wanted: Wanted) -> AsyncIterator[Parts]:
    """Build all components, ready to run; close the log at the end."""
    load_kinds()
    load_policies()
    source = wanted.source
    alone = source.kind is Kind.SQLITE and not wanted.standby
    guard = sole_writer(source.path) if alone else nullcontext()
    async with AsyncExitStack() as stack:
        stack.enter_context(guard)
        database, log = await _opened(source)
        stack.push_async_callback(log.close)
        election = await stack.enter_async_context(election_for(wanted)) if wanted.standby else None
        engine_client = EngineClient(log)
        measured = await stack.enter_async_context(_measured(wanted, engine_client))
        yield await _join(wanted, engine_client, database, election, measured, stack)


async def _opened(source: Source) -> "tuple[Database | None, SearchableLog]":
    """Open the log for writing, and its database; the latter is None for a log in memory."""
    if source.kind is Kind.MEMORY:
        return None, MemoryLog()
    # Imported here so that a log in memory does not wait for the import of SQLAlchemy.
    from adapters.database.event_log import DatabaseLog
    from adapters.database.opening import open_database

    database = await open_database(source.where)
    return database, DatabaseLog(database)


@asynccontextmanager
async def election_for(wanted: Wanted) -> AsyncIterator[Election]:
    """Yield the election among the control planes that share this log."""
    source = wanted.source
    if wanted.lease:
        from adapters.kubernetes.api.kubeconfig import Access as ClusterAccess
        from cli.server.leases import lease_election

        access = ClusterAccess(wanted.kubeconfig, wanted.context)
        async with lease_election(wanted.lease, access) as election:
            yield election
    elif source.kind is Kind.POSTGRES:
        from adapters.database.election import AdvisoryLockElection

        yield AdvisoryLockElection(source.place, clock=AsyncioClock())
    else:
        yield FileElection(source.path)


@asynccontextmanager
async def _measured(
    wanted: Wanted, engine_client: EngineClient
) -> AsyncIterator[PrometheusTelemetry | None]:
    if not wanted.prometheus:
        yield None
        return
    asked = PrometheusTelemetry(
        wanted.prometheus,
        pods=PodNames(engine_client),
        clock=AsyncioClock(),
        token=wanted.prometheus_token,
    )
    try:
        yield asked
    finally:
        await asked.close()


async def _join(
    wanted: Wanted,
    engine_client: EngineClient,
    database: "Database | None",
    election: Election | None,
    measured: PrometheusTelemetry | None,
    stack: AsyncExitStack,
) -> Parts:
    log = engine_client.log
    notes = None if database is None else await _notes(database, stack)
    events = (await log.head()).position
    last = await _time_at(log, events)
    # A fast run leaves the log ahead of the wall clock, and time in the log never runs backwards.
    clock = AsyncioClock(at_least=last or 0.0, speed=wanted.cluster.speed)
    opening = wanted.cluster.open(ClusterContext(engine_client, clock, database))
    joined = await stack.enter_async_context(opening)
    cluster = joined.cluster
    tokens = [Token(OPERATOR, token_hash(secret)) for secret in wanted.tokens]
    access = Access(tokens, bound_to=wanted.host)
    source = measured or joined.telemetry
    app = make_app(
        engine_client,
        cluster,
        access,
        source=source,
        history=measured,
        now=clock.now,
        about=_about(wanted.cluster),
    )
    app[ANNOTATIONS] = annotations_of(wanted.source)
    if notes is not None:
        app[FORECASTS].ledger = ForecastAccuracy(notes.book("forecasts"))
        await _look_at(notes, wanted)
    options = EngineOptions(release=version("muster"))
    return Parts(
        log=log,
        clock=clock,
        cluster=joined,
        engine_client=engine_client,
        supervisor=Supervisor(
            engine_client, cluster, clock, options, election=election, notes=notes
        ),
        app=app,
        events=events,
    )


def _about(setup: ClusterSetup) -> AboutCluster:
    return AboutCluster(kind=setup.kind, description=setup.description, speed=setup.speed)


async def _notes(database: "Database", stack: AsyncExitStack) -> Notes:
    from adapters.database.notes import DatabaseNotes

    return await stack.enter_async_context(DatabaseNotes(database, clock=AsyncioClock()))


async def _look_at(notes: Notes, wanted: Wanted) -> None:
    """Load the notes, unless this is a standby, so that a failure is reported at the start."""
    if wanted.standby:
        return
    try:
        await notes.load()
    except LogUnavailable as error:
        raise CliError(str(error)) from None


async def _time_at(log: EventLog, position: int) -> float | None:
    rows = await log.read(position - 1, 1) if position else ()
    return rows[0].at if rows else None


@asynccontextmanager
async def running(
    parts: Parts, host: str, port: int, advertise: str = ""
) -> AsyncIterator[tuple[str, Work]]:
    """Run all components; yield the server's URL, and a task that ends only by raising.

    `advertise` is the URL at which other control planes reach this one, if it differs. At the end
    the server accepts no more requests, those in progress are finished, and then the engine is
    stopped.
    """
    runner = Runner(parts.app)
    await runner.setup()
    # Listen first: a control plane that cannot listen must not take the lead from one that can.
    url = await listen(runner, host, port)
    parts.engine_client.address = advertise or url
    supervised = asyncio.create_task(parts.supervisor.run())
    beside = asyncio.create_task(parts.cluster.run())
    failure = asyncio.create_task(until_first(supervised, beside))
    try:
        yield url, failure
    finally:
        await runner.cleanup()
        await parts.cluster.stop()
        work = (failure, supervised, beside)
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)


async def listen(runner: Runner, host: str, port: int) -> str:
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError as error:
        await runner.cleanup()
        raise CliError(
            f"cannot listen on {host}:{port}: {reason(error)}",
            hint="Choose another with --port; 0 lets the system choose.",
        ) from None
    address, bound = runner.addresses[0][:2]
    # A server that listens on every address is reachable here on loopback.
    address = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)
    return f"http://[{address}]:{bound}" if ":" in address else f"http://{address}:{bound}"


async def until_first(*work: Work, within_s: float | None = None) -> None:
    """Wait until one of the tasks is done, and raise its exception; or for `within_s` seconds."""
    done, _ = await asyncio.wait(work, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()
