"""`muster fork`: the past, carried on by the simulator with a change, and a control beside it."""

import asyncio
from collections.abc import Iterator

import click

from cli.cluster_files import read_cluster
from cli.complaints import Complaint
from cli.narration import tell
from cli.options import log_argument
from cli.sources import parse_source, reading
from cli.tables import Column, Table, write, write_json
from cli.times import parse_span, parse_time, span, stamp
from cli.transfer import end_of
from controlplane.difference import Said
from controlplane.events import JobEvent
from simulator.topology import ClusterModel
from studies.fork import Forked, ForkError, fork, parse_change
from studies.fork.comparison import JobApart, Parting, Totals
from studies.fork.fork import ModelError
from studies.fork.past import NodeFault

JOBS_MAX = 20


@click.command("fork")
@log_argument
@click.option("--at", "moment", metavar="TIME", required=True, help="Where the futures part.")
@click.option("--until", metavar="TIME", help="Where they end; the log's end if left out.")
@click.option(
    "--set",
    "settings",
    metavar="NAME=VALUE",
    multiple=True,
    help="policy=DISCIPLINE, policy.FIELD=VALUE or queue.NAME.FIELD=VALUE.",
)
@click.option("--add-nodes", type=click.IntRange(0), default=0, help="More nodes like the first.")
@click.option("--cordon", metavar="NODE", multiple=True, help="This node takes no new work.")
@click.option(
    "--without-fault", metavar="NODE|all", multiple=True, help="Its later faults do not happen."
)
@click.option(
    "--with-fault", metavar="NODE@TIME[+SPAN]", multiple=True, help="It fails, and is back after."
)
@click.option("--cluster", metavar="FILE", help="The file of the simulated cluster that it was.")
@click.option("--price", type=click.FloatRange(0), default=2.0, help="Of a GPU-hour.")
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
    """What would have happened otherwise: two futures of the same past, side by side.

    The past is the log's up to TIME. From there the simulator carries the same world on, twice: as
    it was, and with the change. Both get the same later requests and the same faults of nodes as
    really happened. The first one, the control, says how good the model is: its distance from what
    really happened is printed with the answer.

    Jobs work as long as they really did; where the log is of a simulated cluster, as their manifests
    say. Name that cluster's file with --cluster for its delays and its seed. Without LOG, that of
    `muster up` is meant.

    \b
    Examples:
      muster fork --at 2026-11-16T03:12:00Z --cordon rack-0-1
      muster fork incident.bundle --at -2h --set queue.research.gpus_max=64
      muster fork muster.db --at -1d --set policy=easy_backfill
      muster fork muster.db --at -1d --until -12h --add-nodes 4 --json
      muster fork muster.db --at -6h --with-fault rack-0-0@-5h+30m
    """
    wanted = _Wanted(moment, until, settings, add_nodes, cordon, without_fault, with_fault)
    model = None if cluster is None else read_cluster(f"sim:{cluster}", None)
    forked, names = asyncio.run(_forked(source, wanted, model, price))
    if as_json:
        write_json(forked)
    else:
        _show(forked, names)


class _Wanted:
    """What was written on the command line; times are read when the log's end is known."""

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
            raise Complaint(str(error)) from None
        return forked, forked.names


def _fault(text: str, end: float) -> NodeFault:
    """NODE@TIME or NODE@TIME+SPAN."""
    node, sign, rest = text.partition("@")
    when, plus, length = rest.partition("+")
    if not node or not sign or not when:
        raise ValueError(f"{text!r} is no fault; write NODE@TIME or NODE@TIME+30m")
    at = parse_time(when, end=end)
    return NodeFault(at, node, "asked for", at + parse_span(length) if plus else None)


def _show(forked: Forked, names: dict[str, str]) -> None:
    click.echo(f"Forked at {stamp(forked.at)}, until {stamp(forked.until)}.")
    for told in forked.changes or ["nothing"]:
        click.echo(f"  changed   {told}")
    click.echo(f"  work      {forked.work}")
    click.echo(f"  model     {_model(forked.error)}")
    for line in _parted("they part", forked.comparison.parting, names):
        click.echo(line)
    if forked.first_decision != forked.comparison.parting:
        for line in _parted("decision", forked.first_decision, names):
            click.echo(line)
    for told in forked.refused:
        click.echo(f"  refused   {told}")
    for told in forked.unschedulable:
        click.echo(f"  set aside {told}")
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
    yield f"    control   {_said(parting.one, names)}"
    yield f"    changed   {_said(parting.other, names)}"


def _said(said: Said | None, names: dict[str, str]) -> str:
    if said is None:
        return "nothing then"
    event = said.event
    who = f"{names.get(event.job, event.job)}: " if isinstance(event, JobEvent) else ""
    return f"{who}{tell(event)}"


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
