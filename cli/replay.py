"""`muster replay`: the world at any past instant, from the log alone."""

import asyncio

import click
import msgspec
from rich.console import Group, RenderableType
from rich.text import Text

from api import past
from cli.cluster_tables import nodes_table, queues_table
from cli.complaints import WRONG_USAGE, Complaint
from cli.exported import ExportedLog
from cli.job_tables import list_table
from cli.narration import tell
from cli.sources import parse_source, reading
from cli.tables import write, write_json
from cli.times import parse_time, stamp
from controlplane.codec import GENESIS
from controlplane.events import JobEvent, Recorded
from controlplane.ports import EventLog
from controlplane.queries import job_view, node_view, nodes, queue_view
from controlplane.replay import PAGE_ROWS, fold, rebuild, state_hash
from controlplane.state import State
from controlplane.world import World


@click.command()
@click.argument("source", metavar="LOG")
@click.option("--at", "moment", metavar="TIME", help="The last event not later than this counts.")
@click.option("--position", type=click.IntRange(0), help="Up to and with this event.")
@click.option("--step", is_flag=True, help="Tell every event and what it changed.")
@click.option("--from", "first", type=click.IntRange(1), default=1, help="--step begins here.")
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
def replay(
    source: str, moment: str | None, position: int | None, step: bool, first: int, as_json: bool
) -> None:
    """Show jobs, nodes and queues as they were.

    LOG is a SQLite file, a postgresql:// URL, an exported .jsonl file, or - for a pipe; a running
    server is not disturbed. TIME is 2026-11-16T03:12:00Z, UTC seconds, or -10m for ten minutes
    before the log's end. Without --at and --position, the end is shown.

    \b
    Examples:
      muster replay muster.db --at 2026-11-16T03:12:00Z
      muster replay incident.jsonl --position 4711 --json
      muster replay muster.db --step --from 4700 --position 4711
    """
    if moment is not None and position is not None:
        raise click.UsageError("--at and --position name two different ends; give one.")
    teller = _Teller(first, as_json) if step else None
    world = asyncio.run(_world(source, moment, position, teller))
    if step:
        return
    if as_json:
        write_json(then(world))
    else:
        write(_picture(world))


async def _world(
    text: str, moment: str | None, position: int | None, teller: "_Teller | None"
) -> World:
    async with reading(parse_source(text)) as log:
        _require_beginning(log, text)
        at = None if moment is None else await _time(log, moment)
        world = (await rebuild(log, position=position, at=at)).world
        if teller is not None:
            await _tell_all(log, world.position, teller)
    if position is not None and world.position < position:
        raise Complaint(
            f"the log ends at position {world.position}, before {position}", exit_code=WRONG_USAGE
        )
    if at is not None and world.position == 0:
        raise Complaint(f"the log begins after {stamp(at)}", exit_code=WRONG_USAGE)
    return world


def _require_beginning(log: EventLog, text: str) -> None:
    if isinstance(log, ExportedLog) and log.first_position() > 1:
        raise Complaint(
            f"{text} begins at position {log.first_position()}, and the world before is not known",
            hint="Export the log from its beginning: without --from.",
        )


async def _time(log: EventLog, text: str) -> float:
    last = (await log.head()).position
    rows = await log.read(last - 1, 1) if last else []
    try:
        return parse_time(text, end=rows[0][1] if rows else 0.0)
    except ValueError as error:
        raise click.BadParameter(f"{error}.", param_hint="--at") from None


def then(world: World) -> past.State:
    """As `GET /v1/state` tells it."""
    queues = [queue_view(world, name) for name in sorted(world.queues)]
    return past.State(
        position=world.position,
        at=world.at,
        state_hash=state_hash(world),
        jobs=[job_view(job) for job in world.jobs.values()],
        nodes=[node_view(world, node) for node in nodes(world)],
        queues=[queue for queue in queues if queue is not None],
    )


def _picture(world: World) -> RenderableType:
    seen = then(world)
    head = f"After event {seen.position}, at {stamp(seen.at)}; state {seen.state_hash[:12]}"
    parts: list[RenderableType] = [Text(head, style="bold"), Text("")]
    parts.append(list_table(seen.jobs, seen.at, all_namespaces=True) if seen.jobs else "no jobs")
    if seen.nodes:
        parts += [Text(""), nodes_table(seen.nodes)]
    parts += [Text(""), queues_table(seen.queues)]
    return Group(*parts)


async def _tell_all(log: EventLog, last: int, teller: "_Teller") -> None:
    state, digest = teller.state, GENESIS
    while state.position < last:
        rows = await log.read(state.position, min(PAGE_ROWS, last - state.position))
        digest = fold(state, rows, digest, teller.hear)


class _Teller:
    """Prints each event with what it changed: a job's phase, if nothing else."""

    def __init__(self, first: int, as_json: bool) -> None:
        self.state = State()
        self._first = first
        self._as_json = as_json
        self._phases: dict[str, str] = {}
        self._names: dict[str, str] = {}

    def hear(self, recorded: Recorded) -> None:
        """Called right after the event was taken into the state."""
        before, after = self._phase(recorded)
        if recorded.position >= self._first:
            if self._as_json:
                self._write(recorded, before, after)
            else:
                self._tell(recorded, before, after)

    def _phase(self, recorded: Recorded) -> tuple[str, str]:
        event = recorded.event
        if not isinstance(event, JobEvent):
            return "", ""
        job, before = self.state.jobs.get(event.job), self._phases.get(event.job, "")
        if job is not None:
            self._names[event.job] = f"{job.namespace}/{job.name}"
            self._phases[event.job] = job.phase.value
        return before, "" if job is None else job.phase.value

    def _tell(self, recorded: Recorded, before: str, after: str) -> None:
        subject = self._subject(recorded)
        change = f"  [{before} -> {after}]" if before and after and before != after else ""
        who = f" (asked by {recorded.actor})" if recorded.actor else ""
        told = f"{subject}{tell(recorded.event)}{change}{who}"
        click.echo(f"{recorded.position:>6}  {stamp(recorded.at)}  {told}")

    def _subject(self, recorded: Recorded) -> str:
        event = recorded.event
        return f"{self._names[event.job]}: " if isinstance(event, JobEvent) else ""

    def _write(self, recorded: Recorded, before: str, after: str) -> None:
        line = {
            "position": recorded.position,
            "at": recorded.at,
            "type": type(recorded.event).__name__,
            "subject": self._subject(recorded).removesuffix(": "),
            "told": tell(recorded.event),
            "phase_before": before or None,
            "phase_after": after or None,
        }
        click.echo(msgspec.json.encode(line))
