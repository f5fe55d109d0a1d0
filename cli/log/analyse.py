"""`muster analyse`: what failed in a log, where, whose jobs, and what it cost."""

import asyncio

import click

from cli.errors import WRONG_USAGE, CliError
from cli.log.sources import parse_source, reading
from cli.log.transfer import end_of
from cli.options import log_argument
from cli.output.tables import Column, Table, write, write_json
from cli.output.times import parse_time, span, stamp
from controlplane.event_messages import gpu_count
from studies.analysis import Analysis, EmptySpan, Fit, Flapping, Group, NodeRecord, analyse

NODES_MAX = 10


@click.command("analyse")
@log_argument
@click.option("--from", "since", metavar="TIME", help="Where to begin.")
@click.option("--to", "until", metavar="TIME", help="Where to end.")
@click.option(
    "--json", "as_json", is_flag=True, help="Write JSON, which includes the fits for studies."
)
def analyse_command(source: str, since: str | None, until: str | None, as_json: bool) -> None:
    """Summarise restarts and failures by cause, node, user, image and exit code.

    It also lists nodes and jobs that fail often, and fits fault rates for studies.

    An attempt that did not succeed counts with all GPU-hours it held: the log does not record
    whether a checkpoint saved some of its work. Times are 2026-11-16T03:12:00Z, or -6h. Without
    LOG, the log of `muster up` is read.

    \b
    Examples:
      muster analyse --from -1d
      muster analyse incident.bundle --json
    """
    analysis = asyncio.run(_analysed(source, since, until))
    if as_json:
        write_json(analysis)
    else:
        _show(analysis)


async def _analysed(source: str, since: str | None, until: str | None) -> Analysis:
    async with reading(parse_source(source)) as log:
        end = await end_of(log)
        try:
            first, last = (None if x is None else parse_time(x, end=end) for x in (since, until))
        except ValueError as error:
            raise click.UsageError(f"{error}.") from None
        try:
            return await analyse(log, since=first, until=last)
        except EmptySpan as error:
            raise CliError(str(error), exit_code=WRONG_USAGE) from None


def _show(analysis: Analysis) -> None:
    length = span(analysis.until - analysis.since)
    click.echo(f"{stamp(analysis.since)} to {stamp(analysis.until)} ({length})")
    click.echo(
        f"{analysis.jobs:,} jobs: {analysis.succeeded:,} succeeded, {analysis.failed:,} failed; "
        f"{analysis.attempts_lost:,} attempts failed; {analysis.gpu_hours:,.1f} GPU-hours, "
        f"{analysis.gpu_hours_lost:,.1f} of them lost"
    )
    for title, groups in (
        ("CAUSE", analysis.by_cause),
        ("NODE", analysis.by_node),
        ("USER", analysis.by_user),
        ("IMAGE", analysis.by_image),
        ("EXIT CODE", analysis.by_exit_code),
    ):
        if groups:
            click.echo()
            write(_groups(title, groups))
    if analysis.nodes:
        click.echo()
        write(_nodes(analysis.nodes[:NODES_MAX]))
    if analysis.flapping:
        click.echo()
        write(_flapping(analysis.flapping))
    click.echo()
    _show_fit(analysis.fit)


def _groups(title: str, groups: list[Group]) -> Table:
    right = {"right": True}
    columns = (
        Column(title),
        Column("ATTEMPTS", **right),
        Column("JOBS", **right),
        Column("GPU-HOURS LOST", **right),
    )
    return Table(
        columns,
        [[g.name, f"{g.attempts:,}", f"{g.jobs:,}", f"{g.gpu_hours_lost:,.2f}"] for g in groups],
    )


def _nodes(nodes: list[NodeRecord]) -> Table:
    columns = (
        Column("NODE"),
        Column("FAILED ATTEMPTS", right=True),
        Column("PER 100 GPU-HOURS", right=True),
        Column("LOSSES", right=True),
        Column("DOWN", right=True),
        Column("MTBF", right=True),
    )
    return Table(columns, [_node_row(node) for node in nodes])


def _node_row(node: NodeRecord) -> list[str]:
    rate = node.failures_per_gpu_hour
    return [
        node.node,
        f"{node.failed_attempts:,}",
        "-" if rate is None else f"{100 * rate:.1f}",
        f"{node.losses:,}",
        span(node.down_hours * 3600),
        "-" if node.mtbf_hours is None else span(node.mtbf_hours * 3600),
    ]


def _flapping(jobs: list[Flapping]) -> Table:
    columns = (
        Column("FLAPPING JOB"),
        Column("RESTARTS", right=True),
        Column("WITHIN", right=True),
        Column("MOSTLY BY"),
        Column("MOSTLY ON"),
    )
    rows = [
        [
            job.job,
            f"{job.restarts:,}",
            span(job.within_s),
            job.cause.replace("_", " "),
            f"{job.node} ({job.on_node})" if job.node else "-",
        ]
        for job in jobs
    ]
    return Table(columns, rows)


def _show_fit(fit: Fit) -> None:
    bursts = "" if fit.arrival_variation is None else f", variation {fit.arrival_variation:.2f}"
    click.echo(f"arrivals   {fit.jobs_per_hour:.1f} jobs an hour{bursts}")
    for name, spread in (("run times", fit.run_s), ("waits", fit.wait_s)):
        if spread is not None:
            click.echo(
                f"{name:<10} median {span(spread.median)}, p90 {span(spread.p90)}, "
                f"at most {span(spread.max)}; lognormal({spread.lognormal_mu:.2f}, "
                f"{spread.lognormal_sigma:.2f})"
            )
    sizes = ", ".join(f"{gpu_count(gpus)}: {100 * share:.0f}%" for gpus, share in fit.gpus.items())
    click.echo(f"GPUs       {sizes or '-'}")
    if fit.node_mtbf_hours is not None:
        repair = "-" if fit.node_repair_hours is None else span(fit.node_repair_hours * 3600)
        click.echo(f"nodes      MTBF {span(fit.node_mtbf_hours * 3600)}, repair {repair}")
