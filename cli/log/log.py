"""`muster log`: commands on a log in SQLite, PostgreSQL or an export, without a server."""

import asyncio
from collections.abc import Iterator

import click
import msgspec

from cli.errors import FAILED, WRONG_USAGE, CliError
from cli.log import regression, transfer
from cli.log.quarantine import quarantine
from cli.log.sources import Kind, Source, parse_source, reading
from cli.log.upgrade import upgraded
from cli.log.verification import Findings, Pin, survey, verify
from cli.options import job_argument, log_argument, namespace_option, parse_job
from cli.output.tables import Column, Table, write, write_json
from cli.output.times import span, stamp
from controlplane.audit.redecide import Difference
from controlplane.event_messages import describe

VALUE_LENGTH_MAX = 160


@click.group()
def log() -> None:
    """Check, copy and measure the event log.

    LOG is a SQLite file, a postgresql:// URL, an exported .jsonl file, or - for a pipe. Without it
    the log of `muster up` is used: MUSTER_DB, or muster.db in your data folder.

    \b
    Examples:
      muster log verify
      muster log export -o backup.jsonl
      muster log import backup.jsonl restored.db
    """


as_json = click.option("--json", "as_json", is_flag=True, help="Write JSON.")


@log.command("verify")
@log_argument
@click.option(
    "--expect", metavar="POSITION:HASH", help="Check that this earlier hash is still in the log."
)
@click.option(
    "--decisions/--no-decisions", default=True, help="Make all decisions again and compare them."
)
@as_json
def verify_command(source: str, expect: str | None, decisions: bool, as_json: bool) -> None:
    """Check the whole log: hash chain, order, fold and decisions.

    The first bad position is named.

    The chain reveals every change except a log that was truncated and re-hashed. To detect that, keep
    the last hash elsewhere and pass it with --expect.

    Decisions are made again, with this release, from the requests and reports in the log. A
    difference is not damage: another release may decide differently. It is shown with both versions,
    and the exit code is 1; so an upgrade can be checked against an old log before it is rolled out.

    \b
    Examples:
      muster log verify
      muster log verify last-month.jsonl --json
      muster log verify muster.db --expect 5120:9f0c51
      muster log export muster.db | muster log verify -
    """
    where = parse_source(source)
    findings = asyncio.run(_verified(where, _pin(expect), decisions))
    if as_json:
        write_json(findings)
    else:
        _show_findings(where, findings)
    if findings.difference is not None:
        click.get_current_context().exit(FAILED)


def _pin(text: str | None) -> Pin | None:
    if text is None:
        return None
    position, _, digest = text.lower().partition(":")
    if not position.isdigit() or not digest or set(digest) - set("0123456789abcdef"):
        raise click.BadParameter("write POSITION:HASH, as `muster log verify` prints them.")
    return Pin(int(position), digest)


async def _verified(source: Source, pin: Pin | None = None, decisions: bool = False) -> Findings:
    async with reading(source) as opened:
        return await verify(opened, pin=pin, decisions=decisions)


async def _surveyed(source: Source) -> Findings:
    async with reading(source) as opened:
        return await survey(opened)


def _show_findings(source: Source, findings: Findings) -> None:
    click.echo(f"{source} is whole.")
    for name, what in _lines(findings):
        click.echo(f"  {name:<9} {what}")
    if findings.difference is not None:
        _show_difference(findings.difference)


def _show_difference(difference: Difference) -> None:
    click.echo(f"\nAt {stamp(difference.at)}: {difference.why}.")
    for whose, events in (("recorded", difference.recorded), ("today", difference.decided)):
        lines = [f"{x.event.stream}: {describe(x.event)}" for x in events] or ["nothing"]
        for line in lines:
            click.echo(f"  {whose:<9} {line}")
            whose = ""
    if difference.recorded and difference.decided:
        for field, was, now in _fields_apart(difference):
            click.echo(f"  {field:<9} {was}\n  {'':<9} {now}")


def _fields_apart(difference: Difference) -> Iterator[tuple[str, str, str]]:
    """Yield (field, recorded, decided) for the fields in which the first two events differ.

    Nothing if the events are of different types.
    """
    recorded, decided = difference.recorded[0].event, difference.decided[0].event
    if type(recorded) is type(decided):
        for name in recorded.__struct_fields__:
            was, now = getattr(recorded, name), getattr(decided, name)
            if was != now:
                yield name, _short(was), _short(now)


def _short(value: object) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= VALUE_LENGTH_MAX else text[:VALUE_LENGTH_MAX] + "..."


def _lines(findings: Findings) -> Iterator[tuple[str, str]]:
    yield (
        "events",
        f"{findings.events:,} (positions {findings.first_position}-{findings.last_position})",
    )
    if findings.first_at is not None and findings.last_at is not None:
        length = span(findings.last_at - findings.first_at)
        yield "time", f"{stamp(findings.first_at)} to {stamp(findings.last_at)} ({length})"
    if findings.last_hash:
        yield "chain", f"good; the last hash is {findings.last_position}:{findings.last_hash}"
    if findings.state_hash is None:
        yield "fold", f"not tried: it begins at position {findings.first_position}, not at 1"
        yield "decisions", "not tried; export a part as a bundle: `muster log export --bundle`"
    else:
        yield (
            "fold",
            f"good; jobs: {findings.jobs}, nodes: {findings.nodes}, queues: {findings.queues}",
        )
        yield "state", findings.state_hash
    if findings.decided_alike:
        yield "decisions", "good; this release decides all that was recorded"
    elif findings.difference is not None:
        yield (
            "decisions",
            f"this release decides otherwise at position {findings.difference.position}",
        )
    if findings.snapshot is not None:
        yield "snapshot", f"good; taken at position {findings.snapshot}"


@log.command()
@log_argument
@as_json
def stats(source: str, as_json: bool) -> None:
    """Count events by type, and show the time span, the jobs and the size.

    The chain is checked on the way; `muster log verify` checks more.

    \b
    Examples:
      muster log stats
      muster log stats incident.jsonl --json
    """
    where = parse_source(source)
    findings = asyncio.run(_surveyed(where))
    size = _size_bytes(where)
    if as_json:
        write_json({"log": str(where), "size_bytes": size, "findings": findings})
        return
    rows = [
        (name, f"{count:,}", f"{100 * count / findings.events:.1f}%")
        for name, count in findings.types.items()
    ]
    columns = (Column("EVENT"), Column("COUNT", right=True), Column("SHARE", right=True))
    write(Table(columns, rows))
    click.echo()
    for name, what in _lines(findings):
        if name in ("events", "time"):
            click.echo(f"{name:<9} {what}")
    click.echo(f"{'jobs':<9} {findings.jobs_submitted:,} submitted")
    whole = "" if size is None else f", {_bytes(size)} on disk"
    click.echo(f"{'size':<9} {_bytes(findings.payload_bytes)} of payload{whole}")


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
@click.option("--from", "first", metavar="POSITION|TIME", help="Where to begin.")
@click.option("--to", "last", metavar="POSITION|TIME", help="Where to end.")
@click.option(
    "-o", "--output", metavar="FILE", help="Write to this file instead of standard output."
)
@click.option("--bundle", metavar="FILE", help="Write a bundle: the state before, and the events.")
@click.option("--redact", is_flag=True, help="Replace names and environment values in the bundle.")
@click.option("--note", default="", help="A description to store in the bundle.")
def export(
    source: str,
    first: str | None,
    last: str | None,
    output: str | None,
    bundle: str | None,
    redact: bool,
    note: str,
) -> None:
    """Write the log as JSON lines, one event per line; or an incident as a bundle.

    Events are written as they stand, so the good part of a damaged log can be saved; the import
    checks them. --from and --to take a position, a time (2026-11-16T03:12:00Z) or a span before the
    log's end (-2h).

    A bundle is self-contained: `muster replay`, `log verify`, `fork` and `analyse` take it in place
    of a log, anywhere. One that ends in .gz is compressed.

    \b
    Examples:
      muster log export -o backup.jsonl
      muster log export muster.db --from 1200 --to 1300
      muster log export muster.db --from -2h --bundle incident.bundle.gz --redact
      muster log export postgresql://db/muster | zstd > muster.jsonl.zst
    """
    where = parse_source(source)
    if bundle is None and (redact or note):
        raise click.UsageError("--redact and --note are for a --bundle.")
    if bundle is not None and output is not None:
        raise click.UsageError("--bundle names the file; leave --output out.")
    ends = asyncio.run(transfer.ends(where, first, last))
    if bundle is not None:
        header = asyncio.run(transfer.export_bundle(where, ends, bundle, redact=redact, note=note))
        names = ", without names" if redact else ""
        click.echo(
            f"{header.last - header.base:,} events ({header.base + 1}-{header.last}) of {where}, "
            f"and the state before them, are in {bundle}{names}",
            err=True,
        )
        return
    count = asyncio.run(transfer.export(where, *ends, output))
    if output:
        click.echo(f"{count:,} events of {where} are in {output}", err=True)


@log.command("test")
@click.argument("bundle", metavar="BUNDLE")
@click.option("--into", metavar="FOLDER", default="tests/regressions", help="Folder for the test.")
@click.option("--name", help="Name of the incident. Default: from the file name.")
def test_command(bundle: str, into: str, name: str | None) -> None:
    """Turn a bundle into a regression test.

    The bundle is copied, with a test next to it that replays it, checks the resulting state, and
    decides everything again. Run it with pytest.

    \b
    Examples:
      muster log test incident.bundle.gz
      muster log test incident.bundle.gz --into tests --name flapping
    """
    written = asyncio.run(regression.write_test(parse_source(bundle), into, name))
    click.echo(f"{written} is a test; run it with: pytest {written}")


@log.command("quarantine")
@job_argument
@log_argument
@namespace_option
@click.option("--reason", default="", help="A line that `muster why` shows.")
def quarantine_command(job: str, source: str, namespace: str, reason: str) -> None:
    """Quarantine a job while the control plane is stopped.

    For a job that keeps the control plane from starting. `muster up` does the same by itself when a
    job stops its engine twice in the same way. The job fails (`quarantined`) unless it had ended;
    its ranks are asked to stop when an engine leads again, it is never scheduled again, and can
    only be deleted.

    Stop the control plane first. On a PostgreSQL log this takes the lead, so a control plane that
    still leads there stops.

    \b
    Examples:
      muster log quarantine team-a/train
      muster log quarantine train ./muster.db --reason "ends the engine, see incident 12"
    """
    named = parse_job(job, namespace)
    done = asyncio.run(quarantine(parse_source(source), named, reason))
    if not done.events:
        click.echo(f"{named} is quarantined already")
        return
    click.echo(f"{named} is quarantined; `muster delete {named}` removes it once an engine leads")


@log.command()
@log_argument
def upgrade(source: str) -> None:
    """Bring the tables of a log to the version that this release needs.

    `muster up` refuses a log with older tables and names this command. Stop the control planes of
    the log first, and keep a backup: an older release cannot open the log afterwards. The events
    stay as they are. The upgrade is done whole or not at all; on a log that is up to date it
    changes nothing.

    \b
    Examples:
      muster log upgrade
      muster log upgrade postgresql://db/muster
    """
    where = parse_source(source)
    before, now = asyncio.run(upgraded(where))
    if before == now:
        click.echo(f"{where} has schema version {now} already")
    else:
        click.echo(f"{where} has schema version {now} now; it had {before}")


@log.command("import")
@click.argument("export", metavar="FILE")
@log_argument
def import_command(export: str, source: str) -> None:
    """Read an exported log into an empty one.

    The chain is checked first, and the import is done whole or not at all. FILE may be - for a
    pipe.

    \b
    Examples:
      muster log import backup.jsonl restored.db
      zstdcat muster.jsonl.zst | muster log import - postgresql://db/muster
    """
    origin, goal = parse_source(export), parse_source(source)
    if origin.kind is not Kind.EXPORT:
        raise CliError(
            f"{origin} is not an export",
            hint="`muster log export` makes one.",
            exit_code=WRONG_USAGE,
        )
    if goal.kind not in (Kind.SQLITE, Kind.POSTGRES):
        raise CliError(f"{goal} cannot be imported into: it is not a log", exit_code=WRONG_USAGE)
    findings = asyncio.run(transfer.import_into(origin, goal))
    click.echo(f"{findings.events:,} events are in {goal}; the last hash is {findings.last_hash}")
