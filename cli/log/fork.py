"""`muster fork`: the past, continued by the simulator with a change, next to a control run."""

import asyncio
from collections.abc import Iterator

import click

from cli.cluster.cluster_files import read_cluster
from cli.errors import CliError
from cli.log.sources import parse_source, reading
from cli.log.transfer import end_of
from cli.options import log_argument
from cli.output.tables import Column, Table, write, write_json
from cli.output.times import parse_span, parse_time, span, stamp
from controlplane.audit.redecide import EventShown
from controlplane.event_messages import describe
from controlplane.model.events import JobEvent
from simulator.network.topology import ClusterModel
from studies.fork import Forked, ForkError, fork, parse_change
from studies.fork.comparison import JobApart, Parting, Totals
from studies.fork.fork import ModelError
from studies.fork.past import NodeFault, asked_for
from studies.fork.sentences import sentences

JOBS_MAX = 20


@click.command("fork")
@log_argument
@click.option("--at", "moment", metavar="TIME", required=True, help="When the change takes effect.")
@click.option("--until", metavar="TIME", help="When the simulation ends. Default: the log's end.")
@click.option(
    "--set",
    "settings",
    metavar="NAME=VALUE",
    multiple=True,
    help="policy=DISCIPLINE, policy.FIELD=VALUE or queue.NAME.FIELD=VALUE.",
)
@click.option(
    "--add-nodes", type=click.IntRange(0), default=0, help="Add this many nodes like the first."
)
@click.option("--cordon", metavar="NODE", multiple=True, help="Mark this node as unschedulable.")
@click.option(
    "--without-fault",
    metavar="NODE|all",
    multiple=True,
    help="Leave out later faults of this node.",
)
@click.option(
    "--with-fault",
    metavar="NODE@TIME[+SPAN]",
    multiple=True,
    help="Let this node fail, and return after SPAN.",
)
@click.option("--cluster", metavar="FILE", help="File of the simulated cluster that wrote the log.")
@click.option("--price", type=click.FloatRange(0), default=2.0, help="Price of a GPU-hour.")
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
def fork_command(
    source: str,
    moment: str,
    until: str | None,
    settings: tuple[str, ...],
    add_nodes: int,
    cordon: tuple[str, ...],
    without_fault: tuple[str, ...],
    with_fault: tuple[str, ...],
    cluster: str | None,
    price: float,
    as_json: bool,
) -> None:
    """Simulate what a change would have caused, from a time in the log.

    The past is the log's up to TIME. From there the simulator continues the same world twice: as
    it was, and with the change. Both get the same later requests and the same faults of nodes as
    really happened. The first one, the control, shows how good the model is: its distance from
    what really happened is printed with the answer.

    Jobs run as long as they really did; where the log is of a simulated cluster, as their manifests
    say. Name that cluster's file with --cluster for its delays and its seed. Without LOG, the log
    of `muster up` is read.

    \b
    Examples:
      muster fork --at 2026-11-16T03:12:00Z --cordon rack-0-1
      muster fork incident.bundle --at -2h --set queue.research.gpus_max=64
      muster fork muster.db --at -1d --set policy=easy
      muster fork muster.db --at -1d --until -12h --add-nodes 4 --json
      muster fork muster.db --at -6h --with-fault rack-0-0@-5h+30m
    """
    wanted = _Wanted(moment, until, settings, add_nodes, cordon, without_fault, with_fault)
    model = None if cluster is None else read_cluster(cluster)
    forked, names = asyncio.run(_forked(source, wanted, model, price))
    if as_json:
        write_json(forked)
    else:
        _show(forked, names)


class _Wanted:
    """The command line's arguments; times are parsed when the log's end is known."""

    def __init__(
        self,
        moment: str,
        until: str | None,
        settings: tuple[str, ...],
        add_nodes: int,
        cordon: tuple[str, ...],
        without_fault: tuple[str, ...],
        with_fault: tuple[str, ...],
    ) -> None:
        self.moment, self.until = moment, until
        self.settings, self.add_nodes, self.cordon = settings, add_nodes, cordon
        self.without_fault, self.with_fault = without_fault, with_fault


async def _forked(
    source: str, wanted: _Wanted, model: ClusterModel | None, price: float
) -> tuple[Forked, dict[str, str]]:
    async with reading(parse_source(source)) as log:
        end = await end_of(log)
        try:
            change = parse_change(
                settings=wanted.settings,
                add_nodes=wanted.add_nodes,
                cordon=wanted.cordon,
                without_fault=wanted.without_fault,
                with_fault=[_fault(text, end) for text in wanted.with_fault],
            )
            at = parse_time(wanted.moment, end=end)
            until = None if wanted.until is None else parse_time(wanted.until, end=end)
        except ValueError as error:
            raise click.UsageError(f"{error}.") from None
        try:
            forked = await fork(
                log, at=at, until=until, change=change, model=model, gpu_hour_price=price
            )
        except ForkError as error:
            raise CliError(str(error)) from None
        return forked, forked.names


def _fault(text: str, end: float) -> NodeFault:
    """Parse NODE@TIME or NODE@TIME+SPAN; `end` is the log's end."""
    node, sign, rest = text.partition("@")
    when, plus, length = rest.partition("+")
    if not node or not sign or not when:
        raise ValueError(f"{text!r} is not a fault; write NODE@TIME or NODE@TIME+30m")
    at = parse_time(when, end=end)
    return NodeFault(at, node, asked_for(node), at + parse_span(length) if plus else None)


def _show(forked: Forked, names: dict[str, str]) -> None:
    click.echo(f"Forked at {stamp(forked.at)}, until {stamp(forked.until)}.")
    for line in forked.changes or ["nothing"]:
        click.echo(f"  changed   {line}")
    click.echo(f"  work      {forked.work}")
    click.echo(f"  model     {_model(forked.error)}")
    for line in _parted("they part", forked.comparison.parting, names):
        click.echo(line)
    if forked.first_decision != forked.comparison.parting:
        for line in _parted("decision", forked.first_decision, names):
            click.echo(line)
    for line in forked.refused:
        click.echo(f"  refused   {line}")
    for line in forked.unschedulable:
        click.echo(f"  set aside {line}")
    click.echo()
    for line in sentences(forked):
        click.echo(line)
    click.echo()
    write(_totals(forked.comparison.one, forked.comparison.other))
    if forked.comparison.jobs:
        click.echo()
        write(_jobs(forked.comparison.jobs[:JOBS_MAX]))
        more = len(forked.comparison.jobs) - JOBS_MAX
        if more > 0:
            click.echo(f"and {more} more jobs; --json has them all")


def _model(error: ModelError) -> str:
    if error.is_exact:
        return "exact: the control is what really happened, event for event"
    if error.finish_s_median is None:
        return "no job ended both really and in the control"
    return (
        f"jobs of the control end {error.finish_s_median:.1f} s from the real ones (median; at most "
        f"{error.finish_s_max:.0f} s), {error.outcomes_apart} otherwise; "
        f"{error.gpu_hours_apart:.1f} GPU-hours apart"
    )


def _parted(word: str, parting: Parting | None, names: dict[str, str]) -> Iterator[str]:
    if parting is None:
        yield f"  {word:<9} never: both are the same"
        return
    yield f"  {word:<9} {stamp(parting.at)}"
    yield f"    control   {_event_line(parting.one, names)}"
    yield f"    changed   {_event_line(parting.other, names)}"


def _event_line(shown: EventShown | None, names: dict[str, str]) -> str:
    if shown is None:
        return "nothing then"
    event = shown.event
    who = f"{names.get(event.job, event.job)}: " if isinstance(event, JobEvent) else ""
    return f"{who}{describe(event)}"


def _totals(one: Totals, other: Totals) -> Table:
    columns = (Column(""), Column("CONTROL", right=True), Column("CHANGED", right=True))

    def row(name: str, a: float | None, b: float | None, form: str = "{:,}") -> list[str]:
        return [name, *("-" if x is None else form.format(x) for x in (a, b))]

    rows = [
        row("jobs", one.jobs, other.jobs),
        row("started", one.started, other.started),
        row("succeeded", one.succeeded, other.succeeded),
        row("failed", one.failed, other.failed),
        row("restarts", one.restarts, other.restarts),
        row("preemptions", one.preemptions, other.preemptions),
        row("mean wait (s)", one.wait_s_mean, other.wait_s_mean, "{:,.1f}"),
        row("GPU-hours", one.gpu_hours, other.gpu_hours, "{:,.2f}"),
        row("GPU-hours lost", one.gpu_hours_lost, other.gpu_hours_lost, "{:,.2f}"),
        row("cost", one.cost, other.cost, "{:,.2f}"),
    ]
    return Table(columns, rows)


def _jobs(jobs: list[JobApart]) -> Table:
    columns = (
        Column("JOB"),
        Column("OUTCOME"),
        Column("FINISHED"),
        Column("BY", right=True),
        Column("WAITED"),
        Column("RESTARTS", right=True),
    )
    return Table(columns, [_job_row(job) for job in jobs])


def _job_row(job: JobApart) -> list[str]:
    one, other = job.finished_at
    by = (
        "-"
        if one is None or other is None
        else f"{'+' if other >= one else '-'}{span(abs(other - one))}"
    )
    return [
        job.job,
        _arrow(*(x or "unfinished" for x in job.outcome)),
        _arrow(*(stamp(x)[11:19] if x else "-" for x in job.finished_at)),
        by,
        _arrow(*(span(x) for x in job.waited_s)),
        _arrow(*map(str, job.restarts)),
    ]


def _arrow(one: str, other: str) -> str:
    return one if one == other else f"{one} -> {other}"
