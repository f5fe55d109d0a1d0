"""One reader of an event stream: where it stands, and its connection's buffer."""

import asyncio

from aiohttp import web
from aiohttp.http import HttpVersion11

from api.frames import Block, chunked

# Above this the buffer counts as full; it never holds more than a block on top of it.
BUFFER_BYTES_FULL = 32 << 10

_HEARTBEAT = b":\n\n"


class Watcher:
    """A connection that events are written to, and the position up to which they were.

    Writes go to the transport itself, because the bytes of a block are the same for everybody.
    """

    __slots__ = ("_bell", "_is_chunked", "_transport", "_writer", "position", "stream")

    def __init__(self, request: web.Request, *, position: int, stream: str | None) -> None:
        if request.transport is None:
            raise ConnectionResetError("the client is gone")
        self.position = position
        # The one stream it asked for; None means all.
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
        """Writes what follows right behind the watcher's position.

        Raises ConnectionResetError if the client is gone. (Event loops differ in what a write to a
        closed transport raises; an error that is not handled here keeps the block in its traceback.)
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
        """Lets the other end, and all between, see that the stream is alive."""
        self._send(_HEARTBEAT)

    def _send(self, data: bytes) -> None:
        if data:
            self._transport.write(chunked(data) if self._is_chunked else data)

    async def drained(self, s_max: float) -> bool:
        """Waits for room in the buffer; a connection that makes none in time is cut."""
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
