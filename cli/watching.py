"""`--watch`: a picture that is painted again when something happens, or lines where nobody looks.

The event stream says when to look; what is shown is always asked for anew, so it is never half old.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import NoReturn

import click
from rich.console import RenderableType
from rich.live import Live

from api.frames import EventPage
from cli.client import Client
from cli.live import EVENTS, follow
from cli.tables import console

# Ages grow without any event, so the picture is painted again at least this often.
PAINT_EVERY_S = 1.0
# And not more often than this, however much happens.
PAINT_GAP_S = 0.15


async def repaint(server: Client, picture: Callable[[], Awaitable[RenderableType]]) -> NoReturn:
    """Shows a picture in the terminal and keeps it true, until it is interrupted."""
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
    """Prints a line for each thing whose state is new.

    `lines` gives for each thing what must change for its line to be printed again, and the line.
    """
    news = asyncio.Event()
    listener = asyncio.create_task(_listen(server, news))
    known: dict[Hashable, Hashable] = {}
    try:
        while True:
            news.clear()
            found = await lines()
            for thing, (state, line) in found.items():
                if known.get(thing) != state:
                    click.echo(line)
            for thing in known.keys() - found.keys():
                click.echo(f"{thing} is gone")
            known = {thing: state for thing, (state, _) in found.items()}
            await _wait(news, PAINT_EVERY_S)
    finally:
        listener.cancel()


async def head_position(server: Client) -> int:
    """Where the log ends now."""
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
