"""`muster up`: the control plane with everything embedded, until it is told to stop."""

import asyncio
import logging
import os
import signal
from collections.abc import Coroutine
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from api.access import is_loopback
from api.control import Role
from cli.assembly import Parts, Wanted, assembled, running, until_first
from cli.cluster_files import read_cluster
from cli.complaints import INTERRUPTED, WRONG_USAGE, Complaint
from cli.kubernetes import KubernetesFlags, kubernetes_options
from cli.settings import (
    DEFAULT_HOST,
    DEFAULT_PORT,
    make_token,
    read_settings,
    read_token,
)
from cli.sources import Kind, Source, damage, parse_source
from controlplane.errors import LogConflict, LogCorrupt, LogUnavailable
from controlplane.labels import is_label

# A long log takes a while to read; whoever waits learns after this time where the server is.
LEAD_S_MAX = 3.0

_log = logging.getLogger("muster")


@click.command()
@click.option(
    "--cluster",
    default="sim",
    show_default="sim: 2 racks x 4 nodes x 8 GPUs",
    metavar="sim|sim:FILE|kubernetes",
    help="The cluster; sim:FILE describes another one, kubernetes is a real one.",
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
    help="0 lets the system choose one.",
)
@click.option(
    "--speed",
    type=click.FloatRange(0.001, 100_000),
    default=1.0,
    show_default=True,
    help="Simulated seconds per real second.",
)
@click.option("--seed", type=click.IntRange(0), help="Of the simulated cluster's chance faults.")
@click.option(
    "--token-file", metavar="FILE", help="Holds the token to ask for, in place of a made one."
)
@kubernetes_options
@click.option(
    "--prometheus",
    metavar="URL",
    default=lambda: read_settings().prometheus,
    show_default="MUSTER_PROMETHEUS",
    help="Take the counters of GPUs from this Prometheus.",
)
@click.option(
    "--standby",
    is_flag=True,
    help="Be one of several on this log: lead if nobody does; else serve reads.",
)
@click.option(
    "--lease",
    metavar="NAMESPACE/NAME",
    default="",
    help="Elect the leader by this Kubernetes Lease (with --standby).",
)
@click.option(
    "--advertise",
    metavar="URL",
    default="",
    help="Where the others reach this one (with --standby).",
)
@click.option("-v", "--verbose", is_flag=True, help="Log every request.")
def up(
    cluster: str,
    db: str,
    host: str,
    port: int,
    speed: float,
    seed: int | None,
    token_file: str | None,
    kubernetes: KubernetesFlags,
    prometheus: str,
    standby: bool,
    lease: str,
    advertise: str,
    verbose: bool,
) -> None:
    """Start the control plane with everything embedded: event log, cluster and HTTP API.

    On a loopback address no token is needed, unless --token-file names one. On any other address a
    token is made, kept in a file that only you can read, and needed in every request.

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
        raise Complaint(f"{source} is an export; import it first", exit_code=WRONG_USAGE)
    _check_standby(source, host, standby=standby, lease=lease, advertise=advertise)
    if prometheus and urlsplit(prometheus).scheme not in ("http", "https"):
        raise Complaint(f"--prometheus {prometheus!r} is no URL", exit_code=WRONG_USAGE)
    tokens, token_place = _tokens(host, token_file)
    real = cluster == "kubernetes"
    if kubernetes.operator and not real:
        raise Complaint("--operator needs --cluster kubernetes", exit_code=WRONG_USAGE)
    if real and (speed != 1.0 or seed is not None):
        told = "a real cluster has its own time and its own chance: leave out --speed and --seed"
        raise Complaint(told, exit_code=WRONG_USAGE)
    wanted = Wanted(
        source=source,
        model=None if real else read_cluster(cluster, seed),
        kubernetes=kubernetes if real else None,
        host=host,
        speed=speed,
        standby=standby,
        lease=lease,
        advertise=advertise.rstrip("/"),
        prometheus=prometheus,
        prometheus_token=read_settings().prometheus_token,
        tokens=tokens,
    )
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    logging.getLogger("aiohttp.access").setLevel(logging.INFO if verbose else logging.WARNING)
    _run(_serve(wanted, port, token_place))


def _tokens(host: str, token_file: str | None) -> tuple[tuple[str, ...], Path | None]:
    """The secrets to accept, and the file that holds one."""
    if token_file is not None:
        return (read_token(Path(token_file), must_exist=True),), Path(token_file)
    if is_loopback(host):
        return (), None
    place = read_settings().token_file
    return (make_token(place),), place


def _check_standby(source: Source, host: str, *, standby: bool, lease: str, advertise: str) -> None:
    """What makes no sense together, said before anything begins."""
    wrong = ""
    if not standby and (lease or advertise):
        wrong = "--lease and --advertise are for one of several control planes; add --standby"
    elif standby and source.kind is Kind.MEMORY:
        wrong = "--standby needs a log that others can read; a log in memory is this process's own"
    elif lease and (lease.count("/") != 1 or not all(map(is_label, lease.split("/")))):
        wrong = f"--lease {lease!r} is not NAMESPACE/NAME"
    elif advertise and urlsplit(advertise).scheme not in ("http", "https"):
        wrong = f"--advertise {advertise!r} is not a URL such as http://10.0.0.5:8642"
    elif standby and host in ("0.0.0.0", "::") and not advertise:
        wrong = f"on {host} the others cannot know where to find this one; say it with --advertise"
    if wrong:
        raise Complaint(wrong, exit_code=WRONG_USAGE)


def _run(work: Coroutine[Any, Any, None]) -> None:
    try:
        import uvloop
    except ImportError:
        asyncio.run(work)
    else:
        uvloop.run(work)


async def _serve(wanted: Wanted, port: int, token_place: Path | None) -> None:
    stop = _stop_on_signals()
    try:
        async with assembled(wanted) as parts:
            await _run_parts(parts, wanted, port, token_place, stop)
    except LogConflict:
        raise Complaint(
            f"another control plane leads {wanted.source} now; this one has stopped",
            hint="One log has one leader. Use another --db for a second control plane.",
        ) from None
    except LogCorrupt as error:
        raise damage(wanted.source, error) from None
    except LogUnavailable as error:
        raise Complaint(f"the log cannot be opened: {error}") from None


def _stop_on_signals() -> asyncio.Event:
    """Set by the first signal; the second one does not wait for anything."""
    stop = asyncio.Event()

    def on_signal() -> None:
        if stop.is_set():
            os._exit(INTERRUPTED)
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, on_signal)
    return stop


async def _run_parts(
    parts: Parts, wanted: Wanted, port: int, token_place: Path | None, stop: asyncio.Event
) -> None:
    async with running(parts, wanted.host, port, wanted.advertise) as (url, failure):
        stopped = asyncio.create_task(_wait(stop))
        led = asyncio.create_task(_wait(parts.supervisor.serves))
        try:
            await until_first(stopped, failure, led, within_s=LEAD_S_MAX)
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
        f"  cluster    {_cluster(wanted)}",
    ]
    if token_place is not None:
        lines.append(f"  token      in {token_place}")
    if parts.control.role is Role.STANDBY:
        where = parts.control.leader or "not known yet"
        lines.append(f"  state      standby; the leader is {where}")
    elif not parts.supervisor.serves.is_set():
        lines.append("  state      reading the log; until that is done, the API answers 503")
    if url != read_settings().url:
        lines.append(f"In another terminal: export MUSTER_URL={url}")
    lines.append("Try: muster submit examples/pytorchjob.yaml && muster list --watch")
    return lines


def _cluster(wanted: Wanted) -> str:
    if wanted.model is None:
        flags = wanted.kubernetes or KubernetesFlags()
        where = flags.kubeconfig or "the one this pod runs in"
        role = ", as the operator of Kubeflow's jobs" if flags.operator else ""
        return f"Kubernetes: {where}, {flags.namespaces or 'all namespaces'}{role}"
    model = wanted.model
    pace = "real time" if wanted.speed == 1 else f"{wanted.speed:g} simulated seconds a second"
    return f"simulated: {len(model.nodes)} nodes, {model.gpus} GPUs, {pace}"


def _place(source: Source) -> str:
    return str(source.path.absolute()) if source.kind is Kind.SQLITE else str(source)
