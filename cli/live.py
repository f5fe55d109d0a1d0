"""What happens, as it happens: the server's event stream, followed through every interruption."""

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import msgspec

from api.frames import EventView
from cli.client import Client, Refused
from cli.narration import tell, words
from controlplane.codec import from_row
from controlplane.errors import LogCorrupt
from controlplane.events import Recorded

EVENTS = "/v1/events"
AGAIN_S_FIRST = 0.2
AGAIN_S_MAX = 5.0

_decode = msgspec.json.Decoder(EventView).decode


def recorded_of(view: EventView) -> Recorded:
    """The event itself, whose fields have names and types."""
    payload = bytes(view.payload)
    return from_row(
        (view.position, view.at, view.stream, view.type, view.version, payload, view.cause,
         view.actor, b"")
    )  # fmt: skip


def told_of(view: EventView) -> str:
    """What happened, in words; of an event that only a newer release knows, its name."""
    try:
        return tell(recorded_of(view).event)
    except LogCorrupt:
        return words(view.type)


async def follow(server: Client, after: int, path: str = EVENTS) -> AsyncIterator[EventView]:
    """Every event after a position, without end; a lost connection is taken up where it broke."""
    again_s = AGAIN_S_FIRST
    while True:
        try:
            async with server.stream(path, after=after) as lines:
                async for view in _events(lines):
                    after, again_s = view.position, AGAIN_S_FIRST
                    yield view
        except (aiohttp.ClientError, TimeoutError):
            pass
        except Refused as refused:
            if refused.status != 503:
                raise
        await asyncio.sleep(again_s)
        again_s = min(2 * again_s, AGAIN_S_MAX)


async def _events(lines: aiohttp.StreamReader) -> AsyncIterator[EventView]:
    """The data of each event; everything else in the stream is only there to keep it alive."""
    data = b""
    async for line in lines:
        name, _, value = line.rstrip(b"\r\n").partition(b":")
        if name == b"data":
            data += value.strip()
        elif not name and not value and data:
            yield _decode(data)
            data = b""
