"""Verification of a log: hash chain, order in time and fold, from the first event on."""

from collections import Counter
from collections.abc import Sequence

import msgspec

from cli.log.exported_log import ExportedLog
from controlplane.audit.redecide import DecisionVerifier, Difference, Differs
from controlplane.log.codec import from_row
from controlplane.log.fold import fold
from controlplane.log.hash_chain import check_chain
from controlplane.log.replay import PAGE_ROWS, beginning
from controlplane.log.snapshots import SnapshotUnreadable, read_snapshot, state_hash
from controlplane.model.errors import LogCorrupt
from controlplane.model.events import JobSubmitted
from controlplane.model.rows import GENESIS, Row
from controlplane.ports import EventLog, Head, StateSnapshot
from controlplane.state.state import State
from controlplane.state.world import World


class Pin(msgspec.Struct, frozen=True):
    """A position and its hash, noted earlier.

    Only this reveals a log that was truncated and whose head was set to match.
    """

    position: int
    hash: str


class Findings(msgspec.Struct, kw_only=True):
    """The results of reading a log."""

    events: int = 0
    first_position: int = 0
    last_position: int = 0
    first_at: float | None = None
    last_at: float | None = None
    last_hash: str = ""
    payload_bytes: int = 0
    types: dict[str, int] = {}
    jobs_submitted: int = 0
    # None when the log does not begin at position 1, so that nothing can be folded.
    state_hash: str | None = None
    jobs: int | None = None
    nodes: int | None = None
    queues: int | None = None
    # The position of a snapshot that agrees with the fold.
    snapshot: int | None = None
    # Whether today's code decides what was recorded; None if that was not checked.
    decided_alike: bool | None = None
    difference: Difference | None = None


async def verify(log: EventLog, *, pin: Pin | None = None, decisions: bool = False) -> Findings:
    """Read the whole log; raise LogCorrupt with the first bad position if anything is wrong.

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
            # A different decision does not make the log corrupt, so the rest is checked as well.
            walk = _Walk(pin, await log.latest_snapshot())
            await _walk_whole(log, walk)
            walk.findings.decided_alike = False
            walk.findings.difference = differs.difference
    else:
        await _walk_whole(log, walk)
    findings = walk.outcome()
    if pin is not None and findings.last_position < pin.position:
        raise LogCorrupt(findings.last_position + 1, f"is missing, up to {pin.position} at least")
    return findings


async def survey(log: EventLog) -> Findings:
    """Count what a log contains. Only its hash chain and its order in time are checked."""
    walk = _Walk(None, None)
    if _lacks_beginning(log):
        await _walk_part(log, walk)
        return walk.outcome()
    _, digest, position = await beginning(log)
    while rows := await log.read(position, PAGE_ROWS):
        walk.see_rows(list(check_chain(rows, after=position, previous=digest)))
        position, digest = rows[-1].position, rows[-1].hash
    return walk.outcome()


def _lacks_beginning(log: EventLog) -> bool:
    return isinstance(log, ExportedLog) and log.first_position() > 1 and log.base is None


class _Walk:
    """The checks and counts of one pass over the log, page by page."""

    def __init__(self, pin: Pin | None, snapshot: StateSnapshot | None) -> None:
        self.findings = Findings()
        self._pins = [] if pin is None else [(pin, "the one that was noted")]
        self._snapshot = snapshot

    def outcome(self) -> Findings:
        """Return the findings, with the most frequent event types first."""
        findings = self.findings
        findings.types = dict(sorted(findings.types.items(), key=lambda item: -item[1]))
        return findings

    def expect(self, head: Head) -> None:
        self._pins.append((Pin(head.position, head.hash.hex()), "the head's"))

    @property
    def snapshot_at(self) -> int | None:
        return None if self._snapshot is None else self._snapshot.position

    def page_rows(self, position: int) -> int:
        """Return how many rows to read after `position`, so that a page ends at the snapshot."""
        ahead = 0 if self._snapshot is None else self._snapshot.position - position
        return min(PAGE_ROWS, ahead) if ahead > 0 else PAGE_ROWS

    def compare_snapshot(self, state: State | World) -> None:
        """Compare the snapshot with `state`, which is that of the snapshot's position."""
        assert self._snapshot is not None
        try:
            image = read_snapshot(self._snapshot)
        except SnapshotUnreadable:
            # A snapshot is a cache, and every reader ignores an unreadable one.
            return
        if state_hash(State(image)) != state_hash(state):
            raise LogCorrupt(state.position, "the snapshot taken here shows another state")
        self.findings.snapshot = state.position

    def see_rows(self, rows: Sequence[Row]) -> None:
        """Count rows whose hash chain is intact."""
        if not rows:
            return
        findings, first, last = self.findings, rows[0], rows[-1]
        if findings.first_at is None:
            findings.first_position, findings.first_at = first.position, first.at
        before = first.at if findings.last_at is None else findings.last_at
        for row in rows:
            if row.at < before:
                raise LogCorrupt(row.position, "it is earlier than the event before it")
            before = row.at
        for pin, whose in self._pins:
            if first.position <= pin.position <= last.position:
                digest = rows[pin.position - first.position].hash
                if not digest.hex().startswith(pin.hash):
                    raise LogCorrupt(pin.position, f"its hash is not {whose}")
        findings.events += len(rows)
        findings.last_position, findings.last_at = last.position, last.at
        findings.last_hash = last.hash.hex()
        findings.payload_bytes += sum(len(row.payload) for row in rows)
        for name, count in Counter([row.type for row in rows]).items():
            findings.types[name] = findings.types.get(name, 0) + count
        findings.jobs_submitted = findings.types.get(JobSubmitted.__name__, 0)


async def _walk_whole(log: EventLog, walk: _Walk, *, decide: bool = False) -> None:
    # Read first: the log may grow meanwhile, but it never shrinks. An export does not record where
    # the log ended.
    head = Head(0, GENESIS, 0) if isinstance(log, ExportedLog) else await log.head()
    walk.expect(head)
    world = await (_decided if decide else _folded)(log, walk)
    if world.position < head.position:
        raise LogCorrupt(world.position + 1, f"is missing: the log should end at {head.position}")
    _check_world(world, walk.findings)


async def _folded(log: EventLog, walk: _Walk) -> World:
    """Return the world at the log's end, folded from the events."""
    begun = await beginning(log)
    # The indexes of a world are built only at the end.
    state, digest = State(begun.world.image()), begun.hash
    while rows := await log.read(state.position, walk.page_rows(state.position)):
        try:
            digest = fold(state, rows, digest)
        except LogCorrupt as bad:
            # Check the rows before it first: they may contradict a pin or run back in time although
            # their hash chain is intact.
            walk.see_rows([row for row in rows if row.position < bad.position])
            raise
        walk.see_rows(rows)
        if state.position == walk.snapshot_at:
            walk.compare_snapshot(state)
    return World(state=state)


async def _decided(log: EventLog, walk: _Walk) -> World:
    """Return the world at the log's end, with every decision made again."""
    world, digest, _ = await beginning(log)
    verifier = DecisionVerifier(world, observe_at=walk.snapshot_at, observe=walk.compare_snapshot)
    position = world.position
    while rows := await log.read(position, PAGE_ROWS):
        verifier.take(map(from_row, check_chain(rows, after=position, previous=digest)))
        walk.see_rows(rows)
        position, digest = rows[-1].position, rows[-1].hash
    # An export may end anywhere, also in the middle of a step.
    verifier.finish(whole=not isinstance(log, ExportedLog))
    return world


def _check_world(world: World, findings: Findings) -> None:
    try:
        world.check()
    except AssertionError as error:
        raise LogCorrupt(world.position, f"the state does not hold together: {error}") from None
    findings.state_hash = state_hash(world)
    findings.jobs, findings.queues = len(world.jobs), len(world.queues)
    findings.nodes = sum(not node.removed for node in world.nodes.values())


async def _walk_part(log: EventLog, walk: _Walk) -> None:
    """Check an export that does not begin at position 1.

    Its first hash is taken on trust, since the export does not have the event before it.
    """
    rows = await log.read(0, 1)
    while rows:
        for row in rows:
            from_row(row)
        walk.see_rows(rows)
        position, previous = rows[-1].position, rows[-1].hash
        rows = await log.read(position, PAGE_ROWS)
        rows = list(check_chain(rows, after=position, previous=previous))
