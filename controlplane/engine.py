"""The loop: commands in, events to the log, replies and effects out.

Laws that hold here:

1. Log first. No reply, no effect and no answer to a question leaves before the events behind it
   are in the log. Inside a step the world runs ahead of the log, outside a step it never does.
2. Effects are read off the state. What a step changed is asked for; after a start, or when
   `resync_s` has passed, everything that any job wants is asked for again.
3. Only ports are awaited, so asyncio and SimPy can both drive `run`.

4. Inside a step the world is applied whole or not at all. When something raises in the middle of a step
   the world is discarded, read from the log again, and the step is decided once more without the job that
   raised. `faults.py` says which errors fail a job, and which stop the engine.

If the log refuses, or a bug is met, `run` raises and this engine is finished: whoever started it makes
another one, which reads the log. All that arrive together are decided together and share one append, which
is all the group commit there is.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from controlplane import events as e
from controlplane.codec import EVENT_TYPES
from controlplane.commands import (
    AnyCommand,
    CancelJob,
    DeleteJob,
    QuarantineJob,
    ReportError,
    ReportRanks,
    SubmitJob,
)
from controlplane.commands import JobRequest as RequestOfJob
from controlplane.decider import decide, unfold
from controlplane.draft import Decided
from controlplane.effects import Effect, Survey, Tidy, newly_wanted, wanted
from controlplane.errors import LogConflict, Rejected
from controlplane.faults import (
    APPLY,
    DUE,
    SCHEDULE,
    WANTED,
    Fault,
    JobFault,
    fault_of,
    original,
    platform_refusal,
    to_blame,
)
from controlplane.image import Receipt
from controlplane.initiative import (
    leaves_room,
    makes_room,
    next_due,
    one_pass,
    review,
    review_and_pass,
)
from controlplane.job import Job
from controlplane.lines import Waiting
from controlplane.ports import Clock, Cluster, EventLog
from controlplane.replay import Rebuilt, SnapshotInSlices, rebuild
from controlplane.world import World

# What a command comes to: a receipt, a refusal, or None when the engine stopped before it was known.
Answer = Receipt | Rejected | None
Reply = Callable[[Answer], None]
Question = Callable[[World | None], None]
# Gets every error that the engine has outlived or stops for: as it is recorded, and itself.
OnFault = Callable[[Fault, Exception], None]

COMMANDS_PER_STEP_MAX = 1_000

_OF_JOBS = frozenset(kind for kind in EVENT_TYPES.values() if issubclass(kind, e.JobEvent))


@dataclass(frozen=True, slots=True)
class EngineOptions:
    release: str = "0.1.0"
    # How often everything wanted is asked for again; None leaves it to starts alone.
    resync_s: float | None = 60.0
    # After how many events a snapshot is taken; None means never.
    snapshot_every: int | None = 100_000
    # Whether it takes over between two steps of another engine, as if it were the same one: it
    # records no start, and decides nothing before something happens. For forks of the past.
    carries_on: bool = False
    # Where this control plane answers, for those who follow its log.
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
        """`begin` is a world that has followed the log so far; it is the engine's from here on."""
        self.world = World()
        self._clock = clock
        self._log = log
        self._cluster = cluster
        self._options = options or EngineOptions()
        self._on_recorded = on_recorded
        self._on_fault = on_fault
        self._known = begin
        # The bug that this engine stopped for, once it is recorded; None while there is none.
        self.fault: Fault | None = None
        self._inbox: list[tuple[AnyCommand, Reply | None]] = []
        # What came together and was too much for one step, and whether what was decided of it so
        # far calls for a scheduling pass.
        self._rest: list[tuple[AnyCommand, Reply | None]] = []
        self._rest_at = 0.0
        self._makes_room = False
        self._questions: list[Question] = []
        self._step: _Step | None = None
        self._asked: _Asked | None = None
        self._leads = False
        self._stopped = False
        self._epoch = 0
        # The position from which on it is time for the next snapshot.
        self._snapshot_due_at = self._after_snapshot(0)
        self._snapshot: SnapshotInSlices | None = None
        self._resync_at: float | None = None

    @property
    def leads(self) -> bool:
        """Whether it has read the log and takes commands."""
        return self._leads

    def submit(self, command: AnyCommand, reply: Reply | None = None) -> None:
        """Hands a command in; `reply` is called once its events are in the log."""
        if self._stopped:
            if reply is not None:
                reply(None)
            return
        # Whoever comes first rings; a step takes all who are in, so nobody else need.
        if not self._inbox:
            self._clock.wake()
        self._inbox.append((command, reply))

    def ask(self, question: Question) -> None:
        """Calls `question` with the world when no step is under way: now, or right after it.

        It is called with None if the engine has stopped or stops first.
        """
        if self._stopped:
            question(None)
        elif self._leads and self._step is None:
            question(self.world)
        else:
            self._questions.append(question)

    async def run(self) -> None:
        """Leads until the log refuses or a bug is met, and then raises that."""
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
        """Takes the lead, reads the log, and asks for all that is wanted."""
        head = await self._log.lead()
        # Not further than the head: should another one lead by now, the first append will tell.
        known, self._known = self._known, None
        rebuilt = await rebuild(self._log, position=head.position, begin=known)
        if known is not None and rebuilt.hash != head.hash:
            # It followed another log than the one that is led now: a backup was put in its place.
            rebuilt = await rebuild(self._log, position=head.position)
        self.world = rebuilt.world
        self._epoch = head.epoch
        # Who had to read a long tail spares the next one from it.
        self._snapshot_due_at = self._after_snapshot(rebuilt.since)
        await self._cluster.connect(self.submit)
        asked = _Asked(self._now(), [], makes_room=False)
        if self._options.carries_on:
            asked.own = False
        else:
            options, passes = self._options, self._leaves_room(asked.now)
            starts = e.EngineStarted(self._epoch, options.release, options.address, passes, e.RULES)
            asked.started = starts
        step = await self._decide_together(asked)
        if step.batch:
            await self._log.append(step.batch, epoch=self._epoch)
        if step.bug is not None:
            self._tell(step)
            self.fault = step.fault
            raise step.bug
        self._leads = True
        self._answer(step)
        await self._ask_for_everything()

    def _leaves_room(self, now: float) -> bool:
        """Whether a start makes a scheduling pass: where a step before was cut off it always does."""
        if any(job.stopped_engine for job in self.world.jobs.values()):
            return True
        try:
            return leaves_room(self.world, now)
        except Exception:  # noqa: BLE001 - the pass itself will raise, and it is found out for whom
            return True

    # -- a step ------------------------------------------------------------------------------

    async def _decide_together(self, asked: "_Asked") -> "_Step":
        """One step, decided whole. What raises for one job is left out of it, and fails that job;
        after a bug the step holds only what was asked, and what is recorded of the bug."""
        self._asked = asked
        while True:
            try:
                step = self._decide_all(asked)
            except Exception as error:  # noqa: BLE001 - whose it is decides what becomes of it
                assert self._step is not None
                await self._leave_out(asked, self._step, error)
            else:
                self._rest, self._rest_at = asked.rest, asked.now
                self._makes_room = bool(asked.rest) and (asked.makes_room or step.makes_room)
                return step

    def _decide_all(self, asked: "_Asked") -> "_Step":
        """All that is in, then what is due, then who could start at all, then who starts."""
        step = self._begin(asked.now)
        if asked.started is not None:
            step.record(Decided([asked.started]))
            step.makes_room = asked.started.passes
        for number, (command, reply) in enumerate(asked.taken):
            step.command = number
            answer = self._decide(step, command)
            if reply is not None:
                step.replies.append((reply, answer))
        step.command = None
        step.replies += asked.refused
        step.faults += asked.faults
        for failing in asked.failing:
            self._decide(step, failing)
        if asked.bug is not None and asked.fault is not None:
            self._record_bug(step, asked.bug, asked.fault)
            return step
        if not asked.own:
            return step
        self._decide_what_is_due(step)
        if not asked.passes:
            return step
        # Who is next is asked once all are in that came together.
        if asked.rest:
            return step
        self._review(step)
        if asked.makes_room or step.makes_room:
            self._place_gangs(step)
        return step

    async def _leave_out(self, asked: "_Asked", step: "_Step", error: Exception) -> None:
        """Discards the step, and changes what was asked so that it can be decided; else raises."""
        await self._discard()
        cause = original(error)
        if asked.bug is not None:
            # Even what was asked cannot be taken in any more; those who asked may ask again.
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
                # The log does not know the job, so without it there is nothing wrong.
                return
        if step.where != SCHEDULE or isinstance(cause, AssertionError) or known & set(jobs):
            asked.bug, asked.fault = cause, faults[0]
            return
        asked.failing += [_report_of(fault) for fault in faults]

    async def _discard(self) -> None:
        """The world as the log has it. Raises LogConflict if another engine leads by now."""
        head = await self._log.head()
        if head.epoch != self._epoch:
            raise LogConflict(f"epoch {head.epoch} leads, and this one was {self._epoch}")
        self.world = (await rebuild(self._log, position=head.position)).world

    async def _blamed(self, asked: "_Asked") -> list[str]:
        """Whose data makes a scheduling pass raise."""
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

    def _record_bug(self, step: "_Step", bug: Exception, fault: Fault) -> None:
        """The second time that a job stops an engine in the same way, it is quarantined."""
        step.bug, step.fault = bug, fault
        job = self.world.jobs.get(fault.job)
        if job is None:
            return
        again = job.stopped_engine == fault.input
        step.record(Decided([e.EngineFailed(job.id, self._epoch, *fault[1:])]))
        if again:
            step.record(decide(self.world, QuarantineJob(**fault._asdict()), step.now))

    def _take(self) -> "_Asked":
        """What is in the inbox, for one step.

        What is too much for one step is left to the next ones, which are of the same instant, and
        whatever comes in meanwhile waits behind it.
        """
        now = self._now()
        if self._rest:
            now, taken, self._rest = self._rest_at, self._rest, []
        else:
            taken, self._inbox = self._inbox, []
            if len(taken) <= COMMANDS_PER_STEP_MAX:
                return _Asked(now, taken, makes_room=self._makes_room)
        asked = _Asked(now, taken[:COMMANDS_PER_STEP_MAX], makes_room=self._makes_room)
        asked.rest = taken[COMMANDS_PER_STEP_MAX:]
        if asked.rest or self._inbox:
            self._clock.wake()
        return asked

    def _now(self) -> float:
        # Time in the log never runs backwards, whatever the clock does.
        return max(self._clock.now(), self.world.at)

    def _begin(self, now: float) -> "_Step":
        self._step = _Step(self.world, now)
        return self._step

    def _decide(self, step: "_Step", command: AnyCommand) -> Answer:
        world, cause = self.world, command.id
        known = world.receipts.get(cause) if cause else None
        if known is not None:
            return known
        first: e.Event | None = None
        try:
            for part in unfold(world, command):
                decided = self._decide_part(step, part)
                if decided.events:
                    step.record(decided, cause, command.actor)
                    first = first or decided.events[0]
        except Rejected as refusal:
            return refusal
        if first is None:
            # A command that changed nothing leaves no receipt behind, and may be asked again.
            return Receipt(world.position, "")
        return world.receipts[cause] if cause else Receipt(world.position, first.stream)

    def _decide_part(self, step: "_Step", part: AnyCommand) -> Decided:
        """As `decide`, but an error that concerns one job fails that job and not the step.

        `decide` changes nothing, so the world is as good as before.
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
            # A job that is quarantined already has nothing more to lose, and stops nothing more.
            is_bug = isinstance(cause, AssertionError) and job not in self.world.quarantined
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
        # A report on this job alone is dropped; any other is decided for the jobs that are left.
        return Decided([]) if type(part) is ReportRanks else self._decide_part(step, part)

    def _refusal(self, step: "_Step", fault: Fault, cause: Exception) -> Rejected:
        if (fault, cause) not in step.faults:
            step.faults.append((fault, cause))
        return platform_refusal(cause)

    def _fail_job(self, step: "_Step", fault: Fault, cause: Exception, *, must: bool) -> None:
        """Fails the job that an error concerns. If it `must` and cannot, the error is a bug."""
        step.faults.append((fault, cause))
        decided = decide(self.world, _report_of(fault), step.now)
        if decided.events:
            step.record(decided)
        elif must:
            raise JobFault(fault.job, cause)

    def _decide_what_is_due(self, step: "_Step") -> None:
        while (job := self.world.next_due(step.now)) is not None:
            step.doing(DUE, job.id)
            try:
                decided = next_due(self.world, step.now)
            except AssertionError:
                raise
            except Exception as error:  # noqa: BLE001 - it concerns this job, and fails it
                self._fail_job(step, fault_of(error, job.id, DUE), error, must=True)
            else:
                step.record(decided)
        step.doing(DUE, "")
        if (cycle := next_due(self.world, step.now)).events:
            step.record(cycle)

    def _review(self, step: "_Step") -> None:
        step.doing(SCHEDULE, "")
        for decided in review(self.world, step.now):
            step.record(decided)

    def _place_gangs(self, step: "_Step") -> None:
        step.doing(SCHEDULE, "")
        for decided in one_pass(self.world, step.now):
            step.record(decided)

    def _answer(self, step: "_Step") -> None:
        """The step is in the log: the world may be seen again."""
        self._step = self._asked = None
        self._tell(step)
        for reply, answer in step.replies:
            self._shielded("reply", lambda reply=reply, answer=answer: reply(answer))  # type: ignore[misc]
        if self._questions:
            questions, self._questions = self._questions, []
            for question in questions:
                self._shielded("ask", lambda question=question: question(self.world))  # type: ignore[misc]

    def _tell(self, step: "_Step") -> None:
        """Lets observers see what is in the log; what they raise changes nothing."""
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
        effects: list[Effect] = [Survey(self.world.jobs.get)]
        placed: list[tuple[tuple[float, Waiting], Effect]] = []
        for job in map(self.world.jobs.__getitem__, self.world.live):
            try:
                effect = wanted(job)
                assert effect is not None, job
                placed.append((self._placed(job), effect))
            except Exception as error:  # noqa: BLE001 - it concerns this job, and fails it
                self._blame(job, WANTED, error)
        effects += [effect for _, effect in sorted(placed, key=lambda each: each[0])]
        if self._options.resync_s is not None:
            self._resync_at = self._clock.now() + self._options.resync_s
        await self._carry_out(effects)

    async def _carry_out(self, effects: Sequence[Effect]) -> None:
        """Hands the effects to the cluster. One that raises fails its job; the others are not lost.

        To be asked twice is harmless, so after an error each effect is asked for by itself.
        """
        try:
            await self._cluster.carry_out(effects)
        except Exception as error:  # noqa: BLE001 - whose it is decides what becomes of it
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
            # Nobody would ask again.
            raise error
        else:
            self._on_fault(fault_of(error, "", where), error)

    def _blame(self, job: Job, where: str, error: Exception) -> None:
        """Something raised for a job outside of a step: its failure is an input of the next one."""
        fault = fault_of(error, job.id, where)
        self._on_fault(fault, error)
        attempt = 0 if job.attempt is None else job.attempt.number
        self.submit(_report_of(fault, attempt))

    def _placed(self, job: Job) -> tuple[float, Waiting]:
        """Orders jobs as they were placed: a cluster that took them over then lists them alike."""
        assert job.attempt is not None
        return job.attempt.placed_at, self.world.place_in_line(job)

    async def _go_on_with_snapshot(self) -> None:
        """Makes a slice of the snapshot that is under way, or begins the next one.

        A large world takes long to encode, and nobody should wait for all of it.
        """
        if self._snapshot is None:
            position = self.world.position
            self._snapshot_due_at = self._after_snapshot(position)
            head = await self._log.head()
            # A head that is further on is another leader's; its hash is not that of our state.
            if head.position != position:
                return
            self._snapshot = SnapshotInSlices(self.world, head.hash)
        if (done := self._snapshot.go_on()) is None:
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
        """Nobody is left waiting for an answer that will not come."""
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


# Requests that end a job: if they raise, it ends all the same.
_ENDS = (CancelJob, DeleteJob)


def _job_of(world: World, command: AnyCommand) -> str:
    """The job that a command is about; empty if it is about none, or about several."""
    if isinstance(command, ReportRanks | ReportError | QuarantineJob | SubmitJob):
        return command.job
    if isinstance(command, RequestOfJob):
        return world.ids.get((command.namespace, command.name), "")
    return ""


class _Asked:
    """What one step has to decide. It outlives a step that is discarded."""

    def __init__(
        self, now: float, taken: list[tuple[AnyCommand, Reply | None]], *, makes_room: bool
    ) -> None:
        self.now = now
        self.taken = taken
        # All that were taken, also those that were left out since.
        self.waiting = list(taken)
        # What came with them and is left to the next steps.
        self.rest: list[tuple[AnyCommand, Reply | None]] = []
        # Whether a scheduling pass is due whatever is decided.
        self.makes_room = makes_room
        # Whether anything is decided that was not asked for, and whether there is a pass.
        self.own = True
        self.passes = True
        # An engine begins with this step.
        self.started: e.EngineStarted | None = None
        # Commands that were left out, with their answers; and jobs that a pass raised for.
        self.refused: list[tuple[Reply, Answer]] = []
        self.failing: list[ReportError] = []
        self.faults: list[tuple[Fault, Exception]] = []
        # The bug for which the engine stops after this step, and whose it is.
        self.bug: Exception | None = None
        self.fault: Fault | None = None


class _Step:
    """What is being decided at one instant, ahead of the log."""

    __slots__ = (
        "_before",
        "_goes_on",
        "_world",
        "batch",
        "bug",
        "command",
        "fault",
        "faults",
        "job",
        "makes_room",
        "now",
        "replies",
        "where",
    )

    def __init__(self, world: World, now: float) -> None:
        self.now = now
        self.batch: list[e.Recorded] = []
        self.replies: list[tuple[Reply, Answer]] = []
        # Whether a scheduling pass may find more to do than the last one did.
        self.makes_room = False
        self._world = world
        self._before: dict[str, Job | None] = {}
        # Whether anything happened to a job but that it came in, which by itself asks for nothing.
        self._goes_on = False
        # What is being done, for which job, and which of the commands it is.
        self.where = ""
        self.job = ""
        self.command: int | None = None
        # What raised and was outlived; and the bug for which the engine stops after this step.
        self.faults: list[tuple[Fault, Exception]] = []
        self.bug: Exception | None = None
        self.fault: Fault | None = None

    def doing(self, where: str, job: str) -> None:
        self.where, self.job = where, job

    def record(self, decided: Decided, cause: str = "", actor: str = "") -> None:
        """Takes in what was decided on the world as it is."""
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
        position, batch = world.position, list[e.Recorded]()
        for event in events:
            position += 1
            batch.append(e.Recorded(position, now, event, cause, actor))
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
        """What jobs want now and did not want before this step; `blame` gets what raised instead."""
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
            except Exception as error:  # noqa: BLE001 - it concerns this job, and fails it
                blame(job, WANTED, error)
                continue
            if effect is not None:
                effects.append(effect)
        return effects
