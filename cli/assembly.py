"""The parts of a control plane, built and joined: log, clock, cluster, engine, API."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, NamedTuple

from aiohttp import web

from adapters.asyncio_clock import AsyncioClock
from adapters.memory_log import MemoryLog
from adapters.notes import Notes
from adapters.notes.file import FileNotes
from adapters.pacer import Pacer
from adapters.prometheus import PrometheusTelemetry
from adapters.simulated_cluster.recovered import RecoveredCluster
from adapters.sqlite_log import SqliteLog
from api.access import Access, Token, token_hash
from api.app import make_app
from api.control import Control
from api.forecasts import FORECASTS
from api.server import Runner
from cli.complaints import Complaint
from cli.elections import Election, FileElection
from cli.guard import sole_writer
from cli.heartbeat import Heartbeat
from cli.kinds import load_kinds
from cli.kubernetes import KubernetesFlags, kubernetes_cluster
from cli.pod_names import PodNames
from cli.settings import DEFAULT_HOST, read_settings, reason
from cli.sources import Kind, Source, open_postgres
from cli.supervisor import Supervisor
from controlplane.engine import EngineOptions
from controlplane.errors import LogUnavailable
from controlplane.ports import Cluster, EventLog, SearchableLog, Telemetry
from controlplane.queries import gpus_wanted
from simulator.topology import ClusterModel
from studies.accuracy import Ledger

Work = asyncio.Task[None]

# Who asks with the server's own token.
OPERATOR = "operator"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is to be built."""

    source: Source
    # The simulated cluster; None for a real one.
    model: ClusterModel | None
    kubernetes: KubernetesFlags | None = None
    host: str = DEFAULT_HOST
    speed: float = 1.0
    # Whether it is one of several on this log, of which one leads.
    standby: bool = False
    # The Lease by which they elect the leader, as NAMESPACE/NAME; empty leaves it to the log.
    lease: str = ""
    # Where the others reach this one; empty means where it listens.
    advertise: str = ""
    # Where a Prometheus answers that knows the GPUs' counters, and the token it asks for.
    prometheus: str = ""
    prometheus_token: str = field(default="", repr=False)
    # Secrets that let those in who know them.
    tokens: tuple[str, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    log: EventLog
    clock: AsyncioClock
    # What lets the cluster's own time pass, for ever; beside a real one, the operator runs.
    passing: Callable[[], Coroutine[Any, Any, None]]
    control: Control
    supervisor: Supervisor
    app: web.Application
    # How many events the log already held.
    events: int
    # Records the time of a simulated cluster; None for a real one.
    heartbeat: Heartbeat | None = None


@asynccontextmanager
async def assembled(wanted: Wanted) -> AsyncIterator[Parts]:
    """All parts, ready to run; at the end the log is closed."""
    load_kinds()
    source = wanted.source
    alone = source.kind is Kind.SQLITE and not wanted.standby
    guard = sole_writer(source.path) if alone else nullcontext()
    async with AsyncExitStack() as stack:
        stack.enter_context(guard)
        log = await open_to_write(source)
        stack.push_async_callback(log.close)
        election = await stack.enter_async_context(election_for(wanted)) if wanted.standby else None
        control = Control(log)
        measured = await stack.enter_async_context(_measured(wanted, control))
        yield await _join(wanted, control, election, measured, stack)


async def open_to_write(source: Source) -> SearchableLog:
    match source.kind:
        case Kind.MEMORY:
            return MemoryLog()
        case Kind.POSTGRES:
            return await open_postgres(source.place)
        case Kind.SQLITE | Kind.EXPORT:
            return await SqliteLog.open(source.path)


class Joined(NamedTuple):
    cluster: Cluster
    telemetry: Telemetry | None
    passing: Callable[[], Coroutine[Any, Any, None]]


@asynccontextmanager
async def election_for(wanted: Wanted) -> AsyncIterator[Election]:
    """How those who share this log agree on who leads it."""
    source = wanted.source
    if wanted.lease:
        from adapters.kubernetes.access import Access as ClusterAccess
        from cli.leases import lease_election

        flags = wanted.kubernetes or KubernetesFlags(kubeconfig=read_settings().kubeconfig)
        access = ClusterAccess(flags.kubeconfig, flags.context)
        async with lease_election(wanted.lease, access) as election:
            yield election
    elif source.kind is Kind.POSTGRES:
        from adapters.postgres_election import PostgresElection

        yield PostgresElection(source.place, clock=AsyncioClock())
    else:
        yield FileElection(source.path)


@asynccontextmanager
async def _measured(wanted: Wanted, control: Control) -> AsyncIterator[PrometheusTelemetry | None]:
    if not wanted.prometheus:
        yield None
        return
    asked = PrometheusTelemetry(
        wanted.prometheus,
        pods=PodNames(control),
        clock=AsyncioClock(),
        token=wanted.prometheus_token,
    )
    try:
        yield asked
    finally:
        await asked.close()


async def _join(
    wanted: Wanted,
    control: Control,
    election: Election | None,
    measured: PrometheusTelemetry | None,
    stack: AsyncExitStack,
) -> Parts:
    log = control.log
    notes = await _notes(wanted, stack)
    events = (await log.head()).position
    last = await _time_at(log, events)
    # A fast run leaves the log ahead of the wall clock, and time in it never runs backwards.
    clock = AsyncioClock(at_least=last or 0.0, speed=wanted.speed)
    if wanted.model is not None:
        joined = _simulated(wanted.model, clock, control)
    else:
        flags = wanted.kubernetes or KubernetesFlags()
        driven = kubernetes_cluster(flags, control, wanted.source, clock.now)
        real = await stack.enter_async_context(driven)
        joined = Joined(real.cluster, None, real.run)
    cluster = joined.cluster
    tokens = [Token(OPERATOR, token_hash(secret)) for secret in wanted.tokens]
    access = Access(tokens, bound_to=wanted.host)
    source = measured or joined.telemetry
    app = make_app(control, cluster, access, source=source, history=measured, now=clock.now)
    if notes is not None:
        app[FORECASTS].ledger = Ledger(notes.book("forecasts"))
        await _look_at(notes, wanted)
    options = EngineOptions(release=version("muster"))
    return Parts(
        log=log,
        clock=clock,
        passing=joined.passing,
        control=control,
        supervisor=Supervisor(control, cluster, clock, options, election=election, notes=notes),
        app=app,
        events=events,
        heartbeat=None if wanted.model is None else Heartbeat(control, clock, wanted.speed),
    )


def _simulated(model: ClusterModel, clock: AsyncioClock, control: Control) -> Joined:
    pacer = Pacer(None, clock.twin())
    cluster = RecoveredCluster(
        control.log, model, pacer, now=clock.now, waiting_gpus=lambda: _waiting_gpus(control)
    )
    return Joined(cluster, cluster, pacer.run)


async def _notes(wanted: Wanted, stack: AsyncExitStack) -> Notes | None:
    """What is kept beside the log; a log in memory has nothing that would outlive it."""
    match wanted.source.kind:
        case Kind.SQLITE:
            return FileNotes(wanted.source.path)
        case Kind.POSTGRES:
            # Only here, since few need it.
            from adapters.notes.postgres import PostgresNotes

            notes = PostgresNotes(wanted.source.place, clock=AsyncioClock())
            return await stack.enter_async_context(notes)
        case _:
            return None


async def _look_at(notes: Notes, wanted: Wanted) -> None:
    """Whoever leads alone learns at the start if they cannot be kept."""
    if wanted.standby:
        return
    try:
        await notes.load()
    except LogUnavailable as error:
        raise Complaint(str(error)) from None


def _waiting_gpus(control: Control) -> int:
    """GPUs that queued gangs ask for; autoscaled pools grow by it."""
    if control.engine is None:
        return 0
    return gpus_wanted(control.engine.world)


async def _time_at(log: EventLog, position: int) -> float | None:
    rows = await log.read(position - 1, 1) if position else ()
    return rows[0][1] if rows else None


@asynccontextmanager
async def running(
    parts: Parts, host: str, port: int, advertise: str = ""
) -> AsyncIterator[tuple[str, Work]]:
    """Lets all parts run; gives the server's URL, and work that ends only by raising.

    `advertise` is where others reach this one, if that is another URL.
    At the end the server takes no more requests, those that are under way are finished, and only
    then the engine is stopped.
    """
    runner = Runner(parts.app)
    await runner.setup()
    # The address first: who cannot listen must not take the lead from one who can.
    url = await _listen(runner, host, port)
    parts.control.address = advertise or url
    supervised = asyncio.create_task(parts.supervisor.run())
    paced = asyncio.create_task(parts.passing())
    beating = [] if parts.heartbeat is None else [asyncio.create_task(parts.heartbeat.run())]
    failure = asyncio.create_task(until_first(supervised, paced, *beating))
    try:
        yield url, failure
    finally:
        await runner.cleanup()
        if parts.heartbeat is not None:
            await parts.heartbeat.stop()
        work = (failure, supervised, paced, *beating)
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)


async def _listen(runner: Runner, host: str, port: int) -> str:
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError as error:
        await runner.cleanup()
        raise Complaint(
            f"cannot listen on {host}:{port}: {reason(error)}",
            hint="Choose another with --port; 0 lets the system choose.",
        ) from None
    address, bound = runner.addresses[0][:2]
    # Who listens on every address is reached here on the machine's own.
    address = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)
    return f"http://[{address}]:{bound}" if ":" in address else f"http://{address}:{bound}"


async def until_first(*work: Work, within_s: float | None = None) -> None:
    """Waits until one of the tasks is done, and raises what it raised; or until time is up."""
    done, _ = await asyncio.wait(work, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()
