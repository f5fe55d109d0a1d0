"""Jobs as tables: the list, one job in full, and the reasons of its state."""

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from cli.output.tables import Column, Table, phase
from cli.output.times import span, stamp
from controlplane.event_messages import gpu_count, gpus
from controlplane.messages import words
from controlplane.model.phases import FINISHED, Phase
from controlplane.model.spec import JobSpec, Role
from controlplane.queries.views import (
    ArrayView,
    AttemptView,
    EstimateView,
    JobDetail,
    JobView,
    RankView,
    RestartView,
    Why,
)

NAMESPACE = Column("NAMESPACE")
COLUMNS = (
    Column("NAME"),
    Column("KIND"),
    Column("PHASE"),
    Column("RANKS", right=True),
    Column("GPUS", right=True),
    Column("RESTARTS", right=True),
    Column("AGE", right=True),
    Column("NOTE", flexible=True),
)
WIDE_COLUMNS = (
    NAMESPACE,
    Column("NAME"),
    Column("ID"),
    Column("KIND"),
    Column("QUEUE"),
    Column("PRIORITY", right=True),
    Column("PHASE"),
    Column("RANKS", right=True),
    Column("GPUS", right=True),
    Column("HELD", right=True),
    Column("ATTEMPT", right=True),
    Column("RESTARTS", right=True),
    Column("SUBMITTED"),
    Column("STARTED"),
    Column("FINISHED"),
    Column("REASON"),
    Column("MESSAGE"),
)


# ---------------------------------------------------------------- the list


def list_table(jobs: Iterable[JobView], now: float, *, all_namespaces: bool = False) -> Table:
    columns = (NAMESPACE, *COLUMNS) if all_namespaces else COLUMNS
    return Table(columns, [job_row(job, now, all_namespaces=all_namespaces) for job in jobs])


def job_row(job: JobView, now: float, *, all_namespaces: bool = False) -> list[str | Text]:
    first = [job.namespace] if all_namespaces else []
    return [
        *first,
        job.name,
        job.kind,
        phase(job.phase),
        f"{job.ranks_running}/{job.ranks}",
        gpu_count(job.gpus, job.gpu_memory_mib),
        str(job.restarts),
        span(now - job.submitted_at),
        note(job, now),
    ]


def note(job: JobView, now: float) -> str:
    """Return the most useful detail on a job's state, for its line in the list."""
    if job.deleting:
        return "being deleted"
    if job.array is not None:
        return array_note(job.array)
    match job.phase:
        case Phase.QUEUED if job.waits_for:
            return f"after {', '.join(job.waits_for)}"
        case Phase.QUEUED:
            return f"waits for {span(now - job.queued_at)}"
        case Phase.UNSCHEDULABLE:
            return job.message
        case Phase.STARTING:
            return f"{job.ranks_running} of {job.ranks} ranks are up"
        case Phase.RUNNING:
            return _running(job, now)
        case Phase.RESTARTING:
            return _restarting(job, now)
        case Phase.SUCCEEDED:
            return f"ran {ran(job, now)}"
        case Phase.FAILED:
            return ": ".join(part for part in (words(job.reason), job.message) if part)
        case Phase.SUSPENDED | Phase.CANCELLED:
            return ""


def array_note(array: ArrayView) -> str:
    """Return how many indices of an array are in each phase; phases with none are left out."""
    names = ("pending", "queued", "running", "suspended", "succeeded", "failed", "cancelled")
    counts = [f"{count} {name}" for name in names if (count := getattr(array, name))]
    return f"array of {array.total}: {', '.join(counts)}"


def _running(job: JobView, now: float) -> str:
    # `running_at` is that of the first attempt; of a later attempt the view has only the placement.
    if job.attempt > 1 and job.placed_at is not None:
        return f"attempt {job.attempt}, for {span(now - job.placed_at)}"
    return "" if job.running_at is None else f"for {span(now - job.running_at)}"


def _restarting(job: JobView, now: float) -> str:
    left = None if job.retry_at is None else job.retry_at - now
    when = f"in {span(left)}" if left is not None and left > 0 else "soon"
    return f"again {when}: {job.message or words(job.reason)}"


def ran(job: JobView, now: float) -> str:
    """Return the time from the job's first start until its end or `now`."""
    if job.running_at is None:
        return "-"
    return span((now if job.finished_at is None else job.finished_at) - job.running_at)


def wide_table(jobs: Iterable[JobView]) -> Table:
    return Table(WIDE_COLUMNS, [_wide_row(job) for job in jobs])


def _wide_row(job: JobView) -> list[str | Text]:
    return [
        job.namespace,
        job.name,
        job.id,
        job.kind,
        job.queue,
        str(job.priority),
        phase(job.phase),
        f"{job.ranks_running}/{job.ranks}",
        gpu_count(job.gpus, job.gpu_memory_mib),
        gpu_count(job.gpus_held),
        str(job.attempt),
        str(job.restarts),
        stamp(job.submitted_at),
        stamp(job.running_at),
        stamp(job.finished_at),
        job.reason or "-",
        job.message or "-",
    ]


# ---------------------------------------------------------------- one job


def detail(job_detail: JobDetail, now: float) -> RenderableType:
    parts: list[RenderableType] = [_facts(job_detail, now)]
    if job_detail.attempt is not None:
        parts += [Text(""), _ranks_table(job_detail.attempt, now)]
    if job_detail.restarts:
        parts += [Text(""), _restarts_table(job_detail.restarts, now)]
    return Group(*parts)


def _facts(job_detail: JobDetail, now: float) -> Grid:
    job, spec = job_detail.job, job_detail.spec
    facts: list[tuple[str, str | Text]] = [
        ("Job", f"{job.namespace}/{job.name}"),
        ("Kind", job.kind),
        ("Phase", Text.assemble(phase(job.phase), _phase_extra(job, now))),
        ("Queue", f"{job.queue}, priority {job.priority}"),
        ("Gang", _gang(spec, job)),
        ("Submitted", f"{stamp(job.submitted_at)} ({span(now - job.submitted_at)} ago)"),
    ]
    if spec.after:
        facts.append(("After", ", ".join(map(str, spec.after))))
    if job.owner:
        facts.append(("Array", f"index {job.index} of {job.owner}"))
    if job.array is not None:
        limit = "" if job.array.limit is None else f", at most {job.array.limit} at a time"
        facts.append(("Array", f"{job.array.indices}{limit}"))
        facts += [(name.capitalize(), text) for name, text in job_detail.indices.items()]
    if job.running_at is not None:
        waited = span(job.running_at - job.submitted_at)
        facts.append(("Started", f"{stamp(job.running_at)} (after {waited})"))
    if job.finished_at is not None:
        ran_for = "" if job.array is not None else f" (ran {ran(job, now)})"
        facts.append(("Finished", f"{stamp(job.finished_at)}{ran_for}"))
    if job_detail.commits:
        facts.append(("Code", ", ".join(job_detail.commits)))
    if job.array is None:
        facts.append(("Restarts", _budget(job)))
    if job.message or job.reason:
        facts.append(("Reason", ": ".join(p for p in (words(job.reason), job.message) if p)))
    if job_detail.failure is not None and job_detail.failure.lines:
        facts.append((f"Last of {job_detail.failure.name}", "\n".join(job_detail.failure.lines)))
    grid = Grid.grid(padding=(0, 2, 0, 0))
    for name, value in facts:
        grid.add_row(Text(name, style="bold"), value)
    return grid


def _phase_extra(job: JobView, now: float) -> str:
    if job.phase in FINISHED or job.phase is Phase.SUSPENDED:
        return ", being deleted" if job.deleting else ""
    more = note(job, now)
    return f", {more}" if more else ""


def _gang(spec: JobSpec, job: JobView) -> str:
    roles = ", ".join(
        f"{role.replicas} {role.name}" + (f" x {each}" if (each := _each(role)) else "")
        for role in spec.roles
    )
    together = f"{gpu_count(0, job.gpu_memory_mib)} of GPU memory"
    return f"{roles} ({gpus(job.gpus) if job.gpus or not job.gpu_memory_mib else together})"


def _each(role: Role) -> str:
    """Return the GPUs of each rank of a role."""
    if role.gpu_memory_mib:
        return f"{gpu_count(0, role.gpu_memory_mib)} of a GPU's memory"
    return gpus(role.gpu_milli / 1_000) if role.gpu_milli else ""


def _budget(job: JobView) -> str:
    if job.failures_max is None:
        return f"{job.restarts} (no limit on retries)"
    return f"{job.restarts} ({job.failures} of {job.failures_max} retries used)"


def _ranks_table(attempt: AttemptView, now: float) -> Table:
    columns = (
        Column("RANK", right=True),
        Column("NAME"),
        Column("STATE"),
        Column("NODE"),
        Column("GPUS"),
        Column("FOR", right=True),
        Column("EXIT", right=True),
        Column("NOTE", flexible=True),
    )
    return Table(columns, [_rank_row(rank, now) for rank in attempt.ranks])


def _rank_row(rank: RankView, now: float) -> list[str | Text]:
    lasted = None
    if rank.started_at is not None:
        lasted = (now if rank.ended_at is None else rank.ended_at) - rank.started_at
    cause = words(rank.cause) if rank.cause and rank.exit_code != 0 else ""
    return [
        str(rank.rank),
        rank.name,
        rank.state.value,
        rank.node,
        indices(rank.devices, rank.share),
        span(lasted),
        "-" if rank.exit_code is None else str(rank.exit_code),
        rank.message or cause,
    ]


def indices(devices: Sequence[int], share: int = 0) -> str:
    """Return device indices with runs joined: 0-3,6; or one index with its share: 0 (25%)."""
    if not devices:
        return "-"
    if share:
        return f"{devices[0]} ({share / 10:g}%)"
    runs: list[list[int]] = []
    for device in sorted(devices):
        if runs and device == runs[-1][-1] + 1:
            runs[-1].append(device)
        else:
            runs.append([device])
    return ",".join(str(r[0]) if len(r) == 1 else f"{r[0]}-{r[-1]}" for r in runs)


def _restarts_table(restarts: Sequence[RestartView], now: float) -> Table:
    columns = (
        Column("RESTART", right=True),
        Column("AGO", right=True),
        Column("CAUSE"),
        Column("RETRY"),
        Column("WHAT HAPPENED", flexible=True),
    )
    rows = [
        (
            str(number),
            span(now - restart.at),
            words(restart.cause),
            "spent" if restart.spends_budget else "free",
            restart.message or "-",
        )
        for number, restart in enumerate(restarts, 1)
    ]
    return Table(columns, rows)


# ---------------------------------------------------------------- why


def why_text(why: Why, *, with_start: bool = True) -> RenderableType:
    """Return the reasons of a job's state.

    `with_start` is false where a forecast follows, which then gives the only time of its start.
    """
    head = Text.assemble(f"{why.namespace}/{why.name} is ", phase(why.phase), f": {why.summary}")
    lines: list[RenderableType] = [head]
    # The summary of a queued job already has the first reason.
    for r in why.reasons:
        tier = f"[{r.tier}] " if r.tier else ""
        if r.message not in why.summary:
            lines.append(Text(f"  - {tier}{r.message}"))
        lines += [Text(f"      {name}: {room}") for name, room in list(r.by_domain.items())[:20]]
        if r.until is not None:
            lines.append(Text(f"    until {stamp(r.until)}"))
        if r.helps:
            lines.append(Text(f"    what would help: {r.helps}"))
    if why.planned_at is not None and with_start:
        lines.append(Text(f"  planned to start at {stamp(why.planned_at)}"))
    if why.estimate is not None:
        lines.append(Text(f"  {estimate_line(why.estimate)}"))
    if why.ahead:
        lines.append(Text(f"  ahead of it: {', '.join(why.ahead)}"))
    return Group(*lines)


_SOURCES = {
    "estimate": "its own estimate",
    "limit": "its own limit",
    "default": "the policy's default, as too few jobs like it have succeeded yet",
}


def estimate_line(estimate: EstimateView) -> str:
    """Return the expected run time of a job, and its source."""
    planned = f"planned to run {span(estimate.planned_s)}"
    if estimate.median_s is None or estimate.p90_s is None:
        return f"{planned}: {_SOURCES[estimate.source]}"
    return (
        f"{planned}: learned from {estimate.jobs} jobs that succeeded ({estimate.alike}); "
        f"half ran at most {span(estimate.median_s)}, nine in ten at most {span(estimate.p90_s)}"
    )
