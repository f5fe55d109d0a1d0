"""`muster log`: the event log itself, on a SQLite file, PostgreSQL or an export; no server needed."""

import asyncio
from collections.abc import Iterator

import click

from cli import transfer
from cli.complaints import WRONG_USAGE, Complaint
from cli.settings import read_settings
from cli.sources import Kind, Source, parse_source, reading
from cli.tables import Column, Table, write, write_json
from cli.times import span, stamp
from cli.verification import Findings, Pin, verify


@click.group()
def log() -> None:
    """Check, copy and measure the event log.

    LOG is a SQLite file, a postgresql:// URL, an exported .jsonl file, or - for a pipe. Without it
    the log of `muster up` is meant: MUSTER_DB, or muster.db in your data folder.

    \b
    Examples:
      muster log verify
      muster log export -o backup.jsonl
      muster log import backup.jsonl restored.db
    """


log_argument = click.argument("source", metavar="[LOG]", required=False)
as_json = click.option("--json", "as_json", is_flag=True, help="Write JSON.")


@log.command("verify")
@log_argument
@click.option("--expect", metavar="POSITION:HASH", help="A hash noted earlier must still be there.")
@as_json
def verify_command(source: str | None, expect: str | None, as_json: bool) -> None:
    """Check the whole log: chain, order, fold; names the first bad position.

    The chain shows every change, but not that the end was cut off and the rest closed up. Note the
    last hash somewhere else, and give it with --expect.

    \b
    Examples:
      muster log verify
      muster log verify muster.db --expect 5120:9f0c51
      muster log export muster.db | muster log verify -
    """
    where = _source(source)
    found = asyncio.run(_verified(where, _pin(expect)))
    if as_json:
        write_json(found)
    else:
        _show_findings(where, found)


def _source(text: str | None) -> Source:
    return parse_source(text or read_settings().db)


def _pin(text: str | None) -> Pin | None:
    if text is None:
        return None
    position, _, digest = text.lower().partition(":")
    if not position.isdigit() or not digest or set(digest) - set("0123456789abcdef"):
        raise click.BadParameter("write POSITION:HASH, as `muster log verify` prints them.")
    return Pin(int(position), digest)


async def _verified(source: Source, pin: Pin | None = None) -> Findings:
    async with reading(source) as opened:
        return await verify(opened, pin=pin)


def _show_findings(source: Source, found: Findings) -> None:
    click.echo(f"{source} is whole.")
    for name, what in _lines(found):
        click.echo(f"  {name:<9} {what}")


def _lines(found: Findings) -> Iterator[tuple[str, str]]:
    yield "events", f"{found.events:,} (positions {found.first_position}-{found.last_position})"
    if found.first_at is not None and found.last_at is not None:
        length = span(found.last_at - found.first_at)
        yield "time", f"{stamp(found.first_at)} to {stamp(found.last_at)} ({length})"
    if found.last_hash:
        yield "chain", f"good; the last hash is {found.last_position}:{found.last_hash}"
    if found.state_hash is None:
        yield "fold", f"not tried: it begins at position {found.first_position}, not at 1"
    else:
        yield "fold", f"good; jobs: {found.jobs}, nodes: {found.nodes}, queues: {found.queues}"
        yield "state", found.state_hash
    if found.snapshot is not None:
        yield "snapshot", f"good; taken at position {found.snapshot}"


@log.command()
@log_argument
@as_json
def stats(source: str | None, as_json: bool) -> None:
    """Count events by type, and show the time span, the jobs and the size.

    \b
    Examples:
      muster log stats
      muster log stats incident.jsonl --json
    """
    where = _source(source)
    found = asyncio.run(_verified(where))
    size = _size_bytes(where)
    if as_json:
        write_json({"log": str(where), "size_bytes": size, "findings": found})
        return
    rows = [
        (name, f"{count:,}", f"{100 * count / found.events:.1f}%")
        for name, count in found.types.items()
    ]
    columns = (Column("EVENT"), Column("COUNT", right=True), Column("SHARE", right=True))
    write(Table(columns, rows))
    click.echo()
    for name, what in _lines(found):
        if name in ("events", "time"):
            click.echo(f"{name:<9} {what}")
    click.echo(f"{'jobs':<9} {found.jobs_submitted:,} submitted")
    whole = "" if size is None else f", {_bytes(size)} on disk"
    click.echo(f"{'size':<9} {_bytes(found.payload_bytes)} of payload{whole}")


def _bytes(count: int) -> str:
    if count < 2**20:
        return f"{count / 2**10:.1f} KiB"
    return f"{count / 2**20:.1f} MiB" if count < 2**30 else f"{count / 2**30:.1f} GiB"


def _size_bytes(source: Source) -> int | None:
    if source.kind is Kind.POSTGRES or source.place == "-":
        return None
    path = source.path
    files = [path, path.with_name(path.name + "-wal")]
    return sum(file.stat().st_size for file in files if file.exists())


@log.command()
@log_argument
@click.option("--from", "first", type=click.IntRange(1), default=1, help="First position.")
@click.option("--to", "last", type=click.IntRange(1), help="Last position.")
@click.option("-o", "--output", metavar="FILE", help="Write here and not to standard output.")
def export(source: str | None, first: int, last: int | None, output: str | None) -> None:
    """Write the log as JSON lines, one event a line.

    Events are written as they stand, so the good part of a damaged log can be saved; the import
    checks them.

    \b
    Examples:
      muster log export -o backup.jsonl
      muster log export muster.db --from 1200 --to 1300
      muster log export postgresql://db/muster | zstd > muster.jsonl.zst
    """
    where = _source(source)
    if last is not None and last < first:
        raise click.BadParameter("lies before --from.", param_hint="--to")
    count = asyncio.run(transfer.export(where, first, last, output))
    if output:
        click.echo(f"{count:,} events of {where} are in {output}", err=True)


@log.command("import")
@click.argument("export", metavar="FILE")
@click.argument("target", metavar="[LOG]", required=False)
def import_command(export: str, target: str | None) -> None:
    """Read an exported log into an empty one.

    The chain is checked first, and the log is there whole or not at all. FILE may be - for a pipe.

    \b
    Examples:
      muster log import backup.jsonl restored.db
      zstdcat muster.jsonl.zst | muster log import - postgresql://db/muster
    """
    origin, goal = parse_source(export), _source(target)
    if origin.kind is not Kind.EXPORT:
        raise Complaint(
            f"{origin} is no export", hint="`muster log export` makes one.", exit_code=WRONG_USAGE
        )
    if goal.kind not in (Kind.SQLITE, Kind.POSTGRES):
        raise Complaint(f"{goal} is no log to import into", exit_code=WRONG_USAGE)
    found = asyncio.run(transfer.import_into(origin, goal))
    click.echo(f"{found.events:,} events are in {goal}; the last hash is {found.last_hash}")
