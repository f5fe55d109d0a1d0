"""`muster events`: what happened to a job, or at all."""

import click
import msgspec

from api.frames import EventView
from cli.client import connect, job_path, run
from cli.live import EVENTS, follow, told_of
from cli.options import complete_job, namespace_option, output_option, parse_job, url_option
from cli.tables import Column, Table, write
from cli.times import clock_time, stamp
from cli.watching import head_position

# Of the whole log, this many of the latest events are shown unless asked otherwise.
LATEST = 50


@click.command()
@click.argument("job", required=False, shell_complete=complete_job)
@namespace_option
@click.option("-w", "--watch", is_flag=True, help="Go on with what happens.")
@click.option("--after", type=click.IntRange(0), help="Begin behind this position of the log.")
@output_option("table", "wide", "json")
@url_option
def events(
    job: str | None,
    namespace: str,
    watch: bool,
    after: int | None,
    output: str,
    url: str | None,
) -> None:
    """Show what happened to a job; without a job, what happened last in the whole cluster.

    -o json writes one event a line, as the log has them.

    \b
    Examples:
      muster events bert
      muster events --watch
      muster events --after 4700 -o json
    """
    path = EVENTS if job is None else job_path(*parse_job(job, namespace), "/events")
    run(_events(url, path, after, watch, output))


async def _events(url: str | None, path: str, after: int | None, watch: bool, output: str) -> None:
    async with connect(url) as server:
        if after is None:
            after = max(0, await head_position(server) - LATEST) if path == EVENTS else 0
        if not watch:
            found = await server.all_pages(path, EventView, after=after)
            _show(found, output)
            return
        async for view in follow(server, after, path):
            _say(view, output)


def _show(found: list[EventView], output: str) -> None:
    if output == "json":
        for view in found:
            _say(view, output)
        return
    show_at = stamp if output == "wide" else clock_time
    columns = [Column("POSITION", right=True), Column("TIME")]
    columns += [Column("ABOUT"), Column("CAUSE"), Column("BY")] if output == "wide" else []
    columns += [Column("EVENT"), Column("WHAT HAPPENED", flexible=True)]
    rows = []
    for view in found:
        about = [view.stream, view.cause or "-", view.actor or "-"] if output == "wide" else []
        told = told_of(view)
        rows.append([str(view.position), show_at(view.at), *about, view.type, told])
    write(Table(columns, rows))


def _say(view: EventView, output: str) -> None:
    if output == "json":
        click.echo(msgspec.json.encode(view))
        return
    when = stamp(view.at) if output == "wide" else clock_time(view.at)
    told = told_of(view)
    click.echo(f"{view.position:>8}  {when}  {view.type:<18}  {told}")
