"""Events as the API shows them, and as frames and blocks of an event stream.

An event looks the same whether it comes from the engine, just recorded, or from the log.
"""

from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Raw, Struct

from controlplane.codec import EVENT_TYPES, Row, from_row
from controlplane.events import Event, Recorded

# No more than this is written to a watcher at once.
BLOCK_BYTES_MAX = 32 << 10

_encode = msgspec.json.Encoder().encode


class EventView(Struct, frozen=True, kw_only=True):
    """An event with its place in the log. `payload` has the fields of its `type`.

    `stream` is what it is about: a job's id, node/NAME, queue/NAME or cluster. `cause` is the id
    of the command behind it, if there was one.
    """

    position: int
    at: float
    stream: str
    type: str
    version: int
    payload: Raw
    cause: str
    actor: str


class EventPage(Struct, frozen=True, kw_only=True):
    """Some events, the position to go on after (null at the end), and the end of the log."""

    items: list[EventView]
    next: int | None
    head: int


def view_of_row(row: Row) -> EventView:
    position, at, stream, name, version, payload, cause, actor, _ = row
    kind = EVENT_TYPES.get(name)
    if kind is None or kind.version != version:
        return _view(position, at, from_row(row).event, cause, actor)
    return EventView(
        position=position,
        at=at,
        stream=stream,
        type=name,
        version=version,
        payload=Raw(payload),
        cause=cause,
        actor=actor,
    )


def _view(position: int, at: float, event: Event, cause: str, actor: str) -> EventView:
    return EventView(
        position=position,
        at=at,
        stream=event.stream,
        type=type(event).__name__,
        version=event.version,
        payload=Raw(_encode(event)),
        cause=cause,
        actor=actor,
    )


class Frame(Struct, frozen=True, gc=False):
    """One event, encoded for a stream; its id is the position, from which a reader resumes."""

    position: int
    stream: str
    data: bytes


def frame_of_row(row: Row) -> Frame:
    return _frame(view_of_row(row))


def frame_of(recorded: Recorded) -> Frame:
    return _frame(
        _view(recorded.position, recorded.at, recorded.event, recorded.cause, recorded.actor)
    )


def _frame(view: EventView) -> Frame:
    data = b"id: %d\ndata: %b\n\n" % (view.position, _encode(view))
    return Frame(view.position, view.stream, data)


class Block:
    """What there is between two positions, encoded once for all who get it."""

    __slots__ = ("_by_stream", "_chunk", "_frames", "after", "data", "upto")

    def __init__(self, frames: Sequence[Frame], *, after: int, upto: int) -> None:
        self._frames = frames
        self._by_stream: dict[str, bytes] | None = None
        self._chunk = b""
        self.after = after
        self.upto = upto
        self.data = b"".join([frame.data for frame in frames])

    @property
    def chunk(self) -> bytes:
        """The data as a chunk of HTTP's chunked encoding."""
        if not self._chunk:
            self._chunk = chunked(self.data)
        return self._chunk

    def of(self, stream: str) -> bytes:
        """Only the events of one stream."""
        if self._by_stream is None:
            parts: dict[str, list[bytes]] = {}
            for frame in self._frames:
                parts.setdefault(frame.stream, []).append(frame.data)
            self._by_stream = {name: b"".join(data) for name, data in parts.items()}
        return self._by_stream.get(stream, b"")

    def since(self, position: int) -> "Block":
        """What of it comes after a position that lies inside it."""
        if position == self.after:
            return self
        later = [frame for frame in self._frames if frame.position > position]
        return Block(later, after=position, upto=self.upto)


def chunked(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


def blocks_of(frames: Sequence[Frame]) -> Iterator[Block]:
    """Frames of consecutive events, in blocks that are not too large for a buffer."""
    start, size = 0, 0
    for end, frame in enumerate(frames):
        if size and size + len(frame.data) > BLOCK_BYTES_MAX:
            yield _block(frames[start:end])
            start, size = end, 0
        size += len(frame.data)
    if frames:
        yield _block(frames[start:])


def _block(frames: Sequence[Frame]) -> Block:
    return Block(frames, after=frames[0].position - 1, upto=frames[-1].position)
