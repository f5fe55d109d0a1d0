"""`muster events`: the events of a job, or of the cluster."""

import click
import msgspec

from api.history.sse_frames import EventView
from cli.client.client import connect, job_path, run
from cli.client.event_stream import EVENTS, follow
from cli.client.refresh import head_position
from cli.options import complete_job, namespace_option, output_option, parse_job, url_option
from cli.output.tables import Column, Table, write
from cli.output.times import clock_time, stamp

# How many of the latest events of the whole log are shown by default.
LATEST = 50


@click.command()
@click.argument("job", required=False, shell_complete=complete_job)
@namespace_option
@click.option("-w", "--watch", is_flag=True, help="Show new events until interrupted.")
@click.option("--after", type=click.IntRange(0), help="Begin after this position of the log.")
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
    """Show the events of a job; without a job, the latest events of the whole cluster.

    -o json writes one event per line, as in the log.

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
            events = await server.all_pages(path, EventView, after=after)
            _show(events, output)
            return
        async for view in follow(server, after, path):
            _print_event(view, output)


def _show(events: list[EventView], output: str) -> None:
    if output == "json":
        for view in events:
            _print_event(view, output)
        return
    show_at = stamp if output == "wide" else clock_time
    columns = [Column("POSITION", right=True), Column("TIME")]
    columns += [Column("ABOUT"), Column("CAUSE"), Column("BY")] if output == "wide" else []
    columns += [Column("EVENT"), Column("WHAT HAPPENED", flexible=True)]
    rows = []
    for view in events:
        about = [view.stream, view.cause or "-", view.actor or "-"] if output == "wide" else []
        rows.append([str(view.position), show_at(view.at), *about, view.type, view.text])
    write(Table(columns, rows))


def _print_event(view: EventView, output: str) -> None:
    if output == "json":
        click.echo(msgspec.json.encode(view))
        return
    when = stamp(view.at) if output == "wide" else clock_time(view.at)
    click.echo(f"{view.position:>8}  {when}  {view.type:<18}  {view.text}")
