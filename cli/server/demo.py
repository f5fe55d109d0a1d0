"""`muster demo`: a busy simulated day with faults, at speed, and the browser that shows it."""

import asyncio
import logging
import webbrowser
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import click

from adapters.clocks.asyncio_clock import AsyncioClock
from api.engine.engine_client import EngineClient, Unavailable
from cli.errors import WRONG_USAGE, CliError
from cli.log.sources import Kind, parse_source
from cli.server.assembly import Wanted
from cli.server.cluster_adapter import ClusterContext, ClusterSetup, OpenCluster
from cli.server.demo_day import CLUSTER, arrivals, settings
from cli.server.screen import has_screen
from cli.server.simulated import simulated_cluster
from cli.server.up import run_until_stopped, serve
from cli.settings import DEFAULT_PORT
from controlplane.model.errors import Rejected
from simulator.network.topology import documented, parse_cluster

# A simulated day in five minutes.
SPEED = 288.0
RETRY_S = 0.1


@click.command()
@click.option(
    "--speed",
    type=click.FloatRange(1, 10_000),
    default=SPEED,
    show_default=True,
    help="Simulated seconds per real second; 288 is a day in five minutes.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=DEFAULT_PORT,
    show_default=True,
    help="The port; 0 chooses a free one.",
)
@click.option(
    "--db", metavar="FILE", default="memory:", show_default=True, help="Keep the log here."
)
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the arrivals."
)
@click.option(
    "--browser/--no-browser",
    "opens",
    default=None,
    help="Open the browser. Default: if there is a screen and a terminal.",
)
def demo(speed: float, port: int, db: str, seed: int, opens: bool | None) -> None:
    """Show a living cluster: a busy simulated day at speed, with faults, in the browser.

    192 simulated GPUs, three queues with quotas, jobs that arrive all day, and nodes that fail. It
    runs until you press Ctrl-C; nothing is kept unless --db names a file.

    \b
    Examples:
      muster demo
      muster demo --speed 60 --port 0
      muster demo --db day.db --no-browser
    """
    source = parse_source(db)
    if source.kind is Kind.EXPORT:
        raise CliError(f"{source} is an export; a demo needs a new file", exit_code=WRONG_USAGE)
    wanted = Wanted(source=source, cluster=busy_day(speed, seed))
    opens = has_screen() if opens is None else opens
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING)
    run_until_stopped(serve(wanted, port, on_ready=lambda url: _show(url, opens=opens)))


def busy_day(speed: float, seed: int = 0) -> ClusterSetup:
    """Return the simulated cluster of the demo, with its users."""
    setup = simulated_cluster(documented(parse_cluster(CLUSTER), CLUSTER), speed)

    @asynccontextmanager
    async def open_with_users(context: ClusterContext) -> AsyncIterator[OpenCluster]:
        async with setup.open(context) as cluster:

            async def run() -> None:
                users = submit_all_day(context.engine_client, context.clock, seed)
                await asyncio.gather(cluster.run(), users)

            yield cluster._replace(run=run)

    return replace(setup, open=open_with_users)


async def submit_all_day(engine_client: EngineClient, clock: AsyncioClock, seed: int) -> None:
    """Set the policy and the queues, and submit jobs as they arrive, without end."""
    clock = clock.twin()
    await _leads(engine_client)
    for setting in settings():
        await engine_client.submit(setting)
    begin = clock.now()
    for at, command in arrivals(seed):
        await clock.wait(begin + at)
        try:
            await engine_client.submit(command)
        except (Rejected, Unavailable):
            # The name is taken by an earlier demo on this log, or the server stops: go on.
            continue


async def _leads(engine_client: EngineClient) -> None:
    while not engine_client.leads:  # noqa: ASYNC110 - the client has no event for it
        await asyncio.sleep(RETRY_S)


def _show(url: str, *, opens: bool) -> None:
    opened = opens and webbrowser.open(url)
    click.echo(f"\nA busy day begins: {url}/" + (" (opened in the browser)" if opened else ""))
    for line in (
        "Open it in a browser and drag the time axis: every page follows.",
        f"For example {url}/#/timeline, or {url}/#/forks to ask what a change would have done.",
        "Ctrl-C ends it.",
    ):
        click.echo(line)
