"""`muster replay`: the world at any past instant, from the log alone."""

import asyncio
from itertools import islice

import click
import msgspec
from rich.console import Group, RenderableType
from rich.text import Text

from api.history import past
from cli.errors import NO_SUCH_JOB, WRONG_USAGE, CliError
from cli.log import replay_watch
from cli.log.exported_log import ExportedLog
from cli.log.replay_steps import Step, Stepper, Steps
from cli.log.sources import parse_source, reading
from cli.log.transfer import ends_in, events_after
from cli.options import log_argument
from cli.output.cluster_tables import nodes_table, queues_table
from cli.output.job_tables import detail, list_table, why_text
from cli.output.tables import write, write_json
from cli.output.times import parse_time, stamp
from controlplane.lifecycle.job import Job
from controlplane.log.replay import beginning, rebuild
from controlplane.log.snapshots import state_hash
from controlplane.ports import EventLog
from controlplane.queries.queries import job_view, node_view, queue_view
from controlplane.queries.queries import nodes as known_nodes
from controlplane.state.world import World


@click.command()
@log_argument
@click.option("--at", "moment", metavar="TIME", help="Show the state at this time.")
@click.option("--position", type=click.IntRange(0), help="Show the state after this event.")
@click.option("--step", is_flag=True, help="List every event, what it changed and why.")
@click.option("--from", "first", metavar="POSITION|TIME", help="--step and --watch begin here.")
@click.option("--until", metavar="POSITION|TIME", help="--step and --watch end here.")
@click.option("--job", metavar="NAME", help="Only this job: its name, NAMESPACE/NAME or id.")
@click.option("--node", metavar="NAME", help="Only this node, and the jobs that have ranks there.")
@click.option("--back", is_flag=True, help="With --step: newest event first.")
@click.option("--watch", is_flag=True, help="Play the log as an animation of the cluster.")
@click.option(
    "--speed",
    type=click.FloatRange(0.001),
    default=60.0,
    help="With --watch: log seconds per real second.",
)
@click.option("--all", "everything", is_flag=True, help="Show all jobs.")
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
def replay(
    source: str,
    moment: str | None,
    position: int | None,
    step: bool,
    first: str | None,
    until: str | None,
    job: str | None,
    node: str | None,
    back: bool,
    watch: bool,
    speed: float,
    everything: bool,
    as_json: bool,
) -> None:
    """Show jobs, nodes and queues as they were.

    LOG is a SQLite file, a postgresql:// URL, an exported .jsonl file, a bundle, or - for a pipe;
    without it the log of `muster up` is read. A running server is not disturbed. TIME is
    2026-11-16T03:12:00Z, UTC seconds, or -10m for ten minutes before the log's end. Without --at
    and --position, the end is shown.

    \b
    Examples:
      muster replay --at 2026-11-16T03:12:00Z
      muster replay incident.jsonl --position 4711 --json
      muster replay muster.db --step --from 4700 --position 4711
      muster replay muster.db --at -2h --job team/flaky
      muster replay muster.db --step --job team/flaky --from -2h
      muster replay muster.db --step --node rack-0-1 --back
      muster replay incident.bundle --watch --speed 600
    """
    if moment is not None and position is not None:
        raise click.UsageError("--at and --position name two different ends; give one.")
    if until is not None and (moment is not None or position is not None):
        raise click.UsageError("--until is the end of a walk; leave --at and --position out.")
    if watch and (step or as_json or back):
        raise click.UsageError("--watch is a film: it takes neither --step, --back nor --json.")
    if watch:
        asyncio.run(replay_watch.play(source, first, until or moment or _text(position), speed))
        return
    pictured = moment is not None or position is not None
    selected = job is not None or node is not None
    if step or back or first is not None or until is not None or (selected and not pictured):
        steps = Steps(job, node)
        asyncio.run(_walk(source, first, until or moment or _text(position), steps, back, as_json))
        return
    world = asyncio.run(_world(source, moment, position))
    if as_json:
        write_json(past.state_of(world, "" if job is None else _full(world, job)))
    elif job is not None:
        _show_job(world, _full(world, job))
    else:
        write(picture(world, everything=everything))


def _full(world: World, name: str) -> str:
    """Return NAMESPACE/NAME of the job with this name or id; raise CliError if there was none."""
    for job in world.jobs.values():
        if name in (job.id, job.name, f"{job.namespace}/{job.name}"):
            return f"{job.namespace}/{job.name}"
    raise CliError(f"there was no job {name} then", exit_code=NO_SUCH_JOB)


def _show_job(world: World, name: str) -> None:
    then = past.job_then(world, name)
    click.echo(f"After event {world.position}, at {stamp(world.at)}\n")
    write(detail(then.detail, world.at))
    click.echo()
    write(why_text(then.why))


def _text(position: int | None) -> str | None:
    return None if position is None else str(position)


async def _world(text: str, moment: str | None, position: int | None) -> World:
    async with reading(parse_source(text)) as log:
        _require_beginning(log, text, position)
        at = None if moment is None else await _time(log, moment)
        begins = (await beginning(log)).world
        if at is not None and at < begins.at:
            raise CliError(f"the log begins after {stamp(at)}", exit_code=WRONG_USAGE)
        world = (await rebuild(log, position=position, at=at)).world
    if position is not None and world.position < position:
        raise CliError(
            f"the log ends at position {world.position}, before {position}", exit_code=WRONG_USAGE
        )
    if at is not None and world.position == 0:
        raise CliError(f"the log begins after {stamp(at)}", exit_code=WRONG_USAGE)
    return world


async def _walk(
    text: str, first: str | None, last: str | None, steps: Steps, back: bool, as_json: bool
) -> None:
    matching: list[Step] = []
    count = 0
    async with reading(parse_source(text)) as log:
        _require_beginning(log, text, None)
        begin, end = await ends_in(log, first, last)
        begins, head = (await beginning(log)).world.position, (await log.head()).position
        if end is not None and end > head:
            raise CliError(f"the log ends at position {head}, before {end}", exit_code=WRONG_USAGE)
        rebuilt = await rebuild(log, position=max(begins, begin - 1))
        walker, digest = Stepper(rebuilt.world, steps), rebuilt.hash
        last_position = head if end is None else end
        async for recorded in events_after(log, rebuilt.world.position, last_position, digest):
            step = walker.hear(recorded)
            if step is None:
                continue
            count += 1
            if back:
                matching.append(step)
            else:
                _print_step(step, as_json)
    for step in reversed(matching):
        _print_step(step, as_json)
    if not count:
        _explain_no_steps(walker.world, steps)


def _explain_no_steps(world: World, steps: Steps) -> None:
    """Explain an empty result: raise CliError if the job or node never existed.

    A time span without events is not an error.
    """
    if steps.job is not None:
        _full(world, steps.job)
    if steps.node is not None and steps.node not in world.nodes:
        raise CliError(f"there was no node {steps.node} then")
    click.echo("nothing happened in that span", err=True)


def _print_step(step: Step, as_json: bool) -> None:
    click.echo(msgspec.json.encode(step) if as_json else step.line())


def _require_beginning(log: EventLog, text: str, position: int | None) -> None:
    if not isinstance(log, ExportedLog):
        return
    if log.base is not None:
        if position is not None and position < log.base.position:
            message = f"{text} begins with the state after event {log.base.position}"
            raise CliError(f"{message}; what was before is not in it", exit_code=WRONG_USAGE)
        return
    if log.first_position() > 1:
        raise CliError(
            f"{text} begins at position {log.first_position()}, and the world before is not known",
            hint="Export the log from its beginning, without --from; or a part as a --bundle.",
        )


async def _time(log: EventLog, text: str) -> float:
    last = (await log.head()).position
    rows = await log.read(last - 1, 1) if last else []
    try:
        return parse_time(text, end=rows[0].at if rows else 0.0)
    except ValueError as error:
        raise click.BadParameter(f"{error}.", param_hint="--at") from None


# The number of finished jobs that are shown, the latest; and the number of unfinished ones.
FINISHED_SHOWN = 50
UNFINISHED_SHOWN = 1_000


def picture(world: World, *, everything: bool = False) -> RenderableType:
    head = f"After event {world.position}, at {stamp(world.at)}; state {state_hash(world)[:12]}"
    parts: list[RenderableType] = [Text(head, style="bold"), Text("")]
    jobs = list(world.jobs.values()) if everything else _worth_showing(world)
    views = [job_view(job) for job in jobs]
    parts.append(list_table(views, world.at, all_namespaces=True) if views else "no jobs")
    if left := len(world.jobs) - len(jobs):
        parts.append(Text(f"... and {left:,} more, most of them finished; --all shows every job"))
    if nodes := [node_view(world, node) for node in known_nodes(world)]:
        parts += [Text(""), nodes_table(nodes)]
    queues = [view for name in sorted(world.queues) if (view := queue_view(world, name))]
    return Group(*parts, Text(""), queues_table(queues))


def _worth_showing(world: World) -> list[Job]:
    """Return the first unfinished jobs and the latest finished ones, in order of submission."""
    finished = [job for job in world.jobs.values() if job.finished_at is not None]
    finished.sort(key=lambda job: job.finished_at or 0.0)
    others = (job for job in world.jobs.values() if job.finished_at is None)
    shown = [*islice(others, UNFINISHED_SHOWN), *finished[-FINISHED_SHOWN:]]
    return sorted(shown, key=lambda job: job.submitted_position)
