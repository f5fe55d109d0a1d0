"""`muster view FILE`: the browser on a log or a bundle, read-only. There is no engine."""

import asyncio
import logging
import webbrowser
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import NoReturn

import click
from aiohttp import web

from adapters.logs.held_log import HeldLog
from api.app import make_app
from api.cluster.about import SIMULATED, AboutCluster
from api.engine.engine_client import EngineClient
from api.history.annotations import ANNOTATIONS
from api.server import Runner
from cli.errors import WRONG_USAGE, CliError
from cli.log.sources import Source, parse_source, reading
from cli.server.annotations import annotations_of
from cli.server.assembly import listen
from cli.server.kinds import load_kinds
from cli.server.screen import has_screen
from cli.server.up import run_until_stopped, stop_on_signals
from cli.settings import DEFAULT_HOST, DEFAULT_PORT
from controlplane.lifecycle.effects import Effect
from controlplane.lifecycle.job import Job
from controlplane.log.replay import rebuild
from controlplane.model.commands import Report
from controlplane.ports import EventLog, SearchableLog

# What a server calls a log that it shows, if it does not come from a simulated cluster.
RECORDED = "recorded"


@click.command()
@click.argument("log", metavar="LOG")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=DEFAULT_PORT,
    show_default=True,
    help="The port; 0 chooses a free one.",
)
@click.option(
    "--browser/--no-browser",
    "opens",
    default=None,
    help="Open the browser. Default: if there is a screen and a terminal.",
)
def view(log: str, port: int, opens: bool | None) -> None:
    """Show a log in the browser, read-only: step through it, analyse it, annotate it, fork it.

    LOG is a SQLite file, a postgresql:// URL, an export or a bundle of `muster log bundle`. Nothing is
    written to it; annotations are kept in a file beside it.

    \b
    Examples:
      muster view muster.db
      muster view incident.bundle --port 0
    """
    source = parse_source(log)
    opens = has_screen() if opens is None else opens
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING)
    run_until_stopped(_serve(source, port, opens=opens))


async def _serve(source: Source, port: int, *, opens: bool) -> None:
    stop = stop_on_signals()
    async with showing(source) as app:
        runner = Runner(app)
        await runner.setup()
        url = await listen(runner, DEFAULT_HOST, port)
        try:
            opened = opens and await asyncio.to_thread(webbrowser.open, url)
            click.echo(
                f"{source} in the browser, read-only: {url}/" + (" (opened)" if opened else "")
            )
            click.echo(f"What failed, where and what it cost: {url}/#/incidents")
            click.echo("Ctrl-C ends it.")
            await stop.wait()
        finally:
            await runner.cleanup()


@asynccontextmanager
async def showing(source: Source) -> AsyncIterator[web.Application]:
    """Yield an application that shows the log, read-only; raise CliError if it cannot be read."""
    load_kinds()
    async with reading(source) as opened:
        log = await searchable(opened)
        world = (await rebuild(log)).world
        if not world.position:
            raise CliError(f"{source} is empty: there is nothing to show", exit_code=WRONG_USAGE)
        engine_client = EngineClient(log)
        about = AboutCluster(
            kind=await _kind(log, world.position),
            description=f"the log {source}, read-only: {world.position:,} events",
            read_only=True,
        )
        app = make_app(engine_client, NoCluster(), now=lambda: world.at, about=about)
        engine_client.show(world)
        app[ANNOTATIONS] = annotations_of(source)
        yield app


async def searchable(log: EventLog) -> SearchableLog:
    """Return the log as a server needs it; a file that is read forwards only is held in memory."""
    from adapters.database.event_log import DatabaseLog

    return log if isinstance(log, DatabaseLog) else await HeldLog.of(log)


async def _kind(log: SearchableLog, position: int) -> str:
    return SIMULATED if await log.read_stream("simulator", 0, position) else RECORDED


class NoCluster:
    """Stands where a cluster would be: nothing runs, and no log lines of ranks are kept."""

    async def connect(self, report: Callable[[Report], None]) -> None:
        self._refuse()

    async def carry_out(self, effects: Sequence[Effect]) -> None:
        self._refuse()

    async def logs(self, job: Job, rank: int, lines_max: int) -> list[str]:
        return []

    def _refuse(self) -> NoReturn:
        raise AssertionError("a log that is only shown has no engine")
