"""Whether a log says what was once written to it: chain, order and fold, from the first event on."""

from collections.abc import Iterable

import msgspec

from cli.exported import ExportedLog
from controlplane.codec import GENESIS, Row, check_chain, from_row
from controlplane.collector import collector_at_rest
from controlplane.errors import LogCorrupt
from controlplane.events import JobSubmitted, Recorded
from controlplane.ports import EventLog, Head, Snapshot
from controlplane.redeciding import Difference, Differs, Redecider
from controlplane.replay import (
    PAGE_ROWS,
    beginning,
    fold,
    open_snapshot,
    state_hash,
)
from controlplane.world import World


class Pin(msgspec.Struct, frozen=True):
    """A hash that somebody noted once: nothing else shows a log that was cut short and closed."""

    position: int
    hash: str


class Findings(msgspec.Struct, kw_only=True):
    """What was seen in a log on the way through it."""

    events: int = 0
    first_position: int = 0
    last_position: int = 0
    first_at: float | None = None
    last_at: float | None = None
    last_hash: str = ""
    payload_bytes: int = 0
    types: dict[str, int] = {}
    jobs_submitted: int = 0
    # These are None when the log does not begin at position 1, so that nothing can be folded.
    state_hash: str | None = None
    jobs: int | None = None
    nodes: int | None = None
    queues: int | None = None
    # Where a snapshot stands that was found to agree.
    snapshot: int | None = None
    # Whether today's code decides what was recorded; None if that was not tried.
    decided_alike: bool | None = None
    difference: Difference | None = None


async def verify(log: EventLog, *, pin: Pin | None = None, decisions: bool = False) -> Findings:
    """Reads all of it and raises LogCorrupt, with the first bad position, if anything is wrong.

    With `decisions` every recorded decision is decided again; a difference is among the findings.
    """
    walk = _Walk(pin, await log.latest_snapshot())
    if isinstance(log, ExportedLog) and log.first_position() > 1 and log.base is None:
        await _walk_part(log, walk)
    elif decisions:
        try:
            with collector_at_rest():
                await _walk_whole(log, walk, decide=True)
            walk.findings.decided_alike = True
        except Differs as differs:
            # That it was decided otherwise does not make it a bad log: the rest is looked at, too.
            walk = _Walk(pin, await log.latest_snapshot())
            await _walk_whole(log, walk)
            walk.findings.decided_alike = False
            walk.findings.difference = differs.difference
    else:
        await _walk_whole(log, walk)
    found = walk.findings
    if pin is not None and found.last_position < pin.position:
        raise LogCorrupt(found.last_position + 1, f"is missing, up to {pin.position} at least")
    found.types = dict(sorted(found.types.items(), key=lambda item: -item[1]))
    return found


class _Walk:
    """What is looked at on the way, event by event."""

    def __init__(self, pin: Pin | None, snapshot: Snapshot | None) -> None:
        self.findings = Findings()
        self._pins = [] if pin is None else [(pin, "the one that was noted")]
        self._snapshot = snapshot

    def expect(self, head: Head) -> None:
        self._pins.append((Pin(head.position, head.hash.hex()), "the head's"))

    def see_event(self, recorded: Recorded, world: World | None = None) -> None:
        found = self.findings
        if found.last_at is not None and recorded.at < found.last_at:
            raise LogCorrupt(recorded.position, "it is earlier than the event before it")
        found.last_at = recorded.at
        if world is not None and world.position == self.snapshot_at:
            self.compare_snapshot(world)

    @property
    def snapshot_at(self) -> int | None:
        return None if self._snapshot is None else self._snapshot.position

    def compare_snapshot(self, world: World) -> None:
        """The world stands where the snapshot was taken."""
        assert self._snapshot is not None
        if state_hash(open_snapshot(self._snapshot).world) != state_hash(world):
            raise LogCorrupt(world.position, "the snapshot taken here shows another state")
        self.findings.snapshot = world.position

    def see_rows(self, rows: Iterable[Row]) -> None:
        found = self.findings
        for position, at, _, name, _, payload, _, _, digest in rows:
            if found.first_at is None:
                found.first_position, found.first_at = position, at
            found.events += 1
            found.last_at = at
            found.jobs_submitted += name == JobSubmitted.__name__
            found.last_position, found.last_hash = position, digest.hex()
            found.payload_bytes += len(payload)
            found.types[name] = found.types.get(name, 0) + 1
            for pin, whose in self._pins:
                if pin.position == position and not found.last_hash.startswith(pin.hash):
                    raise LogCorrupt(position, f"its hash is not {whose}")


async def _walk_whole(log: EventLog, walk: _Walk, *, decide: bool = False) -> None:
    # Asked before reading: the log may grow meanwhile, but it never ends earlier. An export cannot
    # tell where the log ended.
    head = Head(0, GENESIS, 0) if isinstance(log, ExportedLog) else await log.head()
    walk.expect(head)
    world, digest, _ = await beginning(log)
    redecider = Redecider(world, look_at=walk.snapshot_at, look=walk.compare_snapshot)
    position = world.position
    while rows := await log.read(position, PAGE_ROWS):
        if decide:
            redecider.take(map(from_row, check_chain(rows, after=position, previous=digest)))
            digest = rows[-1][8]
        else:
            digest = fold(world, rows, digest, lambda recorded: walk.see_event(recorded, world))
        walk.see_rows(rows)
        position = rows[-1][0]
    # An export may end anywhere, in the middle of a step as well.
    redecider.finish(whole=not isinstance(log, ExportedLog))
    if world.position < head.position:
        raise LogCorrupt(world.position + 1, f"is missing: the log should end at {head.position}")
    _check_world(world, walk.findings)


def _check_world(world: World, found: Findings) -> None:
    try:
        world.check()
    except AssertionError as error:
        raise LogCorrupt(world.position, f"the state does not hold together: {error}") from None
    found.state_hash = state_hash(world)
    found.jobs, found.queues = len(world.jobs), len(world.queues)
    found.nodes = sum(not node.removed for node in world.nodes.values())


async def _walk_part(log: ExportedLog, walk: _Walk) -> None:
    """The first hash must be believed here, since what it follows from is not in the export."""
    position = log.first_position()
    rows = await log.read(position - 1, 1)
    previous = rows[0][8]
    while rows:
        for row in rows:
            walk.see_event(from_row(row))
        walk.see_rows(rows)
        position, previous = rows[-1][0], rows[-1][8]
        rows = await log.read(position, PAGE_ROWS)
        rows = list(check_chain(rows, after=position, previous=previous))
