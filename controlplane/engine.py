"""The loop: commands in, events to the log, replies and effects out.

One step of the loop:

1. Take the whole inbox. Commands that arrive together are decided together and share one append;
   this is the group commit.
2. Decide the commands, and after each what follows for dependencies and owners of jobs; then the
   timers that are due; then make a scheduling pass if something may let it decide more. Every
   decision is applied to the world at once (`decisions/step.py`).
3. Append the events of the step to the log.
4. Send the replies, answer the questions, and request the effects that the step made necessary.

Four rules hold here:

1. Log first. No reply, effect or answer to a question leaves before the events behind it are in the
   log. Within a step the world is ahead of the log; between steps it never is.
2. Effects are derived from the state. A step requests what it changed. After a start, and every
   `resync_s` seconds, everything that any job wants is requested again.
3. Only ports are awaited, so asyncio and SimPy can both drive `run`.
4. A step is applied whole or not at all. If something raises within a step, the engine discards the
   world, reads it from the log again, and decides the step once more without the job that raised.
   `decisions/isolation.py` explains which errors fail a job and which stop the engine.

If the log refuses an append, or the engine meets a bug, `run` raises and this engine is finished.
Its supervisor makes another one, which reads the log.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from controlplane.decisions.autonomous import (
    leaves_room,
    next_due,
    next_workflow,
    one_pass,
    review,
    review_and_pass,
)
from controlplane.decisions.decider import decide, unfold
from controlplane.decisions.isolation import (
    DUE,
    SCHEDULE,
    WANTED,
    Fault,
    fault_of,
    original,
    platform_refusal,
    to_blame,
)
from controlplane.decisions.step import Answer, Reply, Step, StepInput
from controlplane.lifecycle.draft import Decision
from controlplane.lifecycle.effects import Effect, Survey, wanted
from controlplane.lifecycle.job import Job
from controlplane.log.replay import Rebuilt, rebuild
from controlplane.log.snapshots import SnapshotEncoder
from controlplane.model import events as e
from controlplane.model.commands import (
    AnyCommand,
    CancelJob,
    DeleteJob,
    QuarantineJob,
    ReportError,
    ReportRanks,
    SubmitJob,
)
from controlplane.model.commands import JobRequest as RequestOfJob
from controlplane.model.errors import JobFault, LogConflict, Rejected
from controlplane.ports import Clock, Cluster, EventLog
from controlplane.scheduling.cache import SchedulerCache
from controlplane.state.image import Receipt
from controlplane.state.queue_order import QueueKey
from controlplane.state.world import World
from controlplane.workflows.owners import next_subject

Question = Callable[[World | None], None]
# Receives every error that the engine survives or stops for: the recorded fault and the exception.
OnFault = Callable[[Fault, Exception], None]

# A step with more commands is appended in several parts.
COMMANDS_PER_APPEND_MAX = 1_000


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Settings of one engine."""

    release: str = "0.1.0"
    # Seconds between two requests of everything that jobs want; None requests it only at a start.
    resync_s: float | None = 60.0
    # Number of events between two snapshots; None takes no snapshots.
    snapshot_every: int | None = 100_000
    # Whether the engine continues between two steps of another engine: it records no start, and
    # decides nothing before an input arrives. Used by forks of the past.
    carries_on: bool = False
    # The address of this control plane's API, for processes that follow its log.
    address: str = ""


class Engine:
    """One control plane on one log. Make a new one after `run` has ended."""

    def __init__(
        self,
        clock: Clock,
        log: EventLog,
        cluster: Cluster,
        options: EngineOptions | None = None,
        on_recorded: Callable[[Sequence[e.Recorded]], None] | None = None,
        begin: Rebuilt | None = None,
        on_fault: OnFault = lambda fault, error: None,
    ) -> None:
        """Make an engine that does nothing before `run`.

        `begin` is a world that has followed the log so far; from here on the engine owns it.
        `on_recorded` receives the events of each step once they are in the log, and `on_fault`
        every error that the engine survives or stops for. What `on_recorded` raises goes to
        `on_fault`.
        """
        self.world = World()
        self._cache = SchedulerCache()
        self._clock = clock
        self._log = log
        self._cluster = cluster
        self._options = options or EngineOptions()
        self._on_recorded = on_recorded
        self._on_fault = on_fault
        self._known = begin
        # The bug that stopped this engine, once it is recorded; None while there is none.
        self.fault: Fault | None = None
        self._inbox: list[tuple[AnyCommand, Reply | None]] = []
        # Commands of a step that is too large for one append; `_makes_room` is whether the part
        # decided so far calls for a scheduling pass.
        self._rest: list[tuple[AnyCommand, Reply | None]] = []
        self._rest_at = 0.0
        # The number of the step that `_rest` belongs to, and how many of its commands are recorded.
        self._rest_of = (0, 0)
        self._makes_room = False
        self._questions: list[Question] = []
        self._step: Step | None = None
        self._asked: StepInput | None = None
        self._leads = False
        self._stopped = False
        self._epoch = 0
        # The position at which the next snapshot is due.
        self._snapshot_due_at = self._after_snapshot(0)
        self._snapshot: SnapshotEncoder | None = None
        self._resync_at: float | None = None

    @property
    def leads(self) -> bool:
        """Whether the engine has read the log and accepts commands."""
        return self._leads

    def submit(self, command: AnyCommand, reply: Reply | None = None) -> None:
        """Put a command into the inbox.

        `reply` is called once the command's events are in the log, or with None if the engine has
        stopped or stops first.
        """
        if self._stopped:
            if reply is not None:
                reply(None)
            return
        # Wake the loop only when the inbox was empty: a step drains the whole inbox.
        if not self._inbox:
            self._clock.wake()
        self._inbox.append((command, reply))

    def ask(self, question: Question) -> None:
        """Call `question` with the world: now, or right after the step that is in progress.

        It is called with None if the engine has stopped or stops first.
        """
        if self._stopped:
            question(None)
        elif self._leads and self._step is None:
            question(self.world)
        else:
            self._questions.append(question)

    async def run(self) -> None:
        """Lead until the log refuses an append or a bug occurs, then raise that error."""
        try:
            await self._recover()
            while True:
                await self._clock.wait(self._next_wake())
                step = await self._decide_together(self._take())
                if step.batch:
                    await self._log.append(step.batch, epoch=self._epoch)
                self._answer(step)
                if step.bug is not None:
                    self.fault = step.fault
                    raise step.bug
                if self._resync_at is not None and self._clock.now() >= self._resync_at:
                    await self._ask_for_everything()
                elif effects := step.effects(self._blame):
                    await self._carry_out(effects)
                if self._snapshot is not None or self.world.position >= self._snapshot_due_at:
                    await self._go_on_with_snapshot()
        finally:
            self._leads = False
            self._stopped = True
            self._abandon()

    async def _recover(self) -> None:
        """Take the lead, read the log, record the start and request everything that jobs want."""
        head = await self._log.lead()
        # Read no further than the head: if another engine leads by now, the first append fails.
        known, self._known = self._known, None
        rebuilt = await rebuild(self._log, position=head.position, begin=known)
        if known is not None and rebuilt.hash != head.hash:
            # `begin` followed another log than the one that is led now: a backup has replaced it.
            rebuilt = await rebuild(self._log, position=head.position)
        self.world = rebuilt.world
        self._epoch = head.epoch
        # After a long tail the next snapshot is due early, so that the next start need not read it.
        self._snapshot_due_at = self._after_snapshot(rebuilt.since)
        await self._cluster.connect(self.submit)
        asked = StepInput(self._now(), [], makes_room=False)
        if self._options.carries_on:
            asked.own = False
        else:
            options, passes = self._options, self._leaves_room(asked.now)
            starts = e.EngineStarted(self._epoch, options.release, options.address, passes)
            asked.started = starts
        step = await self._decide_together(asked)
        if step.batch:
            await self._log.append(step.batch, epoch=self._epoch)
        if step.bug is not None:
            self._notify_observers(step)
            self.fault = step.fault
            raise step.bug
        self._leads = True
        self._answer(step)
        await self._ask_for_everything()

    def _leaves_room(self, now: float) -> bool:
        """Whether the start makes a scheduling pass; after an interrupted step it always does."""
        if any(job.stopped_engine for job in self.world.jobs.values()):
            return True
        try:
            return leaves_room(self.world, now, self._cache)
        except Exception:  # noqa: BLE001 - the pass raises too, and finds the job
            return True

    # -- a step ------------------------------------------------------------------------------

    async def _decide_together(self, asked: StepInput) -> Step:
        """Decide one step whole.

        A job for which something raises is left out of the step and fails. After a bug the step
        holds only what was asked, and the record of the bug.
        """
        self._asked = asked
        while True:
            try:
                step = self._decide_all(asked)
            except Exception as error:  # noqa: BLE001 - `_leave_out` finds the job
                assert self._step is not None
                await self._leave_out(asked, self._step, error)
            else:
                self._rest, self._rest_at = asked.rest, asked.now
                self._rest_of = step.number, step.commands
                self._makes_room = bool(asked.rest) and (asked.makes_room or step.makes_room)
                return step

    def _decide_all(self, asked: StepInput) -> Step:
        """Decide the commands and workflows, then timers, schedulability and which gangs start."""
        step = self._begin(asked)
        if asked.started is not None:
            step.record(Decision([asked.started]))
            step.makes_room = asked.started.passes
        for number, (command, reply) in enumerate(asked.taken):
            step.command = number
            answer = self._decide(step, command)
            if reply is not None:
                step.replies.append((reply, answer))
            if asked.own and asked.bug is None:
                # Before the next command, which may remove a job that others depend on.
                self._decide_workflows(step)
        step.command = None
        step.replies += asked.refused
        step.faults += asked.faults
        for failing in asked.failing:
            self._decide(step, failing)
        if asked.bug is not None and asked.fault is not None:
            self._record_bug(step, asked.bug, asked.fault)
            return step
        # Timers and scheduling come after all commands that arrived together.
        if not asked.own or asked.rest:
            return step
        self._decide_what_is_due(step)
        if not asked.passes:
            return step
        self._review(step)
        if asked.makes_room or step.makes_room:
            self._place_gangs(step)
        return step

    async def _leave_out(self, asked: StepInput, step: Step, error: Exception) -> None:
        """Discard the step, and change `asked` so that it can be decided; else raise."""
        await self._discard()
        cause = original(error)
        if asked.bug is not None:
            # Even the commands cannot be applied any more. Reply None, so that the callers may ask
            # again.
            if not asked.taken and not asked.failing:
                raise asked.bug
            asked.taken, asked.failing = [], []
            asked.refused = [(reply, None) for _, reply in asked.waiting if reply is not None]
            return
        if isinstance(error, JobFault):
            jobs = [error.job]
        elif step.job:
            jobs = [step.job]
        else:
            jobs = await self._blamed(asked) if step.where == SCHEDULE else []
        if not jobs:
            raise error
        faults = [fault_of(cause, job, step.where) for job in jobs]
        asked.faults += [(fault, cause) for fault in faults]
        known = {failing.job for failing in asked.failing}
        if step.command is not None:
            command, reply = asked.taken.pop(step.command)
            if reply is not None:
                asked.refused.append((reply, self._refusal(step, faults[0], cause)))
            if isinstance(command, SubmitJob):
                # The log does not know the job, so nothing is wrong without it.
                return
        if step.where != SCHEDULE or isinstance(cause, AssertionError) or known & set(jobs):
            asked.bug, asked.fault = cause, faults[0]
            return
        asked.failing += [_report_of(fault) for fault in faults]

    async def _discard(self) -> None:
        """Read the world from the log again. Raises LogConflict if another engine leads by now."""
        head = await self._log.head()
        if head.epoch != self._epoch:
            raise LogConflict(f"epoch {head.epoch} leads, and this one was {self._epoch}")
        self.world = (await rebuild(self._log, position=head.position)).world

    async def _blamed(self, asked: StepInput) -> list[str]:
        """Return the ids of the jobs whose data makes a scheduling pass raise."""
        asked.passes = False
        self._decide_all(asked)
        asked.passes = True
        image = self.world.image()
        await self._discard()
        return to_blame(
            image,
            asked.now,
            review_and_pass,
            lambda world, job, now: decide(world, ReportError(job=job, where="", error=""), now),
        )

    def _record_bug(self, step: Step, bug: Exception, fault: Fault) -> None:
        """Record the bug; a job that stops an engine twice in the same way is quarantined."""
        step.bug, step.fault = bug, fault
        job = self.world.jobs.get(fault.job)
        if job is None:
            return
        again = job.stopped_engine == fault.input
        step.record(Decision([e.EngineFailed(job.id, self._epoch, *fault[1:])]))
        if again:
            quarantine = QuarantineJob(**fault._asdict())
            step.record(decide(self.world, quarantine, step.now), quarantine)

    def _take(self) -> StepInput:
        """Take the commands of the inbox for one step.

        A step with more than COMMANDS_PER_APPEND_MAX commands is decided and appended in parts, all
        at the same instant. Its timers and its scheduling pass come with the last part. Commands
        that arrive meanwhile wait for the next step.
        """
        if self._rest:
            asked = StepInput(self._rest_at, self._rest, makes_room=self._makes_room)
            asked.continues, self._rest = self._rest_of, []
        else:
            asked = StepInput(self._now(), self._inbox, makes_room=False)
            self._inbox = []
        asked.keep_at_most(COMMANDS_PER_APPEND_MAX)
        if asked.rest or self._inbox:
            self._clock.wake()
        return asked

    def _now(self) -> float:
        # Time in the log never goes backwards, even if the clock does.
        return max(self._clock.now(), self.world.at)

    def _begin(self, asked: StepInput) -> Step:
        number, commands = asked.continues or (self.world.step + 1, 0)
        self._step = Step(self.world, asked.now, number, commands)
        return self._step

    def _decide(self, step: Step, command: AnyCommand) -> Answer:
        world, cause = self.world, command.id
        known = world.receipts.get(cause) if cause else None
        if known is not None:
            return known
        first: e.Event | None = None
        try:
            for part in unfold(world, command):
                decided = self._decide_part(step, part)
                if decided.events:
                    step.record(decided, part)
                    first = first or decided.events[0]
        except Rejected as refusal:
            return refusal
        if first is None:
            # A command that changed nothing leaves no receipt, and may be sent again.
            return Receipt(world.position, "")
        return world.receipts[cause] if cause else Receipt(world.position, first.stream)

    def _decide_part(self, step: Step, part: AnyCommand) -> Decision:
        """Decide one unfolded command; an error that concerns one job fails that job, not the step.

        `decide` changes nothing, so the world is intact after an error.
        """
        step.doing(f"decide {type(part).__name__}", _job_of(self.world, part))
        try:
            return decide(self.world, part, step.now)
        except Rejected:
            raise
        except Exception as error:
            cause = original(error)
            job = error.job if isinstance(error, JobFault) else step.job
            if isinstance(part, SubmitJob):
                raise self._refusal(step, fault_of(cause, job, step.where), cause) from error
            # A quarantined job has already failed, so its errors stop nothing more.
            is_bug = isinstance(cause, AssertionError) and job not in self.world.phases.quarantined
            if not job or is_bug:
                raise
            fault = fault_of(cause, job, step.where)
        is_request = isinstance(part, RequestOfJob)
        if not is_request or isinstance(part, _ENDS):
            self._fail_job(
                step, fault, cause, must=not is_request and type(part) is not ReportRanks
            )
        if is_request:
            raise self._refusal(step, fault, cause) from cause
        # A report on this job alone is dropped; any other is decided for the remaining jobs.
        return Decision([]) if type(part) is ReportRanks else self._decide_part(step, part)

    def _refusal(self, step: Step, fault: Fault, cause: Exception) -> Rejected:
        if (fault, cause) not in step.faults:
            step.faults.append((fault, cause))
        return platform_refusal(cause)

    def _fail_job(self, step: Step, fault: Fault, cause: Exception, *, must: bool) -> None:
        """Fail the job that an error concerns. If it `must` fail and cannot, the error is a bug."""
        step.faults.append((fault, cause))
        report = _report_of(fault)
        decided = decide(self.world, report, step.now)
        if decided.events:
            step.record(decided, report)
        elif must:
            raise JobFault(fault.job, cause)

    def _decide_workflows(self, step: Step) -> None:
        """Decide what follows for owners of jobs, and for jobs with dependencies."""
        while subject := next_subject(self.world, step.now):
            step.doing(DUE, subject)
            try:
                decided = next_workflow(self.world, step.now)
            except Exception as error:
                cause = original(error)
                concerned = error.job if isinstance(error, JobFault) else subject
                if isinstance(cause, AssertionError) and concerned in self.world.jobs:
                    raise
                self._fail_job(step, fault_of(cause, concerned, DUE), cause, must=True)
            else:
                step.record(decided)

    def _decide_what_is_due(self, step: Step) -> None:
        self._decide_workflows(step)
        while (job := self.world.next_due(step.now)) is not None:
            step.doing(DUE, job.id)
            try:
                decided = next_due(self.world, step.now)
            except AssertionError:
                raise
            except Exception as error:  # noqa: BLE001 - fails this job alone
                self._fail_job(step, fault_of(error, job.id, DUE), error, must=True)
            else:
                step.record(decided)
            self._decide_workflows(step)
        step.doing(DUE, "")
        if (cycle := next_due(self.world, step.now)).events:
            step.record(cycle)

    def _review(self, step: Step) -> None:
        step.doing(SCHEDULE, "")
        for decided in review(self.world, step.now, self._cache):
            step.record(decided)

    def _place_gangs(self, step: Step) -> None:
        step.doing(SCHEDULE, "")
        for decided in one_pass(self.world, step.now, self._cache):
            step.record(decided)

    def _answer(self, step: Step) -> None:
        """Send replies and answer questions: the step is in the log, so the world may be read."""
        self._step = self._asked = None
        self._notify_observers(step)
        for reply, answer in step.replies:
            self._shielded("reply", lambda reply=reply, answer=answer: reply(answer))  # type: ignore[misc]
        if self._questions:
            questions, self._questions = self._questions, []
            for question in questions:
                self._shielded("ask", lambda question=question: question(self.world))  # type: ignore[misc]

    def _notify_observers(self, step: Step) -> None:
        """Pass the step's faults and events to the observers; their errors change nothing."""
        for fault, error in step.faults:
            self._on_fault(fault, error)
        if step.batch and self._on_recorded is not None:
            on_recorded = self._on_recorded
            self._shielded("on_recorded", lambda: on_recorded(step.batch))

    def _shielded(self, where: str, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:  # noqa: BLE001 - no observer may stop the engine
            self._on_fault(fault_of(error, "", where), error)

    # -- effects -----------------------------------------------------------------------------

    async def _ask_for_everything(self) -> None:
        """Request the effects of all live jobs, and a survey of the nodes."""
        effects: list[Effect] = [Survey(self.world.jobs.get)]
        placed: list[tuple[tuple[float, QueueKey], Effect]] = []
        for job in map(self.world.jobs.__getitem__, self.world.devices.live):
            try:
                effect = wanted(job)
                assert effect is not None, job
                placed.append((self._placed(job), effect))
            except Exception as error:  # noqa: BLE001 - fails this job alone
                self._blame(job, WANTED, error)
        effects += [effect for _, effect in sorted(placed, key=lambda each: each[0])]
        if self._options.resync_s is not None:
            self._resync_at = self._clock.now() + self._options.resync_s
        await self._carry_out(effects)

    async def _carry_out(self, effects: Sequence[Effect]) -> None:
        """Pass the effects to the cluster; one that raises fails its job, and the others stay.

        Repeated effects are harmless, so after an error each effect is requested alone.
        """
        try:
            await self._cluster.carry_out(effects)
        except Exception as error:  # noqa: BLE001 - then each effect is tried alone
            if len(effects) == 1:
                self._not_carried_out(effects[0], error)
                return
            for effect in effects:
                try:
                    await self._cluster.carry_out([effect])
                except Exception as single:  # noqa: BLE001 - likewise
                    self._not_carried_out(effect, single)

    def _not_carried_out(self, effect: Effect, error: Exception) -> None:
        where = f"carry_out {type(effect).__name__}"
        if not isinstance(effect, Survey):
            job = effect.job
            if job is not None:
                self._blame(job, where, error)
                return
            self._on_fault(fault_of(error, effect.job_id, where), error)
        elif self._options.resync_s is None:
            # Without a resync nothing would request the survey again.
            raise error
        else:
            self._on_fault(fault_of(error, "", where), error)

    def _blame(self, job: Job, where: str, error: Exception) -> None:
        """Submit the failure of a job for which something raised outside a step."""
        fault = fault_of(error, job.id, where)
        self._on_fault(fault, error)
        attempt = 0 if job.attempt is None else job.attempt.number
        self.submit(_report_of(fault, attempt))

    def _placed(self, job: Job) -> tuple[float, QueueKey]:
        """Sort key for the order of placement, in which a recovered cluster lists its jobs."""
        assert job.attempt is not None
        return job.attempt.placed_at, self.world.waiting.key_of(job)

    async def _go_on_with_snapshot(self) -> None:
        """Encode one frame of the snapshot in progress, or begin the next snapshot.

        A large world takes long to encode, and no command should wait for all of it.
        """
        if self._snapshot is None:
            position = self.world.position
            self._snapshot_due_at = self._after_snapshot(position)
            head = await self._log.head()
            # A head at a later position belongs to another leader; its hash is not that of this
            # state.
            if head.position != position:
                return
            self._snapshot = SnapshotEncoder(self.world, head.hash)
        if (done := self._snapshot.encode_more()) is None:
            self._clock.wake()
        else:
            self._snapshot = None
            await self._log.save_snapshot(done)

    def _after_snapshot(self, position: int) -> float:
        every = self._options.snapshot_every
        return float("inf") if every is None else position + every

    def _next_wake(self) -> float | None:
        due_at, resync_at = self.world.next_deadline(), self._resync_at
        if due_at is None or resync_at is None:
            return resync_at if due_at is None else due_at
        return min(due_at, resync_at)

    def _abandon(self) -> None:
        """Reply None to every command and question that is still open."""
        asked = self._asked
        under_way = [] if asked is None else [*asked.waiting, *asked.rest]
        for _, maybe in (*under_way, *self._rest, *self._inbox):
            if maybe is not None:
                maybe(None)
        for question in self._questions:
            question(None)
        self._rest.clear()
        self._inbox.clear()
        self._questions.clear()


def _report_of(fault: Fault, attempt: int = 0) -> ReportError:
    return ReportError(attempt=attempt, **fault._asdict())


# Requests that end a job: if deciding one raises, the job fails.
_ENDS = (CancelJob, DeleteJob)


def _job_of(world: World, command: AnyCommand) -> str:
    """Return the id of the job that a command is about; empty for no job or several."""
    if isinstance(command, ReportRanks | ReportError | QuarantineJob | SubmitJob):
        return command.job
    if isinstance(command, RequestOfJob):
        return world.names.ids.get((command.namespace, command.name), "")
    return ""
