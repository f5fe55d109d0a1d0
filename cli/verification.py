"""Whether a log says what was once written to it: chain, order and fold, from the first event on."""

from collections import Counter
from collections.abc import Sequence

import msgspec

from cli.exported import ExportedLog
from controlplane.codec import GENESIS, Row, check_chain, from_row
from controlplane.collector import collector_at_rest
from controlplane.difference import Difference
from controlplane.errors import LogCorrupt
from controlplane.events import JobSubmitted
from controlplane.folding import fold
from controlplane.ports import EventLog, Head, Snapshot
from controlplane.redeciding import Differs, Redecider
from controlplane.replay import (
    PAGE_ROWS,
    beginning,
    open_snapshot,
    state_hash,
)
from controlplane.state import State
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
    if _lacks_beginning(log):
        await _walk_part(log, walk)
    elif decisions:
        try:
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
    found = walk.outcome()
    if pin is not None and found.last_position < pin.position:
        raise LogCorrupt(found.last_position + 1, f"is missing, up to {pin.position} at least")
    return found


async def survey(log: EventLog) -> Findings:
    """What there is in a log. Its chain and its order in time are checked, and nothing else."""
    walk = _Walk(None, None)
    if _lacks_beginning(log):
        await _walk_part(log, walk)
        return walk.outcome()
    _, digest, position = await beginning(log)
    with collector_at_rest():
        while rows := await log.read(position, PAGE_ROWS):
            walk.see_rows(list(check_chain(rows, after=position, previous=digest)))
            position, digest = rows[-1][0], rows[-1][8]
    return walk.outcome()


def _lacks_beginning(log: EventLog) -> bool:
    return isinstance(log, ExportedLog) and log.first_position() > 1 and log.base is None


class _Walk:
    """What is looked at on the way, page by page."""

    def __init__(self, pin: Pin | None, snapshot: Snapshot | None) -> None:
        self.findings = Findings()
        self._pins = [] if pin is None else [(pin, "the one that was noted")]
        self._snapshot = snapshot

    def outcome(self) -> Findings:
        """What was found, with the most frequent types of events first."""
        found = self.findings
        found.types = dict(sorted(found.types.items(), key=lambda item: -item[1]))
        return found

    def expect(self, head: Head) -> None:
        self._pins.append((Pin(head.position, head.hash.hex()), "the head's"))

    @property
    def snapshot_at(self) -> int | None:
        return None if self._snapshot is None else self._snapshot.position

    def page_rows(self, position: int) -> int:
        """How many rows to read from here on, so as to stop where the snapshot was taken."""
        ahead = 0 if self._snapshot is None else self._snapshot.position - position
        return min(PAGE_ROWS, ahead) if ahead > 0 else PAGE_ROWS

    def compare_snapshot(self, state: State) -> None:
        """The state is that of the position where the snapshot was taken."""
        assert self._snapshot is not None
        if state_hash(open_snapshot(self._snapshot).world) != state_hash(state):
            raise LogCorrupt(state.position, "the snapshot taken here shows another state")
        self.findings.snapshot = state.position

    def see_rows(self, rows: Sequence[Row]) -> None:
        """Rows whose chain was found good."""
        if not rows:
            return
        found, first, last = self.findings, rows[0], rows[-1]
        if found.first_at is None:
            found.first_position, found.first_at = first[0], first[1]
        before = first[1] if found.last_at is None else found.last_at
        for row in rows:
            if row[1] < before:
                raise LogCorrupt(row[0], "it is earlier than the event before it")
            before = row[1]
        for pin, whose in self._pins:
            if first[0] <= pin.position <= last[0]:
                digest = rows[pin.position - first[0]][8]
                if not digest.hex().startswith(pin.hash):
                    raise LogCorrupt(pin.position, f"its hash is not {whose}")
        found.events += len(rows)
        found.last_position, found.last_at, found.last_hash = last[0], last[1], last[8].hex()
        found.payload_bytes += sum([len(row[5]) for row in rows])
        for name, count in Counter([row[3] for row in rows]).items():
            found.types[name] = found.types.get(name, 0) + count
        found.jobs_submitted = found.types.get(JobSubmitted.__name__, 0)


async def _walk_whole(log: EventLog, walk: _Walk, *, decide: bool = False) -> None:
    # Asked before reading: the log may grow meanwhile, but it never ends earlier. An export cannot
    # tell where the log ended.
    head = Head(0, GENESIS, 0) if isinstance(log, ExportedLog) else await log.head()
    walk.expect(head)
    with collector_at_rest():
        world = await (_decided if decide else _folded)(log, walk)
    if world.position < head.position:
        raise LogCorrupt(world.position + 1, f"is missing: the log should end at {head.position}")
    _check_world(world, walk.findings)


async def _folded(log: EventLog, walk: _Walk) -> World:
    """The world at the end, by taking in what was recorded."""
    begun = await beginning(log)
    # Without the indexes of a world until it has come to its end.
    state, digest = State(begun.world.image()), begun.hash
    while rows := await log.read(state.position, walk.page_rows(state.position)):
        try:
            digest = fold(state, rows, digest)
        except LogCorrupt as bad:
            # Something may be wrong with the rows before it that fits together by itself.
            walk.see_rows([row for row in rows if row[0] < bad.position])
            raise
        walk.see_rows(rows)
        if state.position == walk.snapshot_at:
            walk.compare_snapshot(state)
    return World.around(state)


async def _decided(log: EventLog, walk: _Walk) -> World:
    """The world at the end, by deciding again what was recorded."""
    world, digest, _ = await beginning(log)
    redecider = Redecider(world, look_at=walk.snapshot_at, look=walk.compare_snapshot)
    position = world.position
    while rows := await log.read(position, PAGE_ROWS):
        redecider.take(map(from_row, check_chain(rows, after=position, previous=digest)))
        walk.see_rows(rows)
        position, digest = rows[-1][0], rows[-1][8]
    # An export may end anywhere, in the middle of a step as well.
    redecider.finish(whole=not isinstance(log, ExportedLog))
    return world


def _check_world(world: World, found: Findings) -> None:
    try:
        world.check()
    except AssertionError as error:
        raise LogCorrupt(world.position, f"the state does not hold together: {error}") from None
    found.state_hash = state_hash(world)
    found.jobs, found.queues = len(world.jobs), len(world.queues)
    found.nodes = sum(not node.removed for node in world.nodes.values())


async def _walk_part(log: EventLog, walk: _Walk) -> None:
    """The first hash must be believed here, since what it follows from is not in the export."""
    rows = await log.read(0, 1)
    while rows:
        for row in rows:
            from_row(row)
        walk.see_rows(rows)
        position, previous = rows[-1][0], rows[-1][8]
        rows = await log.read(position, PAGE_ROWS)
        rows = list(check_chain(rows, after=position, previous=previous))
