"""Keeps an engine leading: when the log fails a new one is started, and the API answers 503 until
it leads.

An engine that another one has fenced out, or that found the log damaged, is not replaced: trying
again would fight the new leader, or build on what is not true. In an election the one that was
fenced out waits for its next turn instead.

An engine that met a bug while it decided about one job has recorded that (`controlplane/faults.py`), and is
replaced: the second time the job is quarantined, and the third engine leads. If a job goes on stopping engines
after that, nothing is left to try, and the process ends with the error.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from adapters.asyncio_clock import AsyncioClock
from adapters.notes import Notes
from api.control import Control
from cli.elections import Election
from cli.standby import Standby
from controlplane.commands import Report
from controlplane.engine import Engine, EngineOptions
from controlplane.errors import LogConflict, LogCorrupt, LogUnavailable
from controlplane.events import EngineStarted, JobQuarantined, Recorded
from controlplane.faults import Fault
from controlplane.ports import Cluster
from controlplane.queries import first_quarantined
from controlplane.replay import Rebuilt, take_snapshot
from controlplane.world import World

AGAIN_S_FIRST = 0.5
AGAIN_S_MAX = 30.0
GUARD_EVERY_S = 2.0
# An engine that led this long was healthy, and the next wait begins small again.
HEALTHY_S = 60.0
# Fewer events than this are read again as fast as a snapshot is written.
SNAPSHOT_EVENTS_MIN = 5_000
# More jobs than this would keep whoever stops the server waiting.
SNAPSHOT_JOBS_MAX = 50_000

# So often in the same way a job may stop an engine: twice, and once more when it was quarantined in between.
DEATHS_MAX = 3
# At most so many quarantined jobs are named at a start.
QUARANTINED_TOLD = 20

_log = logging.getLogger("muster")


def _ignored(report: Report) -> None: ...


class Supervisor:
    """With an election there are several control planes on the log: while another one leads, this
    one follows the log; and one that was fenced out or lost the election goes back to that.
    Whoever leads keeps the notes beside the log, and begins with what the last one kept.
    """

    def __init__(
        self,
        control: Control,
        cluster: Cluster,
        clock: AsyncioClock,
        options: EngineOptions,
        *,
        election: Election | None = None,
        notes: Notes | None = None,
        again_s_first: float = AGAIN_S_FIRST,
        guard_every_s: float = GUARD_EVERY_S,
    ) -> None:
        self._control = control
        self._cluster = cluster
        self._clock = clock
        self._options = options
        self._election = election
        self._notes = notes
        self._standby = Standby(control, AsyncioClock())
        self._again_s_first = again_s_first
        self._guard_every_s = guard_every_s
        # The epoch of the engine that leads now.
        self._epoch: int | None = None
        self.restarts = 0
        # How often each job has stopped an engine of this process, by what it was doing.
        self._deaths: Counter[tuple[str, str]] = Counter()
        # Set as soon as an engine has led for the first time, or this one serves as a standby.
        self.serves = asyncio.Event()

    async def run(self) -> None:
        """Runs engines until one may not be replaced; then raises what that one said."""
        loop = asyncio.get_running_loop()
        again_s = self._again_s_first
        while True:
            began = loop.time()
            try:
                await (self._lead() if self._election is None else self._take_turns(self._election))
                began = loop.time()
                again_s = self._again_s_first
            except LogUnavailable as error:
                if loop.time() - began > HEALTHY_S:
                    again_s = self._again_s_first
                _log.warning("the log failed: %s; trying again in %.1f s", error, again_s)
            except (LogConflict, LogCorrupt):
                raise
            except Exception as error:  # noqa: BLE001 - raised again, unless it is one job's
                if loop.time() - began > HEALTHY_S:
                    again_s = self._again_s_first
                self._judge(error)
                _log.warning("starting another engine in %.1f s", again_s)
            await asyncio.sleep(again_s)
            again_s = min(2 * again_s, AGAIN_S_MAX)
            self.restarts += 1

    def _judge(self, error: Exception) -> None:
        """Raises the error again unless it is known which job it concerns, and it may be set aside."""
        engine = self._control.engine
        fault = None if engine is None else engine.fault
        if fault is None:
            raise error
        deaths = self._deaths[fault.job, fault.input] = self._deaths[fault.job, fault.input] + 1
        _log.error(
            "the engine stopped because of a bug: job %s, %s: %s",
            fault.job,
            fault.input,
            fault.text,
        )
        if deaths > DEATHS_MAX:
            _log.error("job %s goes on stopping engines although it is quarantined", fault.job)
            raise error

    def _log_fault(self, fault: Fault, error: Exception) -> None:
        whose = f"job {fault.job}" if fault.job else "no job"
        _log.error("%s failed, which concerns %s; going on", fault.where, whose, exc_info=error)

    async def _take_turns(self, election: Election) -> None:
        """Stands by until it is elected, and leads until it may not. Raises what the log said."""
        try:
            known = await self._standby.until(election.won(), self.serves)
            _log.info("elected at position %d", known.world.position)
            # The leader before may have had a clock that ran ahead.
            self._clock.reach(known.world.at)
            try:
                await self._lead(election, known)
            finally:
                # What was under way for this leader is dropped before another one begins.
                await self._cluster.connect(_ignored)
        except LogConflict as error:
            _log.warning("another control plane took the log over (%s); standing by", error)
        finally:
            self._control.takes_over_from = None
            await election.resign()

    async def _lead(self, election: Election | None = None, known: Rebuilt | None = None) -> None:
        """Leads until the log refuses, or the election is lost."""
        engine = Engine(
            self._clock.twin(),
            self._control.log,
            self._cluster,
            replace(self._options, address=self._control.address),
            on_recorded=self._recorded,
            begin=known,
            on_fault=self._log_fault,
        )
        self._control.engine, self._epoch = engine, None
        self._control.takes_over_from = None if known is None else known.world.position
        engine.ask(self._announce)
        # Reads are answered from what a standby knew while this is read.
        await self._load_notes()
        work = [asyncio.create_task(engine.run()), asyncio.create_task(self._guard())]
        if election is not None:
            work.append(asyncio.create_task(election.lost()))
        try:
            done, _ = await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            _log.warning("the election is lost; standing by")
        finally:
            for task in work:
                task.cancel()
            await asyncio.gather(*work, return_exceptions=True)
            if self._notes is not None and election is not None:
                self._notes.release()

    async def _load_notes(self) -> None:
        """No decision depends on them, so one who cannot read them leads all the same."""
        if self._notes is None:
            return
        try:
            await self._notes.load()
        except LogUnavailable as error:
            _log.warning("%s; going on without them", error)

    def _recorded(self, batch: Sequence[Recorded]) -> None:
        first = batch[0].event
        if isinstance(first, EngineStarted):
            self._epoch = first.epoch
        for recorded in batch:
            if isinstance(recorded.event, JobQuarantined):
                _log.error("job %s is quarantined; only deleting it is left", recorded.event.job)
        self._control.recorded(batch)

    async def _guard(self) -> None:
        """Sees that another one leads even when there is nothing to append.

        Without it, a leader that was fenced out would tell old news until its next append.
        """
        while True:
            await asyncio.sleep(self._guard_every_s)
            try:
                epoch = (await self._control.log.head()).epoch
            except LogUnavailable:
                # The engine will notice, and try again.
                continue
            if self._epoch is not None and epoch != self._epoch:
                raise LogConflict(f"epoch {epoch} leads, and this one was {self._epoch}")

    def _announce(self, world: World | None) -> None:
        """Asked of a new engine, so it is answered when that one leads or has given up."""
        if world is not None:
            _log.info("leading from position %d", world.position)
            for name in first_quarantined(world, QUARANTINED_TOLD):
                _log.warning("job %s is quarantined; `muster why %s` tells why", name, name)
            self._control.takes_over_from = None
            self.serves.set()

    async def snapshot(self) -> int | None:
        """Keeps the state of an engine that was stopped, if that is worth it; returns where."""
        try:
            return await self._snapshot()
        except LogUnavailable as error:
            # It is only a cache: the next start reads a longer tail.
            _log.warning("no snapshot was kept: %s", error)
            return None

    async def _snapshot(self) -> int | None:
        """Between steps the world is what the log says. It is ahead of the log if the engine was
        stopped in the middle of an append that did not happen, and then nothing is kept.
        """
        engine = self._control.engine
        if engine is None or len(engine.world.jobs) > SNAPSHOT_JOBS_MAX:
            return None
        log, world = self._control.log, engine.world
        last = await log.latest_snapshot()
        if world.position - (0 if last is None else last.position) < SNAPSHOT_EVENTS_MIN:
            return None
        head = await log.head()
        if head.position != world.position or head.epoch != self._epoch:
            return None
        await log.save_snapshot(take_snapshot(world, head.hash))
        return world.position
