"""`--watch`: a display that is redrawn after every event, or lines where there is no terminal.

The event stream only triggers a redraw; the content is always requested again, so that it is
consistent.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import NoReturn

import click
from rich.console import RenderableType
from rich.live import Live

from api.history.sse_frames import EventPage
from cli.client.client import Client
from cli.client.event_stream import EVENTS, follow
from cli.output.tables import console

# Ages grow without any event, so the display is redrawn at least this often, in seconds.
PAINT_EVERY_S = 1.0
# The shortest time between two redraws, in seconds.
PAINT_GAP_S = 0.15


async def repaint(server: Client, picture: Callable[[], Awaitable[RenderableType]]) -> NoReturn:
    """Show a picture in the terminal and keep it up to date, until interrupted."""
    news = asyncio.Event()
    listener = asyncio.create_task(_listen(server, news))
    try:
        with Live(console=console(), auto_refresh=False, vertical_overflow="ellipsis") as live:
            while True:
                news.clear()
                live.update(await picture(), refresh=True)
                await asyncio.sleep(PAINT_GAP_S)
                await _wait(news, PAINT_EVERY_S - PAINT_GAP_S)
    finally:
        listener.cancel()


async def report(
    server: Client, lines: Callable[[], Awaitable[Mapping[Hashable, tuple[Hashable, str]]]]
) -> NoReturn:
    """Print a line for each object whose state has changed.

    `lines` returns, per object, a value that must change for its line to be printed again, and the
    line.
    """
    news = asyncio.Event()
    listener = asyncio.create_task(_listen(server, news))
    known: dict[Hashable, Hashable] = {}
    try:
        while True:
            news.clear()
            current = await lines()
            for thing, (state, line) in current.items():
                if known.get(thing) != state:
                    click.echo(line)
            for thing in known.keys() - current.keys():
                click.echo(f"{thing} is gone")
            known = {thing: state for thing, (state, _) in current.items()}
            await _wait(news, PAINT_EVERY_S)
    finally:
        listener.cancel()


async def head_position(server: Client) -> int:
    """Return the log's last position."""
    return (await server.get(EVENTS, EventPage, limit=1)).head


async def _listen(server: Client, news: asyncio.Event) -> None:
    async for _ in follow(server, await head_position(server)):
        news.set()


async def _wait(news: asyncio.Event, at_most_s: float) -> None:
    try:
        async with asyncio.timeout(at_most_s):
            await news.wait()
    except TimeoutError:
        pass
