"""Quarantine of a job in a log that no engine leads.

An engine does the same with a job that stops it twice. This needs only the fold, not the indexes
that an engine builds from it, so it works wherever the log can be folded. If an event itself cannot
be applied, no later event can help, and the error says so.
"""

import time
from contextlib import nullcontext
from typing import NamedTuple, cast

from cli.errors import NO_SUCH_JOB, WRONG_USAGE, CliError
from cli.log.sources import Kind, Source, damage, open_log
from cli.options import JobName
from cli.server.file_lock import sole_writer
from controlplane.decisions.isolation import TEXT_LENGTH_MAX
from controlplane.decisions.reports import quarantined
from controlplane.lifecycle.job import Job
from controlplane.log.fold import fold
from controlplane.log.replay import PAGE_ROWS
from controlplane.model.commands import QuarantineJob
from controlplane.model.errors import LogConflict, LogCorrupt, LogUnavailable
from controlplane.model.events import Recorded
from controlplane.model.rows import GENESIS
from controlplane.ports import EventLog
from controlplane.state.state import State
from controlplane.state.world import World

WHERE, ERROR = "muster log quarantine", "requested"


class Quarantined(NamedTuple):
    job: Job
    # The number of events that were appended; 0 if the job was quarantined before.
    events: int


async def quarantine(source: Source, named: JobName, text: str) -> Quarantined:
    """Append the events that quarantine the job; raise CliError without such a job or log."""
    if source.kind not in (Kind.SQLITE, Kind.POSTGRES):
        raise CliError(f"{source} is not a writable log", exit_code=WRONG_USAGE)
    if source.kind is Kind.SQLITE and not source.path.exists():
        raise CliError(f"there is no log {source}")
    with sole_writer(source.path) if source.kind is Kind.SQLITE else nullcontext():
        try:
            log = await open_log(source)
        except LogUnavailable as error:
            raise CliError(f"the log cannot be opened: {error}") from None
        try:
            return await _append(log, named, text)
        except LogCorrupt as error:
            raise _cannot_help(source, error) from None
        except LogConflict as error:
            raise CliError(f"another control plane writes to {source}: {error}") from None
        except LogUnavailable as error:
            raise CliError(str(error)) from None
        finally:
            await log.close()


async def _append(log: EventLog, named: JobName, text: str) -> Quarantined:
    # Everything is checked before this process takes the lead, which would stop a leading engine.
    state, digest = State(), GENESIS
    while rows := await log.read(state.position, PAGE_ROWS):
        digest = fold(state, rows, digest)
    jobs = [x for x in state.jobs.values() if (x.namespace, x.name) == named]
    if not jobs:
        raise CliError(f"the log has no job {named}", exit_code=NO_SUCH_JOB)
    command = QuarantineJob(job=jobs[0].id, where=WHERE, error=ERROR, text=text[:TEXT_LENGTH_MAX])
    now = max(time.time(), state.at)
    # `quarantined` reads only the job and the position.
    events = quarantined(cast(World, state), command, now).events
    if not events:
        return Quarantined(jobs[0], 0)
    head = await log.lead()
    if head.position != state.position:
        raise LogConflict(f"it went on to position {head.position} meanwhile")
    name, step = type(command).__name__, state.step + 1
    batch = [
        Recorded(head.position + i, now, event, command=name, step=step, ordinal=1)
        for i, event in enumerate(events, 1)
    ]
    await log.append(batch, epoch=head.epoch)
    return Quarantined(jobs[0], len(batch))


def _cannot_help(source: Source, error: LogCorrupt) -> CliError:
    damaged = damage(source, error)
    return CliError(
        f"{damaged}; an event that cannot be applied is not healed by a later one, so no job was quarantined",
        hint=damaged.hint,
    )
