"""The loop: commands in, events to the log, replies and effects out.

Laws that hold here:

1. Log first. No reply, no effect and no answer to a question leaves before the events behind it
   are in the log. Inside a step the world runs ahead of the log, outside a step it never does.
2. Effects are read off the state. What a step changed is asked for; after a start, or when
   `resync_s` has passed, everything that any job wants is asked for again.
3. Only ports are awaited, so asyncio and SimPy can both drive `run`.

If the log refuses, `run` raises and this engine is finished: whoever started it makes another one,
which reads the log. All that arrive together are decided together and share one append, which is
all the group commit there is.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from controlplane import events as e
from controlplane.codec import EVENT_TYPES
from controlplane.commands import AnyCommand
from controlplane.decider import decide, unfold
from controlplane.draft import Decided
from controlplane.effects import Effect, Survey, Tidy, newly_wanted, wanted
from controlplane.errors import Rejected
from controlplane.image import Receipt
from controlplane.initiative import MAKES_ROOM, leaves_room, next_due, one_pass
from controlplane.job import Job
from controlplane.lines import Waiting
from controlplane.ports import Clock, Cluster, EventLog
from controlplane.replay import Rebuilt, SnapshotInSlices, rebuild
from controlplane.world import World

# What a command comes to: a receipt, a refusal, or None when the engine stopped before it was known.
Answer = Receipt | Rejected | None
Reply = Callable[[Answer], None]
Question = Callable[[World | None], None]

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
    ) -> None:
        """`begin` is a world that has followed the log so far; it is the engine's from here on."""
        self.world = World()
        self._clock = clock
        self._log = log
        self._cluster = cluster
        self._options = options or EngineOptions()
        self._on_recorded = on_recorded
        self._known = begin
        self._inbox: list[tuple[AnyCommand, Reply | None]] = []
        # What came together and was too much for one step, and whether what was decided of it so
        # far calls for a scheduling pass.
        self._rest: list[tuple[AnyCommand, Reply | None]] = []
        self._rest_at = 0.0
        self._makes_room = False
        self._questions: list[Question] = []
        self._step: _Step | None = None
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
        """Leads until the log refuses, and then raises what the log said."""
        try:
            await self._recover()
            while True:
                await self._clock.wait(self._next_wake())
                step = self._decide_all()
                if step.batch:
                    await self._log.append(step.batch, epoch=self._epoch)
                self._answer(step)
                if self._resync_at is not None and self._clock.now() >= self._resync_at:
                    await self._ask_for_everything()
                elif effects := step.effects():
                    await self._cluster.carry_out(effects)
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
        step = self._begin()
        if not self._options.carries_on:
            options = self._options
            passes = leaves_room(self.world, step.now)
            started = e.EngineStarted(self._epoch, options.release, options.address, passes)
            step.record(Decided([started]))
            step.makes_room = passes
            self._decide_what_is_due(step)
            if step.makes_room:
                self._place_gangs(step)
        if step.batch:
            await self._log.append(step.batch, epoch=self._epoch)
        self._leads = True
        self._answer(step)
        await self._ask_for_everything()

    def _decide_all(self) -> "_Step":
        """One step: all that is in, then what is due, then who starts."""
        step, taken = self._take()
        for command, reply in taken:
            answer = self._decide(step, command)
            if reply is not None:
                step.replies.append((reply, answer))
        self._decide_what_is_due(step)
        if self._rest:
            # Who is next is asked once all are in that came together.
            self._makes_room = self._makes_room or step.makes_room
        elif self._makes_room or step.makes_room:
            self._makes_room = False
            self._place_gangs(step)
        return step

    def _take(self) -> "tuple[_Step, list[tuple[AnyCommand, Reply | None]]]":
        """A step with what is in the inbox.

        What is too much for one step is left to the next ones, which are of the same instant, and
        whatever comes in meanwhile waits behind it.
        """
        step = self._begin()
        if not self._rest:
            taken, self._inbox = self._inbox, []
            if len(taken) <= COMMANDS_PER_STEP_MAX:
                return step, taken
            self._rest = taken
        else:
            step.now = self._rest_at
        taken, self._rest = self._rest[:COMMANDS_PER_STEP_MAX], self._rest[COMMANDS_PER_STEP_MAX:]
        self._rest_at = step.now
        if self._rest or self._inbox:
            self._clock.wake()
        return step, taken

    def _begin(self) -> "_Step":
        # Time in the log never runs backwards, whatever the clock does.
        self._step = _Step(self.world, max(self._clock.now(), self.world.at))
        return self._step

    def _decide(self, step: "_Step", command: AnyCommand) -> Answer:
        world, cause = self.world, command.id
        known = world.receipts.get(cause) if cause else None
        if known is not None:
            return known
        first: e.Event | None = None
        try:
            for part in unfold(world, command):
                decided = decide(world, part, step.now)
                if decided.events:
                    step.record(decided, cause, command.actor)
                    first = first or decided.events[0]
        except Rejected as refusal:
            return refusal
        if first is None:
            # A command that changed nothing leaves no receipt behind, and may be asked again.
            return Receipt(world.position, "")
        return world.receipts[cause] if cause else Receipt(world.position, first.stream)

    def _decide_what_is_due(self, step: "_Step") -> None:
        while (decided := next_due(self.world, step.now)).events:
            step.record(decided)

    def _place_gangs(self, step: "_Step") -> None:
        for decided in one_pass(self.world, step.now):
            step.record(decided)

    def _answer(self, step: "_Step") -> None:
        """The step is in the log: the world may be seen again."""
        self._step = None
        if step.batch and self._on_recorded is not None:
            self._on_recorded(step.batch)
        for reply, answer in step.replies:
            reply(answer)
        if self._questions:
            questions, self._questions = self._questions, []
            for question in questions:
                question(self.world)

    async def _ask_for_everything(self) -> None:
        effects: list[Effect] = [Survey(self.world.jobs.get)]
        for job in sorted(map(self.world.jobs.__getitem__, self.world.live), key=self._placed):
            effect = wanted(job)
            assert effect is not None
            effects.append(effect)
        if self._options.resync_s is not None:
            self._resync_at = self._clock.now() + self._options.resync_s
        await self._cluster.carry_out(effects)

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
        unanswered = [] if self._step is None else self._step.replies
        for reply, _ in unanswered:
            reply(None)
        for _, maybe in (*self._rest, *self._inbox):
            if maybe is not None:
                maybe(None)
        for question in self._questions:
            question(None)
        self._rest.clear()
        self._inbox.clear()
        self._questions.clear()


class _Step:
    """What is being decided at one instant, ahead of the log."""

    __slots__ = ("_before", "_goes_on", "_world", "batch", "makes_room", "now", "replies")

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
            if type(event) in MAKES_ROOM:
                self.makes_room = True
        world.apply_together(batch, job)
        self.batch += batch

    def effects(self) -> list[Effect]:
        """What jobs want now and did not want before this step."""
        effects: list[Effect] = []
        if not self._goes_on:
            return effects
        for job_id, before in self._before.items():
            job = self._world.jobs.get(job_id)
            if job is None:
                if before is not None and before.attempt is not None:
                    effects.append(Tidy(job_id, None))
            elif (effect := newly_wanted(before, job)) is not None:
                effects.append(effect)
        return effects
