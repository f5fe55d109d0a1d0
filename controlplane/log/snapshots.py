"""Snapshots: a state as bytes, so that a start reads only the events after it.

The body is MessagePack in frames, each after its length in four bytes. The first frame has the
format and the state's image without its two long lists, the jobs and the receipts; the following
frames have `FRAME_ITEMS` of each. So an engine can encode a snapshot frame by frame between its
steps.

A snapshot is a cache. One that cannot be read, or has another format, is ignored.
"""

from collections.abc import Iterator
from hashlib import sha256

import msgspec
from msgspec.structs import replace

from controlplane.lifecycle.job import Job
from controlplane.log.installed import check_names
from controlplane.model.registry import UnknownName
from controlplane.ports import StateSnapshot
from controlplane.state.image import StateImage
from controlplane.state.state import State
from controlplane.state.world import World

FORMAT = 1
# A frame takes some milliseconds to encode.
FRAME_ITEMS = 1_000
_LENGTH_BYTES = 4


class SnapshotUnreadable(Exception):
    """The snapshot is damaged or of another release."""


class _Head(msgspec.Struct, frozen=True, array_like=True):
    format: int
    # Without jobs and receipts.
    image: StateImage


class _Frame(msgspec.Struct, frozen=True, array_like=True):
    jobs: list[Job]
    receipts: list[tuple[str, int, str]]


_encode = msgspec.msgpack.Encoder(order="deterministic").encode
_decode_head = msgspec.msgpack.Decoder(_Head).decode
_decode_frame = msgspec.msgpack.Decoder(_Frame).decode


def state_hash(state: State | World) -> str:
    """The hash of a state as hexadecimal text; equal states have equal hashes in every process."""
    return sha256(_encode(state.image())).hexdigest()


def take_snapshot(state: State | World, hash: bytes) -> StateSnapshot:
    """A snapshot of the state; `hash` is that of the row at its position."""
    encoder = SnapshotEncoder(state, hash)
    while (snapshot := encoder.encode_more()) is None:
        pass
    return snapshot


class SnapshotEncoder:
    """Encodes a snapshot one frame at a time, while the state continues to change.

    The image is taken at the beginning and consists of frozen values, so the snapshot is of the
    state at that position.
    """

    def __init__(self, state: State | World, hash: bytes) -> None:
        self._position = state.position
        self._frames = _frames(state.image(hash))
        self._encoded: list[bytes] = []

    def encode_more(self) -> StateSnapshot | None:
        """Encode one more frame; return the snapshot once it is complete, else None."""
        frame = next(self._frames, None)
        if frame is None:
            return StateSnapshot(self._position, b"".join(self._encoded))
        self._encoded += (len(frame).to_bytes(_LENGTH_BYTES), frame)
        return None


def _frames(image: StateImage) -> Iterator[bytes]:
    jobs, receipts = image.jobs, image.receipts
    yield _encode(_Head(FORMAT, replace(image, jobs=[], receipts=[])))
    for first in range(0, max(len(jobs), len(receipts)), FRAME_ITEMS):
        end = first + FRAME_ITEMS
        yield _encode(_Frame(jobs[first:end], receipts[first:end]))


def read_snapshot(snapshot: StateSnapshot) -> StateImage:
    """The image in a snapshot. Raises SnapshotUnreadable."""
    frames = _split(snapshot.body)
    try:
        head = _decode_head(next(frames, b""))
        decoded = [_decode_frame(frame) for frame in frames]
    except msgspec.MsgspecError as error:
        raise SnapshotUnreadable(f"the snapshot cannot be read: {error}") from None
    if head.format != FORMAT:
        raise SnapshotUnreadable(f"the snapshot has format {head.format}, not {FORMAT}")
    try:
        check_names(head.image.policy, head.image.queues)
    except UnknownName as error:
        raise SnapshotUnreadable(str(error)) from None
    jobs = [job for frame in decoded for job in frame.jobs]
    receipts = [receipt for frame in decoded for receipt in frame.receipts]
    return replace(head.image, jobs=jobs, receipts=receipts)


def _split(body: bytes) -> Iterator[memoryview]:
    view, start = memoryview(body), 0
    while start < len(view):
        begin = start + _LENGTH_BYTES
        start = begin + int.from_bytes(view[start:begin])
        yield view[begin:start]
