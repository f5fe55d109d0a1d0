"""Keeps an engine leading: after a failure of the log it starts a new one.

The API answers 503 until the new engine leads. An engine that another one has fenced out, or that
has detected a corrupt log, is not replaced: a retry would fight the new leader, or build on a wrong
state. In an election, a control plane that was fenced out becomes a standby instead.

An engine that met a bug while it decided about one job has recorded that
(`controlplane/decisions/isolation.py`), and is replaced: the second time the job is quarantined,
and the third engine leads. If a job stops engines even after that, the process ends with the error.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import MutableMapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from adapters.clocks.asyncio_clock import AsyncioClock
from api.engine.engine_client import EngineClient
from cli.server.elections import Election
from cli.server.standby import Standby
from controlplane.decisions.isolation import Fault
from controlplane.engine import Engine, EngineOptions
from controlplane.log.replay import Rebuilt
from controlplane.log.snapshots import take_snapshot
from controlplane.model.commands import Report
from controlplane.model.errors import LogConflict, LogCorrupt, LogUnavailable
from controlplane.model.events import EngineStarted, JobQuarantined, Recorded
from controlplane.ports import Cluster
from controlplane.queries.queries import first_quarantined
from controlplane.state.world import World

AGAIN_S_FIRST = 0.5
AGAIN_S_MAX = 30.0
GUARD_EVERY_S = 2.0
# An engine that led for this many seconds was healthy, and the back-off starts again.
HEALTHY_S = 60.0
# Reading fewer events than this is as fast as writing a snapshot.
SNAPSHOT_EVENTS_MIN = 5_000
# A snapshot of more jobs than this would delay the stop of the server too long.
SNAPSHOT_JOBS_MAX = 50_000

# How often a job may stop an engine in the same way: twice, and once more after it was quarantined.
DEATHS_MAX = 3
# The maximum number of quarantined jobs that are logged at a start.
QUARANTINED_LOGGED_MAX = 20

_log = logging.getLogger("muster")


class Notes(Protocol):
    """Data that must outlive the process but decides nothing; see docs/adr/0016.

    The leader stores it.
    """

    def book(self, name: str) -> MutableMapping[Any, Any]:
        """Return the mapping of this name: empty, and not stored, until `load`."""

    async def load(self) -> None:
        """Load the stored mappings and start to store their changes; raise LogUnavailable."""

    def release(self) -> None:
        """Stop storing the mappings: another process does."""


def _ignored(report: Report) -> None: ...


class Supervisor:
    """Runs engines one after another, as leader or as one of several control planes.

    With an election there are several control planes on the log: while another one leads, this one
    follows the log, and it returns to that when it is fenced out or loses the election. The leader
    stores the notes in the log's database, and begins with those of the leader before it.
    """

    def __init__(
        self,
        engine_client: EngineClient,
        cluster: Cluster,
        clock: AsyncioClock,
        options: EngineOptions,
        *,
        election: Election | None = None,
        notes: Notes | None = None,
        again_s_first: float = AGAIN_S_FIRST,
        guard_every_s: float = GUARD_EVERY_S,
    ) -> None:
        self._engine_client = engine_client
        self._cluster = cluster
        self._clock = clock
        self._options = options
        self._election = election
        self._notes = notes
        self._standby = Standby(engine_client, AsyncioClock())
        self._again_s_first = again_s_first
        self._guard_every_s = guard_every_s
        # The epoch of the engine that leads now.
        self._epoch: int | None = None
        self.restarts = 0
        # (Job, activity) -> how often it has stopped an engine of this process.
        self._deaths: Counter[tuple[str, str]] = Counter()
        # Set when an engine has led for the first time, or this process serves as a standby.
        self.serves = asyncio.Event()

    async def run(self) -> None:
        """Run engines until one must not be replaced; then raise its exception."""
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
            except Exception as error:  # noqa: BLE001 - raised again unless one job caused it
                if loop.time() - began > HEALTHY_S:
                    again_s = self._again_s_first
                self._judge(error)
                _log.warning("starting another engine in %.1f s", again_s)
            await asyncio.sleep(again_s)
            again_s = min(2 * again_s, AGAIN_S_MAX)
            self.restarts += 1

    def _judge(self, error: Exception) -> None:
        """Raise `error` again unless a known job caused it, at most `DEATHS_MAX` times in the same
        way.
        """
        engine = self._engine_client.engine
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
        """Stand by until elected, then lead until the lead is lost. Raises the log's errors."""
        try:
            known = await self._standby.until(election.won(), self.serves)
            _log.info("elected at position %d", known.world.position)
            # The previous leader's clock may have run ahead.
            self._clock.reach(known.world.at)
            try:
                await self._lead(election, known)
            finally:
                # Reports still in progress for this leader are dropped before another one begins.
                await self._cluster.connect(_ignored)
        except LogConflict as error:
            _log.warning("another control plane took the log over (%s); standing by", error)
        finally:
            self._engine_client.takes_over_from = None
            await election.resign()

    async def _lead(self, election: Election | None = None, known: Rebuilt | None = None) -> None:
        """Lead until the log refuses an append, or the election is lost."""
        engine = Engine(
            self._clock.twin(),
            self._engine_client.log,
            self._cluster,
            replace(self._options, address=self._engine_client.address),
            on_recorded=self._recorded,
            begin=known,
            on_fault=self._log_fault,
        )
        self._engine_client.engine, self._epoch = engine, None
        self._engine_client.takes_over_from = None if known is None else known.world.position
        engine.ask(self._announce)
        # Reads are answered from the standby's world during this.
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
        """Load the notes. No decision depends on them, so an engine leads even if this fails."""
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
        self._engine_client.recorded(batch)

    async def _guard(self) -> None:
        """Poll the log's epoch, to notice another leader even when there is nothing to append.

        Without it, a leader that was fenced out would answer with old state until its next append.
        """
        while True:
            await asyncio.sleep(self._guard_every_s)
            try:
                epoch = (await self._engine_client.log.head()).epoch
            except LogUnavailable:
                # The engine will notice, and try again.
                continue
            if self._epoch is not None and epoch != self._epoch:
                raise LogConflict(f"epoch {epoch} leads, and this one was {self._epoch}")

    def _announce(self, world: World | None) -> None:
        """Log that the engine leads.

        It is asked of the new engine as a question, so it is called when that engine leads; `world`
        is None if the engine gave up.
        """
        if world is not None:
            _log.info("leading from position %d", world.position)
            for name in first_quarantined(world, QUARANTINED_LOGGED_MAX):
                _log.warning("job %s is quarantined; `muster why %s` explains it", name, name)
            self._engine_client.takes_over_from = None
            self.serves.set()

    async def snapshot(self) -> int | None:
        """Store a snapshot of a stopped engine if that pays; return its position, or None."""
        try:
            return await self._snapshot()
        except LogUnavailable as error:
            # A snapshot is only a cache: the next start reads a longer tail.
            _log.warning("no snapshot was kept: %s", error)
            return None

    async def _snapshot(self) -> int | None:
        """Store a snapshot if the world is exactly at the log's head; return its position, or None.

        Between steps the world equals the log. It is ahead of the log if the engine was stopped
        during an append that did not happen, and then no snapshot is stored.
        """
        engine = self._engine_client.engine
        if engine is None or len(engine.world.jobs) > SNAPSHOT_JOBS_MAX:
            return None
        log, world = self._engine_client.log, engine.world
        last = await log.latest_snapshot()
        if world.position - (0 if last is None else last.position) < SNAPSHOT_EVENTS_MIN:
            return None
        head = await log.head()
        if head.position != world.position or head.epoch != self._epoch:
            return None
        await log.save_snapshot(take_snapshot(world, head.hash))
        return world.position
