"""One reader of an event stream: its position, and the buffer of its connection."""

import asyncio

from aiohttp import web
from aiohttp.http import HttpVersion11

from api.history.sse_frames import Block, chunked

# Above this the buffer counts as full; it never holds more than one block in addition.
BUFFER_BYTES_FULL = 32 << 10

_HEARTBEAT = b":\n\n"


class Watcher:
    """A connection that events are written to, and the position up to which they were written.

    It writes to the transport directly, because the bytes of a block are the same for all watchers.
    """

    __slots__ = ("_bell", "_is_chunked", "_transport", "_writer", "position", "stream")

    def __init__(self, request: web.Request, *, position: int, stream: str | None) -> None:
        if request.transport is None:
            raise ConnectionResetError("the client is gone")
        self.position = position
        # The stream to watch; None means all.
        self.stream = stream
        self._transport = request.transport
        self._writer = request.writer
        self._is_chunked = request.version >= HttpVersion11
        self._bell: asyncio.Future[None] | None = None
        self._transport.set_write_buffer_limits(high=BUFFER_BYTES_FULL)

    @property
    def is_gone(self) -> bool:
        return self._transport.is_closing()

    @property
    def keeps_up(self) -> bool:
        transport = self._transport
        return transport.get_write_buffer_size() <= BUFFER_BYTES_FULL and not self.is_gone

    def write(self, block: Block) -> None:
        """Write `block`, which must begin right after the watcher's position.

        Raises ConnectionResetError if the client is gone. (Event loops differ in what a write to a
        closed transport raises, and an unhandled exception would keep the block alive in its
        traceback.)
        """
        assert block.after == self.position, (block.after, self.position)
        if self.is_gone:
            raise ConnectionResetError("the client is gone")
        if self.stream is not None:
            self._send(block.of(self.stream))
        else:
            self._transport.write(block.chunk if self._is_chunked else block.data)
        self.position = block.upto

    def beat(self) -> None:
        """Write a keep-alive, so that the client and all proxies see that the stream is alive."""
        self._send(_HEARTBEAT)

    def _send(self, data: bytes) -> None:
        if data:
            self._transport.write(chunked(data) if self._is_chunked else data)

    async def drained(self, s_max: float) -> bool:
        """Wait up to `s_max` seconds for room in the buffer; cut a connection that makes none."""
        try:
            async with asyncio.timeout(s_max):
                await self._writer.drain()
        except TimeoutError:
            self._transport.abort()
            return False
        return True

    async def rest(self) -> None:
        self._bell = asyncio.get_running_loop().create_future()
        await self._bell

    def wake(self) -> None:
        if self._bell is not None and not self._bell.done():
            self._bell.set_result(None)
