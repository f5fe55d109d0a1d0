"""Whether today's code decides from a log's inputs what the log says was decided.

Inputs are read back as commands (`recalling`) and decided again; whatever else the log says must be
what was due, or what a scheduling pass gives, on the world at that point. What lies at one instant
is one or more steps of an engine, whose borders the log does not show. A step decides its commands,
then all that is due, then which waiting jobs could start at all, then makes one scheduling pass if
something made room. So when time moves on nothing may be left undone.
"""

from collections.abc import Callable, Iterable, Sequence

from controlplane import events as e
from controlplane.chain import follows
from controlplane.codec import check_chain, from_row
from controlplane.collector import collector_at_rest
from controlplane.decider import decide
from controlplane.difference import Difference, Said
from controlplane.draft import Decided
from controlplane.errors import LogCorrupt, Rejected
from controlplane.faults import JobFault
from controlplane.folding import recorded_in
from controlplane.initiative import makes_room, next_due, one_pass, review
from controlplane.job import Job
from controlplane.ports import LogReader, PageReader
from controlplane.recalling import candidates
from controlplane.replay import PAGE_ROWS, beginning
from controlplane.world import World

SHOWN_MAX = 3
TOLD_MAX = 200

OTHER = "today's code decides something else"
MORE = "time moves on here, but today's code decides more"


# An engine that stops because of a bug leaves its step unfinished, as does an operator who quarantines a
# job in a log that no engine leads.
_CUTS = (e.EngineFailed, e.JobQuarantined)


class Differs(Exception):
    def __init__(self, difference: Difference) -> None:
        super().__init__(difference)
        self.difference = difference


class Redecider:
    """Takes a log in, in pieces of any size, and raises Differs at the first difference.

    `world` is the state before the first event; it must stand between two instants, as the
    beginning of a log does, and is the redecider's from here on. `look` is called with it when it
    stands at the position `look_at`.
    """

    def __init__(
        self,
        world: World,
        *,
        look_at: int | None = None,
        look: Callable[[World], None] = lambda world: None,
    ) -> None:
        self.world = world
        self._look_at = look_at
        self._look = look
        # Where a log was cut, an instant may have lost its end.
        self._whole = True
        # What has happened at the latest instant: more of it may still come.
        self._pending: list[e.Recorded] = []
        # Whether something has made room since the last pass, and whether a pass came last.
        self._room = False
        self._passed = False

    def take(self, events: Iterable[e.Recorded]) -> None:
        pending = self._pending
        now = pending[0].at if pending else None
        for recorded in events:
            if recorded.at != now:
                if pending:
                    # What follows a cut is a new engine; an engine leaves nothing half done.
                    self._whole = type(recorded.event) is not e.EngineStarted
                    self._instant(pending)
                    pending.clear()
                now = recorded.at
            pending.append(recorded)

    def finish(self, *, whole: bool = True) -> None:
        """The log ends here. It is not `whole` if its last step may have been cut off."""
        self._whole = whole
        if self._pending:
            self._instant(self._pending)
            self._pending.clear()

    # -- one instant -------------------------------------------------------------------------

    def _instant(self, events: Sequence[e.Recorded]) -> None:
        now = events[0].at
        if now < self.world.at:
            raise LogCorrupt(events[0].position, "it is earlier than the event before it")
        index, end = 0, len(events)
        if any(type(recorded.event) in _CUTS for recorded in events):
            self._whole = False
        try:
            while index < end:
                index = self._next(events, index, now)
            self._nothing_is_left(events[-1].position + 1, now)
        except (AssertionError, LookupError, TypeError, ValueError, JobFault) as error:
            why = f"today's code fails here: {type(error).__name__}: {str(error)[:TOLD_MAX]}"
            raise Differs(_differ(events, index, (), why)) from error

    def _next(self, events: Sequence[e.Recorded], first: int, now: float) -> int:
        """Takes in what belongs together from here on; returns where the next begins."""
        world, recorded = self.world, events[first]
        if isinstance(recorded.event, e.EngineFailed):
            return self._accept(events, first, Decided([recorded.event]))
        if isinstance(recorded.event, e.EngineStarted):
            room = self._room
            index = self._accept(events, first, Decided([recorded.event]))
            self._room = room or recorded.event.passes
            return index
        closest: Difference | None = None
        for command in candidates(world, events, first):
            if command.id and command.id in world.receipts:
                why = f"the command {command.id} was answered before"
                closest = _nearer(closest, _differ(events, first, (), why))
                continue
            try:
                decided = decide(world, command, now)
            except Rejected as refusal:
                why = f"today this is refused ({refusal.code}): {refusal.message}"
                closest = _nearer(closest, _differ(events, first, (), why))
                continue
            difference = self._compare(events, first, decided.events, command.id, command.actor)
            if difference is None:
                return self._accept(events, first, decided)
            closest = _nearer(closest, difference)
        return self._own(events, first, now, closest)

    def _accept(self, events: Sequence[e.Recorded], first: int, decided: Decided) -> int:
        """Takes in what was found to be decided alike, as far as the log has it."""
        # A command that decides nothing leaves nothing behind; something recorded came of this one.
        assert decided.events, events[first]
        batch = events[first : first + len(decided)]
        try:
            self._apply(batch, decided.outcome if len(batch) == len(decided) else None)
        except (AssertionError, LookupError) as error:
            told = f"this cannot have happened: {error}"
            raise LogCorrupt(self.world.position + 1, told) from error
        if not self._room:
            self._room = makes_room(self.world, decided.events[: len(batch)])
        self._passed = False
        return first + len(batch)

    def _apply(self, batch: Sequence[e.Recorded], job: Job | None) -> None:
        world, look_at = self.world, self._look_at
        if look_at is None or not batch[0].position <= look_at <= batch[-1].position:
            world.apply_together(batch, job)
            return
        for recorded in batch:
            world.apply(recorded)
            if recorded.position == look_at:
                self._look(world)

    # -- what was decided without being asked ------------------------------------------------

    def _own(
        self, events: Sequence[e.Recorded], first: int, now: float, closest: Difference | None
    ) -> int:
        overdue = next_due(self.world, now)
        if overdue.events:
            difference = self._compare(events, first, overdue.events, "", "")
            if difference is None:
                return self._accept(events, first, overdue)
            raise Differs(closest or difference)
        index = self._review(events, first, now, closest)
        if index > first:
            return index
        if closest is None or self._room:
            return self._pass(events, first, now, closest)
        raise Differs(closest)

    def _review(
        self, events: Sequence[e.Recorded], first: int, now: float, closest: Difference | None
    ) -> int:
        index = first
        for decided in review(self.world, now):
            difference = self._compare(events, index, decided.events, "", "")
            if difference is not None:
                raise Differs(closest if closest and index == first else difference)
            if index == len(events):
                break
            index = self._accept(events, index, decided)
        return index

    def _pass(
        self, events: Sequence[e.Recorded], first: int, now: float, closest: Difference | None
    ) -> int:
        if not self._room:
            why = "nothing asks for this decision: nothing is due, and nothing has made room"
            raise Differs(_differ(events, first, (), why))
        index = first
        for decided in one_pass(self.world, now):
            difference = self._compare(events, index, decided.events, "", "")
            if difference is not None:
                raise Differs(closest if closest and index == first else difference)
            if index == len(events):
                break
            index = self._accept(events, index, decided)
        if index == first:
            why = "a scheduling pass decides nothing here"
            raise Differs(closest or _differ(events, first, (), why))
        self._room, self._passed = False, True
        return index

    def _nothing_is_left(self, position: int, now: float) -> None:
        """What a pass has made due at once is left to the next step, whenever that comes."""
        if not self._whole:
            self._room = self._passed = False
            return
        if not self._passed and (overdue := next_due(self.world, now)).events:
            raise Differs(
                _left_undone(position, now, overdue.events, "this was due and was not done")
            )
        if not self._passed and (undone := next(review(self.world, now), None)) is not None:
            why = "what could start was not looked at"
            raise Differs(_left_undone(position, now, undone.events, why))
        if self._room:
            undone = next(one_pass(self.world, now), None)
            if undone is not None:
                raise Differs(_left_undone(position, now, undone.events, "there was room for this"))
        self._room = self._passed = False

    def _compare(
        self,
        events: Sequence[e.Recorded],
        first: int,
        decided: Sequence[e.Event],
        cause: str,
        actor: str,
    ) -> Difference | None:
        """Whether the log goes on at `first` with what was decided, caused by the same command."""
        end = len(events)
        for index, event in enumerate(decided, first):
            if index >= end:
                if not self._whole:
                    return None
                return _differ(events, index, decided[index - first :], MORE)
            recorded = events[index]
            if recorded.event != event:
                return _differ(events, index, decided[index - first :], OTHER)
            if recorded.cause != cause or recorded.actor != actor:
                why = f"it should be caused by {cause or 'nothing'}, asked by {actor or 'nobody'}"
                return _differ(events, index, decided[index - first :], why)
        return None


def _differ(
    events: Sequence[e.Recorded], index: int, decided: Sequence[e.Event], why: str
) -> Difference:
    here = events[min(index, len(events) - 1)]
    position = here.position + max(0, index - len(events) + 1)
    recorded = _said([x.event for x in events[index : index + SHOWN_MAX]])
    return Difference(position, here.at, why, recorded, _said(decided))


def _said(events: Sequence[e.Event]) -> tuple[Said, ...]:
    return tuple(Said(type(event).__name__, event) for event in events[:SHOWN_MAX])


def _left_undone(position: int, now: float, undone: Sequence[e.Event], why: str) -> Difference:
    return Difference(position, now, why, (), _said(undone))


def _nearer(one: Difference | None, other: Difference) -> Difference:
    """Of two readings of the same events, the one that explains more of them."""
    return other if one is None or other.position > one.position else one


async def redecide(log: LogReader, *, whole: bool = True) -> Difference | None:
    """The first difference in a log or a bundle, or None; raises LogCorrupt if it was changed.

    It is not `whole` if its last step may have been cut off.
    """
    world, digest, _ = await beginning(log)
    redecider, position = Redecider(world), world.position
    with collector_at_rest():
        try:
            while True:
                events, upto, digest = await _read_on(log, position, digest)
                if upto == position:
                    break
                redecider.take(events)
                position = upto
            redecider.finish(whole=whole)
        except Differs as differs:
            return differs.difference
    return None


async def _read_on(
    log: LogReader, after: int, digest: bytes
) -> tuple[Iterable[e.Recorded], int, bytes]:
    """The events that follow, each checked before it is believed, and the last one's position and hash.

    Pages are taken as far as all is right with them. What is wrong with the next, its rows will say,
    when those before it have been looked at.
    """
    found: list[e.Recorded] = []
    if isinstance(log, PageReader):
        try:
            for page in await log.read_pages(after, PAGE_ROWS):
                if page.after != after or not follows(page, digest):
                    break
                found += recorded_in(page)
                after, digest = page.last, page.hash
        except LogCorrupt:
            pass
    if found:
        return found, after, digest
    rows = await log.read(after, PAGE_ROWS)
    if not rows:
        return (), after, digest
    events = map(from_row, check_chain(rows, after=after, previous=digest))
    return events, rows[-1][0], rows[-1][8]
