"""Sets a job aside in a log that no engine leads: what an engine does with a job that stops it twice.

Only the fold is needed, not the indexes that an engine builds of it; so this helps wherever the log can be
folded. If an event itself cannot be applied, no later event can help, and that is said.
"""

import time
from contextlib import nullcontext
from typing import NamedTuple, cast

from cli.complaints import NO_SUCH_JOB, WRONG_USAGE, Complaint
from cli.guard import sole_writer
from cli.options import JobName
from cli.sources import Kind, Source, damage, open_postgres
from controlplane.codec import GENESIS
from controlplane.commands import QuarantineJob
from controlplane.errors import LogConflict, LogCorrupt, LogUnavailable
from controlplane.events import Recorded
from controlplane.faults import TEXT_LENGTH_MAX
from controlplane.folding import fold
from controlplane.job import Job
from controlplane.ports import EventLog
from controlplane.replay import PAGE_ROWS
from controlplane.reports import quarantined
from controlplane.state import State
from controlplane.world import World

WHERE, ERROR = "muster log quarantine", "requested"


class Quarantined(NamedTuple):
    job: Job
    # The events that were appended; none if it was quarantined before.
    events: int


async def quarantine(source: Source, named: JobName, text: str) -> Quarantined:
    """Appends what quarantines the job; raises Complaint if there is no such job or no such log."""
    if source.kind not in (Kind.SQLITE, Kind.POSTGRES):
        raise Complaint(f"{source} is no log that can be written to", exit_code=WRONG_USAGE)
    if source.kind is Kind.SQLITE and not source.path.exists():
        raise Complaint(f"there is no log {source}")
    with sole_writer(source.path) if source.kind is Kind.SQLITE else nullcontext():
        try:
            log = await _open(source)
        except LogUnavailable as error:
            raise Complaint(f"the log cannot be opened: {error}") from None
        try:
            return await _append(log, named, text)
        except LogCorrupt as error:
            raise _cannot_help(source, error) from None
        except LogConflict as error:
            raise Complaint(f"another control plane writes to {source}: {error}") from None
        except LogUnavailable as error:
            raise Complaint(str(error)) from None
        finally:
            await log.close()


async def _open(source: Source) -> EventLog:
    if source.kind is Kind.POSTGRES:
        return await open_postgres(source.place)
    from adapters.sqlite_log import SqliteLog

    return await SqliteLog.open(source.path)


async def _append(log: EventLog, named: JobName, text: str) -> Quarantined:
    # All is looked at before the lead is taken, which would stop an engine that leads.
    state, digest = State(), GENESIS
    while rows := await log.read(state.position, PAGE_ROWS):
        digest = fold(state, rows, digest)
    found = [x for x in state.jobs.values() if (x.namespace, x.name) == named]
    if not found:
        raise Complaint(f"the log has no job {named}", exit_code=NO_SUCH_JOB)
    command = QuarantineJob(job=found[0].id, where=WHERE, error=ERROR, text=text[:TEXT_LENGTH_MAX])
    now = max(time.time(), state.at)
    # It looks at the job and the position alone.
    events = quarantined(cast(World, state), command, now).events
    if not events:
        return Quarantined(found[0], 0)
    head = await log.lead()
    if head.position != state.position:
        raise LogConflict(f"it went on to position {head.position} meanwhile")
    batch = [Recorded(head.position + i, now, event) for i, event in enumerate(events, 1)]
    await log.append(batch, epoch=head.epoch)
    return Quarantined(found[0], len(batch))


def _cannot_help(source: Source, error: LogCorrupt) -> Complaint:
    told = damage(source, error)
    return Complaint(
        f"{told}; an event that cannot be applied is not healed by a later one, so no job was quarantined",
        hint=told.hint,
    )
