"""One step of the engine: what it must decide, and what it has decided so far.

`StepInput` has the commands of a step. It survives a step that raised: the engine removes the
command or the job that raised and decides the rest again. `Step` applies each decision to the
world, which is ahead of the log until the step is appended, and collects events, replies and
effects.
"""

from collections.abc import Callable

from controlplane.decisions.autonomous import makes_room
from controlplane.decisions.isolation import APPLY, WANTED, Fault
from controlplane.lifecycle.draft import Decision
from controlplane.lifecycle.effects import Effect, Tidy, newly_wanted
from controlplane.lifecycle.job import Job
from controlplane.model import events as e
from controlplane.model.commands import AnyCommand, ReportError
from controlplane.model.errors import JobFault, Rejected
from controlplane.model.events import EVENT_TYPES
from controlplane.state.image import Receipt
from controlplane.state.world import World

# The result of a command: a receipt, a refusal, or None if the engine stopped before it was known.
Answer = Receipt | Rejected | None
Reply = Callable[[Answer], None]

_OF_JOBS = frozenset(kind for kind in EVENT_TYPES.values() if issubclass(kind, e.JobEvent))


class StepInput:
    """The commands of one step, and what is known of an attempt to decide them that raised."""

    def __init__(
        self, now: float, taken: list[tuple[AnyCommand, Reply | None]], *, makes_room: bool
    ) -> None:
        self.now = now
        self.taken = taken
        # All commands that were taken, including those that were removed since.
        self.waiting = list(taken)
        # The commands that arrived with them and are left for the next append.
        self.rest: list[tuple[AnyCommand, Reply | None]] = []
        # The step that this continues, and how many of its commands are recorded.
        self.continues: tuple[int, int] | None = None
        # Whether a scheduling pass is due in any case.
        self.makes_room = makes_room
        # Whether the step decides timers and scheduling, and whether it makes a scheduling pass.
        self.own = True
        self.passes = True
        # The event with which an engine starts, in its first step.
        self.started: e.EngineStarted | None = None
        # The answers to removed commands, and reports on jobs for which a pass raised.
        self.refused: list[tuple[Reply, Answer]] = []
        self.failing: list[ReportError] = []
        self.faults: list[tuple[Fault, Exception]] = []
        # The bug for which the engine stops after this step, and the fault that names its job.
        self.bug: Exception | None = None
        self.fault: Fault | None = None

    def keep_at_most(self, count: int) -> None:
        """Leave all commands but the first `count` to the next append."""
        self.rest = self.taken[count:]
        self.taken = self.taken[:count]
        self.waiting = list(self.taken)


class Step:
    """What is decided at one instant, ahead of the log."""

    __slots__ = (
        "_before",
        "_goes_on",
        "_world",
        "batch",
        "bug",
        "command",
        "commands",
        "fault",
        "faults",
        "job",
        "makes_room",
        "now",
        "number",
        "replies",
        "where",
    )

    def __init__(self, world: World, now: float, number: int, commands: int) -> None:
        self.now = now
        self.number = number
        # The number of commands of the step that have recorded events.
        self.commands = commands
        self.batch: list[e.Recorded] = []
        self.replies: list[tuple[Reply, Answer]] = []
        # Whether a scheduling pass may decide more than the last one did.
        self.makes_room = False
        self._world = world
        self._before: dict[str, Job | None] = {}
        # Whether any job has an event other than its submission, which alone needs no effect.
        self._goes_on = False
        # The operation in progress, the job that it is for, and the index of the command.
        self.where = ""
        self.job = ""
        self.command: int | None = None
        # The errors that did not stop the engine, and the bug for which it stops after this step.
        self.faults: list[tuple[Fault, Exception]] = []
        self.bug: Exception | None = None
        self.fault: Fault | None = None

    def doing(self, where: str, job: str) -> None:
        """Note the operation in progress and its job, for the record of an error."""
        self.where, self.job = where, job

    def record(self, decided: Decision, command: AnyCommand | None = None) -> None:
        """Apply a decision to the world; `command` caused it, or the step itself if None.

        Raises JobFault if applying an event of a job raises.
        """
        world, now = self._world, self.now
        events, job = decided.events, decided.outcome
        if job is not None:
            self._before.setdefault(job.id, world.jobs[job.id])
            self._goes_on = True
        else:
            for event in events:
                if isinstance(event, e.JobSubmitted):
                    self._before.setdefault(event.job, None)
                elif type(event) in _OF_JOBS:
                    job_id: str = event.job  # type: ignore[attr-defined]
                    self._before.setdefault(job_id, world.jobs.get(job_id))
                    self._goes_on = True
        name = cause = actor = ""
        ordinal = 0
        if command is not None and events:
            name, cause, actor = type(command).__name__, command.id, command.actor
            self.commands = ordinal = self.commands + 1
        batch = [
            e.Recorded(position, now, event, cause, actor, name, self.number, ordinal)
            for position, event in enumerate(events, world.position + 1)
        ]
        try:
            world.apply_together(batch, job)
        except Exception as error:
            event = events[min(world.position - batch[0].position + 1, len(events) - 1)]
            self.where = f"{APPLY} {type(event).__name__}"
            if isinstance(event, e.JobEvent):
                raise JobFault(event.job, error) from error
            self.job = ""
            raise
        if not self.makes_room:
            self.makes_room = makes_room(world, events)
        self.batch += batch

    def effects(self, blame: Callable[[Job, str, Exception], None]) -> list[Effect]:
        """The effects that jobs want now and did not want before this step.

        `blame` is called with each job for which this raises, the operation and the error.
        """
        effects: list[Effect] = []
        if not self._goes_on:
            return effects
        for job_id, before in self._before.items():
            job = self._world.jobs.get(job_id)
            if job is None:
                if before is not None and before.attempt is not None:
                    effects.append(Tidy(job_id, None))
                continue
            try:
                effect = newly_wanted(before, job)
            except Exception as error:  # noqa: BLE001 - fails this job alone
                blame(job, WANTED, error)
                continue
            if effect is not None:
                effects.append(effect)
        return effects
