"""Events as the API shows them, and as frames and blocks of an event stream.

An event looks the same whether it comes from the engine, just recorded, or from the log.
"""

from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Raw, Struct

from controlplane.event_messages import describe
from controlplane.log.codec import from_row
from controlplane.model.events import Recorded
from controlplane.model.rows import Row

# The largest number of bytes written to a watcher at once.
BLOCK_BYTES_MAX = 32 << 10

_encode = msgspec.json.Encoder().encode


class EventView(Struct, frozen=True, kw_only=True):
    """An event with its position in the log. `payload` has the fields of its `type`, `text` says
    in a sentence what happened.

    `stream` is its subject: a job's id, node/NAME, queue/NAME or cluster. `command` is the type of
    the command that caused it, empty for what the control plane decides by itself; `cause` is that
    command's id and `actor` the person who gave it. All events of one `step` of the engine were
    decided and stored together; `ordinal` is the command's number within the step.
    """

    position: int
    step: int
    ordinal: int
    at: float
    stream: str
    type: str
    version: int
    payload: Raw
    command: str
    cause: str
    actor: str
    text: str


class EventPage(Struct, frozen=True, kw_only=True):
    """One page of events, the position to go on after (null at the end), and the log's end."""

    items: list[EventView]
    next: int | None
    head: int


def view_of_row(row: Row) -> EventView:
    return _view(from_row(row))


def _view(recorded: Recorded) -> EventView:
    event = recorded.event
    return EventView(
        position=recorded.position,
        step=recorded.step,
        ordinal=recorded.ordinal,
        at=recorded.at,
        stream=event.stream,
        type=type(event).__name__,
        version=event.version,
        payload=Raw(_encode(event)),
        command=recorded.command,
        cause=recorded.cause,
        actor=recorded.actor,
        text=describe(event),
    )


class Frame(Struct, frozen=True, gc=False):
    """One event, encoded for a stream; its id is the position, from which a reader resumes."""

    position: int
    stream: str
    data: bytes


def frame_of_row(row: Row) -> Frame:
    return _frame(view_of_row(row))


def frame_of(recorded: Recorded) -> Frame:
    return _frame(_view(recorded))


def _frame(view: EventView) -> Frame:
    data = b"id: %d\ndata: %b\n\n" % (view.position, _encode(view))
    return Frame(view.position, view.stream, data)


class Block:
    """The events between two positions, encoded once for all watchers."""

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
        """The data as one chunk of HTTP's chunked transfer encoding."""
        if not self._chunk:
            self._chunk = chunked(self.data)
        return self._chunk

    def of(self, stream: str) -> bytes:
        """Return the encoded events of `stream` alone; empty if the block has none."""
        if self._by_stream is None:
            parts: dict[str, list[bytes]] = {}
            for frame in self._frames:
                parts.setdefault(frame.stream, []).append(frame.data)
            self._by_stream = {name: b"".join(data) for name, data in parts.items()}
        return self._by_stream.get(stream, b"")

    def since(self, position: int) -> "Block":
        """Return the part of the block after `position`, which must lie inside it."""
        if position == self.after:
            return self
        later = [frame for frame in self._frames if frame.position > position]
        return Block(later, after=position, upto=self.upto)


def chunked(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


def blocks_of(frames: Sequence[Frame]) -> Iterator[Block]:
    """Group frames of consecutive events into blocks of bounded size."""
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
