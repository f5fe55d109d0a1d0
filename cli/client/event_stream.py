"""The server's event stream, followed across lost connections."""

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import msgspec

from api.history.sse_frames import EventView
from cli.client.client import Client, Refused
from controlplane.log.codec import from_row
from controlplane.model.events import Recorded
from controlplane.model.rows import Row

EVENTS = "/v1/events"
AGAIN_S_FIRST = 0.2
AGAIN_S_MAX = 5.0

_decode = msgspec.json.Decoder(EventView).decode


def recorded_of(view: EventView) -> Recorded:
    """Return the recorded event of `view`, decoded to its type."""
    fields = msgspec.structs.asdict(view)
    del fields["text"]
    return from_row(Row(**fields | {"payload": bytes(view.payload), "hash": b""}))


async def follow(server: Client, after: int, path: str = EVENTS) -> AsyncIterator[EventView]:
    """Yield every event after position `after`, without end; resume after a lost connection."""
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
    """Yield the data of each event; other lines of the stream are keep-alives."""
    data = b""
    async for line in lines:
        name, _, value = line.rstrip(b"\r\n").partition(b":")
        if name == b"data":
            data += value.strip()
        elif not name and not value and data:
            yield _decode(data)
            data = b""
