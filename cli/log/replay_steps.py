"""Stepping through a log: each event with its changes and its cause, forwards or backwards."""

from collections.abc import Iterator

import msgspec

from cli.output.times import stamp
from controlplane.audit.recorded_commands import is_input
from controlplane.event_messages import describe
from controlplane.lifecycle.job import Job
from controlplane.model import events as e
from controlplane.state.world import World


class Steps(msgspec.Struct, frozen=True):
    """A filter of events: those of one job, of one node, or all."""

    job: str | None = None
    node: str | None = None

    def concern(self, world: World, event: e.Event) -> bool:
        """Return whether `event` passes the filter; `world` has already applied it."""
        if self.job is not None and not self._is_job(world, event):
            return False
        return self.node is None or self._is_on_node(world, event)

    def _is_job(self, world: World, event: e.Event) -> bool:
        if not isinstance(event, e.JobEvent):
            return False
        job = world.jobs.get(event.job)
        names = {event.job} if job is None else {event.job, job.name, f"{job.namespace}/{job.name}"}
        return self.job in names

    def _is_on_node(self, world: World, event: e.Event) -> bool:
        if isinstance(event, e.NodeEvent):
            return event.node == self.node
        if not isinstance(event, e.JobEvent):
            return False
        job = world.jobs.get(event.job)
        slots = () if job is None or job.attempt is None else job.attempt.placement
        return any(slot.node == self.node for slot in slots)


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One event as it is shown. `changes` are the differences between before and after."""

    position: int
    at: float
    type: str
    subject: str
    text: str
    why: str
    changes: list[str]
    phase_before: str | None
    phase_after: str | None

    def line(self) -> str:
        who = f"{self.subject}: " if self.subject else ""
        phase = (
            f"  [{self.phase_before} -> {self.phase_after}]"
            if self.phase_before and self.phase_after and self.phase_before != self.phase_after
            else ""
        )
        changes = f"  ({'; '.join(self.changes)})" if self.changes else ""
        why = f" ({self.why})" if self.why.startswith("asked") else ""
        why = why or (f"  <- {self.why}" if self.why else "")
        return f"{self.position:>6}  {stamp(self.at)}  {who}{self.text}{phase}{changes}{why}"


class Stepper:
    """Applies events to a world one by one, and returns those that pass the filter."""

    def __init__(self, world: World, steps: Steps) -> None:
        self.world = world
        self._steps = steps
        self._names: dict[str, str] = {}
        self._last_input: tuple[int, float] = (0, float("-inf"))

    def hear(self, recorded: e.Recorded) -> Step | None:
        """Apply the event; return its step, or None if the filter drops it."""
        event = recorded.event
        before = self._job(event)
        free = self.world.devices.free.total
        why = self._why(recorded)
        self.world.apply(recorded)
        after = self._job(event)
        if not self._concerns(before, event):
            return None
        return Step(
            position=recorded.position,
            at=recorded.at,
            type=type(event).__name__,
            subject=self._subject(event),
            text=describe(event),
            why=why,
            changes=list(_changes(before, after, free, self.world.devices.free.total)),
            phase_before=None if before is None else before.phase.value,
            phase_after=None if after is None else after.phase.value,
        )

    def _concerns(self, before: Job | None, event: e.Event) -> bool:
        if self._steps.concern(self.world, event):
            return True
        # A job that was just removed is no longer in the world.
        if not isinstance(event, e.JobRemoved) or before is None or self._steps.node is not None:
            return False
        return self._steps.job in (before.name, f"{before.namespace}/{before.name}")

    def _job(self, event: e.Event) -> Job | None:
        return self.world.jobs.get(event.job) if isinstance(event, e.JobEvent) else None

    def _subject(self, event: e.Event) -> str:
        if not isinstance(event, e.JobEvent):
            return ""
        job = self.world.jobs.get(event.job)
        if job is not None:
            self._names[event.job] = f"{job.namespace}/{job.name}"
        return self._names.get(event.job, event.job)

    def _why(self, recorded: e.Recorded) -> str:
        """Return the actor; or, for a decision, the event or the timer that caused it."""
        if is_input(recorded):
            self._last_input = recorded.position, recorded.at
        if recorded.actor or recorded.cause:
            return f"asked by {recorded.actor or recorded.cause}"
        if is_input(recorded):
            return ""
        position, at = self._last_input
        return f"event {position}" if at == recorded.at else "it was due"


def _changes(
    before: Job | None, after: Job | None, free_before: int, free_after: int
) -> Iterator[str]:
    if before is not None and after is not None:
        one, other = before.attempt, after.attempt
        if one is not None and other is not None and one.number == other.number:
            if one.up != other.up:
                yield f"{other.up} of {len(other.ranks)} ranks up"
            if one.with_devices != other.with_devices:
                yield f"{other.with_devices} hold devices"
        if len(after.restarts) > len(before.restarts):
            limit = after.spec.restart.limit
            yield f"{after.failures} of {'any number of' if limit is None else limit} retries used"
        if after.retry_at is not None and after.retry_at != before.retry_at:
            yield f"again at {stamp(after.retry_at)}"
    if free_before != free_after:
        yield f"{free_after} GPUs free"
