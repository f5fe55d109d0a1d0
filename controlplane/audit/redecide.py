"""Verify that the current code decides from a log's inputs what the log records.

A log is a sequence of engine steps, and the envelope of an event has the number of its step. A step
has this shape, of which any part may be missing:

    EngineStarted      the first event of an engine
    commands           the events of each command, in the order in which they were decided; after each
                       of them what follows for dependencies and owners of jobs
    EngineFailed       the engine stops for a bug: nothing else follows but a quarantine of the job
    timers             everything that is due, job by job; a timer that raises is a ReportError
    review             which waiting jobs could not start even on an empty cluster
    scheduling pass    only if an event of the step may let a pass decide more (`makes_room`)

`DecisionVerifier` goes through a step in that order. It reads each command from its events
(`recorded_commands`), decides it on the world as it was, and compares the decision with the record:
events, command, cause and actor. Then it decides timers, review and pass, and compares them too. A
step is complete when its last event is recorded, so a decision that the log does not have is a
difference as well. Only the last step of a log that was cut, which ends with the log or before an
engine's start, may lack its end.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from controlplane.audit.recorded_commands import command_of
from controlplane.decisions.autonomous import (
    makes_room,
    next_due,
    next_workflow,
    one_pass,
    review,
)
from controlplane.decisions.decider import decide
from controlplane.lifecycle.draft import Decision
from controlplane.lifecycle.job import Job
from controlplane.log.codec import from_row
from controlplane.log.hash_chain import check_chain
from controlplane.log.replay import PAGE_ROWS, beginning
from controlplane.model import commands as c
from controlplane.model import events as e
from controlplane.model.errors import JobFault, LogCorrupt, Rejected
from controlplane.model.values import Value
from controlplane.ports import LogReader
from controlplane.scheduling.cache import SchedulerCache
from controlplane.state.world import World

# How many events of each version a difference shows, and how much of an error's text.
SHOWN_MAX = 3
TEXT_LENGTH_MAX = 200

_REPORT_ERROR = c.ReportError.__name__

OTHER = "today's code decides something else"
MORE = "the step ends here, but today's code decides more"
UNASKED = "nothing asks for this decision: nothing is due, and nothing has made room"


class EventShown(Value, frozen=True):
    """An event with the name of its type."""

    type: str
    # An event; encoded with the fields that its type has.
    event: Any


class Difference(Value, frozen=True):
    """The first place where the current code decides otherwise than the log, and both versions."""

    position: int
    at: float
    why: str
    # What the log has from here on in this step, and what the current code decides; at most
    # SHOWN_MAX events each.
    recorded: tuple[EventShown, ...]
    decided: tuple[EventShown, ...]


class Differs(Exception):
    """Raised at the first difference."""

    def __init__(self, difference: Difference) -> None:
        super().__init__(difference)
        self.difference = difference


class DecisionVerifier:
    """Verifies a log, in pieces of any size, and raises Differs at the first difference.

    `world` is the state before the first event; it must be between two steps, and belongs to the
    verifier from here on. `observe` is called with it at the position `observe_at`.
    """

    def __init__(
        self,
        world: World,
        *,
        observe_at: int | None = None,
        observe: Callable[[World], None] = lambda world: None,
    ) -> None:
        self.world = world
        self._cache = SchedulerCache()
        self._observe_at = observe_at
        self._observe = observe
        # The events of the latest step, which may not be complete.
        self._pending: list[e.Recorded] = []

    def take(self, events: Iterable[e.Recorded]) -> None:
        """Verify every complete step; keep the last one until its end is known."""
        for recorded in events:
            if self._pending and recorded.step != self._pending[0].step:
                # A killed process may have left a step without its end.
                self._verify(whole=type(recorded.event) is not e.EngineStarted)
            self._pending.append(recorded)

    def finish(self, *, whole: bool = True) -> None:
        """Verify the last step. It is not `whole` if the log may have been cut within it."""
        if self._pending:
            self._verify(whole=whole)

    def _verify(self, *, whole: bool) -> None:
        events, self._pending = self._pending, []
        self._check_envelopes(events)
        step = _Step(self.world, self._cache, events, self._apply, whole=whole)
        try:
            step.verify()
        except (AssertionError, LookupError, TypeError, ValueError, JobFault) as error:
            text = str(error)[:TEXT_LENGTH_MAX]
            why = f"today's code fails here: {type(error).__name__}: {text}"
            raise Differs(step.difference((), why)) from error

    def _check_envelopes(self, events: Sequence[e.Recorded]) -> None:
        """Raise LogCorrupt unless the step has the next number and one time that is not earlier."""
        first, expected = events[0], self.world.step + 1
        if first.step != expected:
            message = f"step {expected} is expected here, but this is step {first.step}"
            raise LogCorrupt(first.position, message)
        at = self.world.at
        for recorded in events:
            if recorded.at < at:
                raise LogCorrupt(recorded.position, "it is earlier than the event before it")
            if recorded.at != first.at:
                raise LogCorrupt(recorded.position, "it has another time than the rest of its step")
            at = recorded.at

    def _apply(self, batch: Sequence[e.Recorded], job: Job | None) -> None:
        world, observe_at = self.world, self._observe_at
        if observe_at is None or not batch[0].position <= observe_at <= batch[-1].position:
            world.apply_together(batch, job)
            return
        for recorded in batch:
            world.apply(recorded)
            if recorded.position == observe_at:
                self._observe(world)


class _Step:
    """One step, and how far it is verified: the events before `index` are."""

    def __init__(
        self,
        world: World,
        cache: SchedulerCache,
        events: Sequence[e.Recorded],
        apply: Callable[[Sequence[e.Recorded], Job | None], None],
        *,
        whole: bool,
    ) -> None:
        self.world = world
        self._cache = cache
        self.events = events
        self.now = events[0].at
        self.index = 0
        self._apply = apply
        self._whole = whole
        self._ordinal = 0
        # Whether some event may let a scheduling pass decide more.
        self._room = False
        # An engine that stops for a bug decides nothing in this step but commands.
        self._stops = any(isinstance(x.event, e.EngineFailed) for x in events)

    def verify(self) -> None:
        """Decide the step again and compare it with the log. Raises Differs or LogCorrupt."""
        first = self.events[0].event
        if isinstance(first, e.EngineStarted):
            self._accept(Decision([first]))
            self._room = first.passes
        self._commands()
        if self._failed():
            return
        while (due := next_due(self.world, self.now)).events:
            if not self._expect(due, "this was due and was not done"):
                return
            self._commands()
        for decided in review(self.world, self.now, self._cache):
            if not self._expect(decided, "what could start was not looked at"):
                return
        if self._room:
            for decided in one_pass(self.world, self.now, self._cache):
                if not self._expect(decided, "there was room for this"):
                    return
        if self.index < len(self.events):
            raise Differs(self.difference((), UNASKED))

    def _commands(self) -> None:
        """Decide the commands whose events come next, and what follows from each of them."""
        while self.index < len(self.events) and self.events[self.index].command:
            self._command()
            if not self._stops:
                self._workflows()

    def _workflows(self) -> None:
        """Decide what follows for dependencies and owners; an error there is recorded as a command."""
        while self.index < len(self.events) and self.events[self.index].command != _REPORT_ERROR:
            follows = next_workflow(self.world, self.now)
            if not follows.events:
                return
            self._expect(follows, "this follows from the command and was not done")

    def _command(self) -> None:
        self._ordinal += 1
        first = self.events[self.index]
        if first.ordinal != self._ordinal:
            message = f"command {self._ordinal} of the step is expected here, not {first.ordinal}"
            raise LogCorrupt(first.position, message)
        recorded = [x for x in self.events[self.index :] if x.ordinal == first.ordinal]
        try:
            command = command_of(self.world, recorded)
        except LookupError as error:
            message = f"the events of {first.command} do not record it: {error}"
            raise LogCorrupt(first.position, message) from error
        if command.id and command.id in self.world.receipts:
            why = f"the command {command.id} was answered before"
            raise Differs(self.difference((), why))
        try:
            decided = decide(self.world, command, self.now)
        except Rejected as refusal:
            why = f"today this is refused ({refusal.code}): {refusal.message}"
            raise Differs(self.difference((), why)) from None
        if not decided.events:
            raise Differs(self.difference((), "today this command decides nothing"))
        self._expect(decided, MORE, command)

    def _failed(self) -> bool:
        """Whether the step ends without timers and scheduling.

        An engine that stops for a bug leaves its step unfinished, and so does an operator who
        quarantines a job in a log that no engine leads.
        """
        if self.index < len(self.events):
            event = self.events[self.index].event
            if isinstance(event, e.EngineFailed):
                self._accept(Decision([event]))
                self._commands()
        ends = self.index == len(self.events)
        return ends and any(type(x.event) in _UNFINISHED for x in self.events)

    def _expect(self, decided: Decision, why: str, command: c.AnyCommand | None = None) -> bool:
        """Compare a decision with the next events of the log, and apply it.

        Return False if the log ends before it and may have been cut. Raises Differs if the log has
        other events, with `why` if it has no more.
        """
        kind, cause, actor, ordinal = "", "", "", 0
        if command is not None:
            kind, cause, actor = type(command).__name__, command.id, command.actor
            ordinal = self._ordinal
        start = self.index
        for index, event in enumerate(decided.events, start):
            rest = decided.events[index - start :]
            if index == len(self.events):
                if self._whole:
                    raise Differs(self.difference(rest, why if index == start else MORE, index))
                break
            recorded = self.events[index]
            if recorded.event != event:
                raise Differs(self.difference(rest, OTHER, index))
            envelope = recorded.command, recorded.cause, recorded.actor, recorded.ordinal
            if envelope != (kind, cause, actor, ordinal):
                asked = f"{kind or 'the step itself'} {cause}".strip()
                message = f"it should be caused by {asked}, requested by {actor or 'no one'}"
                raise Differs(self.difference(rest, message, index))
        if start < len(self.events):
            self._accept(decided)
        return self.index < len(self.events) or self.index == start + len(decided.events)

    def _accept(self, decided: Decision) -> None:
        """Apply a decision, as far as the log has it."""
        count = len(decided.events)
        batch = self.events[self.index : self.index + count]
        try:
            self._apply(batch, decided.outcome if len(batch) == count else None)
        except (AssertionError, LookupError) as error:
            message = f"this cannot have happened: {error}"
            raise LogCorrupt(self.world.position + 1, message) from error
        self._room = self._room or makes_room(self.world, decided.events[: len(batch)])
        self.index += len(batch)

    def difference(
        self, decided: Sequence[e.Event], why: str, index: int | None = None
    ) -> Difference:
        """The difference at an event of the step, or right after its last one."""
        here = self.index if index is None else index
        position = self.events[0].position + here
        recorded = [x.event for x in self.events[here:]]
        return Difference(position, self.now, why, _shown(recorded), _shown(decided))


_UNFINISHED = (e.EngineFailed, e.JobQuarantined)


def _shown(events: Sequence[e.Event]) -> tuple[EventShown, ...]:
    return tuple(EventShown(type(event).__name__, event) for event in events[:SHOWN_MAX])


async def redecide(log: LogReader, *, whole: bool = True) -> Difference | None:
    """The first difference in a log or a bundle, or None. Raises LogCorrupt if it was changed.

    It is not `whole` if its last step may have been cut off.
    """
    world, digest, _ = await beginning(log)
    verifier, position = DecisionVerifier(world), world.position
    try:
        while rows := await log.read(position, PAGE_ROWS):
            verifier.take(map(from_row, check_chain(rows, after=position, previous=digest)))
            position, digest = rows[-1].position, rows[-1].hash
        verifier.finish(whole=whole)
    except Differs as differs:
        return differs.difference
    return None
