"""Export of logs to JSON lines, and import. A failure leaves no partly written file or log."""

import gzip
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import IO

import click

from cli.errors import CliError
from cli.log.sources import Kind, Source, open_log, reading
from cli.log.verification import Findings, verify
from cli.output.times import parse_time
from cli.server.file_lock import sole_writer
from cli.server.kinds import load_kinds
from cli.settings import reason
from controlplane.audit.bundle import Header, make_bundle
from controlplane.log.codec import from_row, to_line, to_rows
from controlplane.log.hash_chain import check_chain
from controlplane.log.replay import PAGE_ROWS, position_at
from controlplane.model.errors import LogUnavailable
from controlplane.model.events import Recorded
from controlplane.model.rows import GENESIS, Row
from controlplane.ports import EventLog


async def export(source: Source, first: int, last: int | None, output: str | None) -> int:
    """Write the events from `first` to `last`; return their number."""
    count = 0
    with _replacing(output) as file:
        async with reading(source) as log:
            async for rows in _pages(log, first - 1, last):
                file.write(b"".join(to_line(row) + b"\n" for row in rows))
                count += len(rows)
    return count


async def ends(source: Source, first: str | None, last: str | None) -> tuple[int, int | None]:
    """Return the positions that --from and --to name; without --to the second is None."""
    async with reading(source) as log:
        return await ends_in(log, first, last)


async def ends_in(log: EventLog, first: str | None, last: str | None) -> tuple[int, int | None]:
    """As `ends`, in an open log. A damaged log is read only to look up a time."""
    begin = 1 if first is None else _position(first)
    end = None if last is None else _position(last)
    if begin is None:
        begin = 1 + await position_at(log, await _time(log, first or ""), before=True)
    if last is not None and end is None:
        end = await position_at(log, await _time(log, last))
    if end is not None and end < begin:
        raise click.BadParameter("lies before --from.", param_hint="--to")
    return begin, end


async def events_after(
    log: EventLog, position: int, last: int, digest: bytes
) -> AsyncIterator[Recorded]:
    """Yield the events after `position` up to `last`, each after its hash was checked."""
    while position < last:
        rows = await log.read(position, min(PAGE_ROWS, last - position))
        if not rows:
            return
        for row in check_chain(rows, after=position, previous=digest):
            yield from_row(row)
        position, digest = rows[-1].position, rows[-1].hash


def _position(text: str) -> int | None:
    return int(text) if text.isdigit() and int(text) > 0 else None


async def end_of(log: EventLog) -> float:
    """Return the time of the last event; 0 if there is none."""
    head = (await log.head()).position
    rows = await log.read(head - 1, 1) if head else []
    return rows[0].at if rows else 0.0


async def _time(log: EventLog, text: str) -> float:
    try:
        return parse_time(text, end=await end_of(log))
    except ValueError as error:
        raise click.BadParameter(f"{error}; or give a position.") from None


async def export_bundle(
    source: Source, ends: tuple[int, int | None], output: str, *, redact: bool, note: str
) -> Header:
    """Write a bundle, compressed if its name ends in .gz; return its header."""
    # Redaction keeps what the schemas of hints declare harmless.
    load_kinds()
    async with reading(source) as log:
        head = (await log.head()).position
        first, last = ends[0], head if ends[1] is None else min(ends[1], head)
        try:
            made = await make_bundle(
                log, first=first, last=last, release=version("muster"), redact=redact, note=note
            )
        except ValueError as error:
            raise CliError(f"{source}: {error}") from None
    with _replacing(output) as file:
        body = b"".join(made.lines())
        file.write(gzip.compress(body, mtime=0) if output.endswith(".gz") else body)
    return made.header


async def _pages(log: EventLog, after: int, last: int | None) -> AsyncIterator[list[Row]]:
    while last is None or after < last:
        limit = PAGE_ROWS if last is None else min(PAGE_ROWS, last - after)
        rows = [row for row in await log.read(after, limit) if last is None or row.position <= last]
        if not rows:
            return
        yield rows
        after = rows[-1].position


@contextmanager
def _replacing(output: str | None) -> Iterator[IO[bytes]]:
    """Open a file that gets its final name when all is written.

    From a damaged log it keeps what could still be read.
    """
    if output is None or output == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path = Path(output)
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as file:
            try:
                yield file
            finally:
                file.flush()
                os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        raise CliError(f"{path} cannot be written: {reason(error)}") from None
    except CliError:
        part.replace(path)
        raise


async def import_into(origin: Source, goal: Source) -> Findings:
    """Read an export into an empty log; return the findings of its verification."""
    async with reading(origin) as exported:
        findings = await verify(exported)
        if findings.first_position != 1:
            raise CliError(f"{origin} does not begin at position 1, so it is not a complete log")
        await _require_same_bytes(exported)
        try:
            if goal.kind is Kind.POSTGRES:
                await _fill_postgres(exported, goal, findings)
            else:
                with sole_writer(goal.path):
                    await _fill_sqlite(exported, goal)
        except LogUnavailable as error:
            raise CliError(str(error)) from None
    return findings


async def _require_same_bytes(exported: EventLog) -> None:
    """Raise CliError if the export has events in an older format.

    A log writes events in today's format, so these would get other hashes.
    """
    previous, after = GENESIS, 0
    while rows := await exported.read(after, PAGE_ROWS):
        if to_rows([from_row(row) for row in rows], previous) != list(rows):
            raise CliError(
                "this release would write some of these events in another form",
                hint="Import with the release that wrote the log, then start this one on it.",
            )
        after, previous = rows[-1].position, rows[-1].hash


async def _fill_sqlite(exported: EventLog, goal: Source) -> None:
    """Fill a file next to `goal`, and rename it to `goal` at the end."""
    if goal.path.exists():
        async with reading(goal) as there:
            _require_empty(goal, (await there.head()).position)
    part = goal.path.with_name(goal.path.name + ".part")
    _remove(part)
    try:
        filled = await open_log(Source(Kind.SQLITE, str(part)))
        try:
            await _copy(exported, filled, page=PAGE_ROWS)
        finally:
            await filled.close()
        _remove(goal.path)
        part.replace(goal.path)
    finally:
        _remove(part)


def _remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


async def _fill_postgres(exported: EventLog, goal: Source, findings: Findings) -> None:
    filled = await open_log(goal)
    try:
        _require_empty(goal, (await filled.head()).position)
        # All in one append, which is one transaction.
        await _copy(exported, filled, page=findings.events)
    finally:
        await filled.close()


def _require_empty(goal: Source, position: int) -> None:
    if position:
        held = f"{goal} already holds {position:,} events"
        raise CliError(held, hint="Import into a new log only.")


async def _copy(exported: EventLog, filled: EventLog, *, page: int) -> None:
    epoch, after = (await filled.lead()).epoch, 0
    while rows := await exported.read(after, page):
        await filled.append([from_row(row) for row in rows], epoch=epoch)
        after = rows[-1].position
