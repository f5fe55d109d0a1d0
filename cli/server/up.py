"""`muster up`: the control plane with everything embedded, until it is stopped."""

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Coroutine
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from api.access import is_loopback
from api.engine.engine_client import ReplicaRole
from cli.errors import INTERRUPTED, WRONG_USAGE, CliError
from cli.log.sources import Kind, Source, damage, parse_source
from cli.server import kubernetes
from cli.server.assembly import Parts, Wanted, assembled, running, until_first
from cli.server.clusters import (
    BUILT_IN,
    cluster_options,
    configure,
    load_clusters,
    refuse_foreign_options,
)
from cli.settings import (
    DEFAULT_HOST,
    DEFAULT_PORT,
    make_token,
    read_settings,
    read_token,
)
from controlplane.model.dns_names import is_label
from controlplane.model.errors import LogConflict, LogCorrupt, LogUnavailable

# A long log takes a while to read; after this many seconds the server's URL is printed anyway.
LEAD_S_MAX = 3.0

_log = logging.getLogger("muster")


@click.command()
@click.option(
    "--cluster",
    default="sim",
    show_default="sim: 2 racks x 4 nodes x 8 GPUs",
    metavar="SCHEME[:REST]",
    help=f"The cluster, as {' or '.join(each.form for each in BUILT_IN)}.",
)
@click.option(
    "--db",
    metavar="URL",
    default=lambda: read_settings().db,
    show_default="MUSTER_DB, or muster.db in your data folder",
    help="The event log: a file, sqlite:///FILE, postgresql://..., or memory:.",
)
@click.option("--host", default=DEFAULT_HOST, show_default=True, help="The address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=DEFAULT_PORT,
    show_default=True,
    help="The port; 0 chooses a free one.",
)
@click.option("--token-file", metavar="FILE", help="File with the token that clients must send.")
@cluster_options
@click.option(
    "--prometheus",
    metavar="URL",
    default=lambda: read_settings().prometheus,
    show_default="MUSTER_PROMETHEUS",
    help="Read GPU metrics from this Prometheus.",
)
@click.option(
    "--standby",
    is_flag=True,
    help="Run as one of several replicas: lead if there is no leader, else serve reads.",
)
@click.option(
    "--lease",
    metavar="NAMESPACE/NAME",
    default="",
    help="With --standby: elect the leader by this Kubernetes Lease.",
)
@click.option(
    "--advertise",
    metavar="URL",
    default="",
    help="With --standby: URL at which other replicas reach this one.",
)
@click.option("-v", "--verbose", is_flag=True, help="Log every request.")
def up(
    cluster: str,
    db: str,
    host: str,
    port: int,
    token_file: str | None,
    flags: dict[str, Any],
    prometheus: str,
    standby: bool,
    lease: str,
    advertise: str,
    verbose: bool,
) -> None:
    """Start the control plane with everything embedded: event log, cluster and HTTP API.

    On a loopback address no token is needed, unless --token-file names one. On any other address a
    token is created in a file that only you can read, and every request must carry it.

    --cluster chooses the cluster adapter by its scheme. sim:FILE simulates the cluster in a file, and
    sim a default one. kubernetes:CONTEXT drives the real cluster of a context of your kubeconfig, and
    kubernetes the current one. Installed packages may add others.

    \b
    Examples:
      muster up
      muster up --db ./muster.db --speed 60
      muster up --cluster sim:examples/cluster.yaml --db memory: --port 0
      muster up --host 0.0.0.0 --db postgresql://muster@db/muster
      muster up --cluster kubernetes --namespaces team-a,team-b
      muster up --standby --db postgresql://muster@db/muster --port 8643
      muster up --cluster kubernetes --operator
    """
    source = parse_source(db)
    if source.kind is Kind.EXPORT:
        raise CliError(f"{source} is an export; import it first", exit_code=WRONG_USAGE)
    _check_standby(source, host, standby=standby, lease=lease, advertise=advertise)
    if prometheus and urlsplit(prometheus).scheme not in ("http", "https"):
        raise CliError(f"--prometheus {prometheus!r} is not a URL", exit_code=WRONG_USAGE)
    tokens, token_place = _tokens(host, token_file)
    # The Lease may be in a cluster of Kubernetes that runs no jobs of this server.
    allowed = {"kubeconfig", "context"} if lease else set[str]()
    refuse_foreign_options(cluster, click.get_current_context(), allowed=allowed)
    load_clusters()
    access = flags[kubernetes.ADAPTER.scheme]
    wanted = Wanted(
        source=source,
        cluster=configure(cluster, flags),
        host=host,
        standby=standby,
        lease=lease,
        kubeconfig=access.kubeconfig,
        context=access.context,
        advertise=advertise.rstrip("/"),
        prometheus=prometheus,
        prometheus_token=read_settings().prometheus_token,
        tokens=tokens,
    )
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    logging.getLogger("aiohttp.access").setLevel(logging.INFO if verbose else logging.WARNING)
    run_until_stopped(serve(wanted, port, token_place))


def _tokens(host: str, token_file: str | None) -> tuple[tuple[str, ...], Path | None]:
    """Return the tokens to accept, and the file that holds one; None if there is none."""
    if token_file is not None:
        return (read_token(Path(token_file), must_exist=True),), Path(token_file)
    if is_loopback(host):
        return (), None
    place = read_settings().token_file
    return (make_token(place),), place


def _check_standby(source: Source, host: str, *, standby: bool, lease: str, advertise: str) -> None:
    """Raise CliError for options that contradict each other, before anything starts."""
    wrong = ""
    if not standby and (lease or advertise):
        wrong = "--lease and --advertise are for one of several control planes; add --standby"
    elif standby and source.kind is Kind.MEMORY:
        wrong = "--standby needs a shared log; a log in memory belongs to one process"
    elif lease and (lease.count("/") != 1 or not all(map(is_label, lease.split("/")))):
        wrong = f"--lease {lease!r} is not NAMESPACE/NAME"
    elif advertise and urlsplit(advertise).scheme not in ("http", "https"):
        wrong = f"--advertise {advertise!r} is not a URL such as http://10.0.0.5:8642"
    elif standby and host in ("0.0.0.0", "::") and not advertise:
        wrong = f"with --host {host} give the URL for the other replicas with --advertise"
    if wrong:
        raise CliError(wrong, exit_code=WRONG_USAGE)


def run_until_stopped(work: Coroutine[Any, Any, None]) -> None:
    """Run a server in the fastest event loop that is installed."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(work)
    else:
        uvloop.run(work)


async def serve(
    wanted: Wanted,
    port: int,
    token_place: Path | None = None,
    on_ready: Callable[[str], None] | None = None,
) -> None:
    """Run a control plane until a signal stops it; raise CliError.

    `on_ready` is called with the server's URL instead of printing the banner.
    """
    stop = stop_on_signals()
    try:
        async with assembled(wanted) as parts:
            await _run_parts(parts, wanted, port, token_place, stop, on_ready)
    except LogConflict:
        raise CliError(
            f"another control plane leads {wanted.source} now; this one has stopped",
            hint="One log has one leader. Use another --db for a second control plane.",
        ) from None
    except LogCorrupt as error:
        raise damage(wanted.source, error) from None
    except LogUnavailable as error:
        raise CliError(f"the log cannot be opened: {error}") from None


def stop_on_signals() -> asyncio.Event:
    """Return an event that the first signal sets; a second signal ends the process at once."""
    stop = asyncio.Event()

    def on_signal() -> None:
        if stop.is_set():
            os._exit(INTERRUPTED)
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, on_signal)
    return stop


async def _run_parts(
    parts: Parts,
    wanted: Wanted,
    port: int,
    token_place: Path | None,
    stop: asyncio.Event,
    on_ready: Callable[[str], None] | None,
) -> None:
    async with running(parts, wanted.host, port, wanted.advertise) as (url, failure):
        stopped = asyncio.create_task(_wait(stop))
        led = asyncio.create_task(_wait(parts.supervisor.serves))
        try:
            await until_first(stopped, failure, led, within_s=LEAD_S_MAX)
            if on_ready is not None:
                on_ready(url)
            else:
                for line in banner(parts, wanted, url, token_place):
                    click.echo(line)
            await until_first(stopped, failure)
            _log.info("stopping")
        finally:
            stopped.cancel()
            led.cancel()
    kept = await parts.supervisor.snapshot()
    _log.info("stopped%s", "" if kept is None else f", with a snapshot at position {kept}")


async def _wait(event: asyncio.Event) -> None:
    await event.wait()


def banner(parts: Parts, wanted: Wanted, url: str, token_place: Path | None) -> list[str]:
    lines = [
        f"Muster {version('muster')}",
        f"  API        {url}",
        f"  dashboard  {url}/",
        f"  docs       {url}/docs",
        f"  log        {_place(wanted.source)} ({parts.events:,} events)",
        f"  cluster    {wanted.cluster.description}",
    ]
    if token_place is not None:
        lines.append(f"  token      in {token_place}")
    if parts.engine_client.role is ReplicaRole.STANDBY:
        where = parts.engine_client.leader or "not known yet"
        lines.append(f"  state      standby; the leader is {where}")
    elif not parts.supervisor.serves.is_set():
        lines.append("  state      reading the log; until that is done, the API answers 503")
    if url != read_settings().url:
        lines.append(f"In another terminal: export MUSTER_URL={url}")
    lines.append("Try: muster submit examples/pytorchjob.yaml && muster list --watch")
    return lines


def _place(source: Source) -> str:
    return str(source.path.absolute()) if source.kind is Kind.SQLITE else str(source)
