"""Jobs of a snapshot side by side: what they have in common is written once.

Most jobs of a long log are finished, and differ in little but their names, times and places. A
sheet has columns of what nearly always differs. For all else a job says which pattern it is like,
and which spec: those of the first one on the sheet that was the same in this. So nothing of any job
is lost, and one that is like no other has a pattern and a spec of its own.
"""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from controlplane.image import Sheet
from controlplane.job import Job
from controlplane.model import DoneWhen, JobSpec

_encode = msgspec.msgpack.Encoder(order="deterministic").encode


def sheet_of(jobs: Iterable[Job]) -> Sheet:
    """The jobs as one sheet, in the same order."""
    sheet = Sheet()
    patterns: dict[bytes, int] = {}
    specs: dict[bytes, int] = {}
    for job in jobs:
        bare, spec = _bare(job), job.spec
        number = patterns.setdefault(_encode(bare), len(patterns))
        if number == len(sheet.patterns):
            sheet.patterns.append(bare)
        sheet.pattern_of.append(number)
        # A spec is kept with its length: where all have the same length, all have one spec.
        timeless = replace(spec, workload=replace(spec.workload, duration_s=0.0))
        number = specs.setdefault(_encode(timeless), len(specs))
        if number == len(sheet.specs):
            sheet.specs.append(spec)
        sheet.spec_of.append(number)
        _add(sheet, job)
    return sheet


_NO_SPEC = JobSpec(roles=(), done_when=DoneWhen(""))


def _bare(job: Job) -> Job:
    """What is left of a job without its spec and that of which there are columns."""
    attempt = job.attempt
    if attempt is not None:
        attempt = replace(
            attempt, placement=(), ranks=(), placed_at=0.0, running_at=None, ended_at=None
        )
    return replace(
        job,
        id="",
        name="",
        spec=_NO_SPEC,
        submitted_at=0.0,
        submitted_as=0,
        queued_as=0,
        queued_at=0.0,
        attempt=attempt,
        active_at=None,
        running_at=None,
        finished_at=None,
    )


def _add(sheet: Sheet, job: Job) -> None:
    sheet.ids.append(job.id)
    sheet.names.append(job.name)
    sheet.durations_s.append(job.spec.workload.duration_s)
    sheet.submitted_at.append(job.submitted_at)
    sheet.submitted_as.append(job.submitted_as)
    sheet.queued_as.append(job.queued_as)
    sheet.queued_at.append(job.queued_at)
    sheet.active_at.append(job.active_at)
    sheet.running_at.append(job.running_at)
    sheet.finished_at.append(job.finished_at)
    if (attempt := job.attempt) is not None:
        sheet.placements.append(attempt.placement)
        sheet.ranks.append(attempt.ranks)
        sheet.placed_at.append(attempt.placed_at)
        sheet.came_up_at.append(attempt.running_at)
        sheet.ended_at.append(attempt.ended_at)


def jobs_of(sheet: Sheet) -> list[Job]:
    """The jobs of a sheet, in its order."""
    jobs: list[Job] = []
    attempts = _rows(
        sheet.placements, sheet.ranks, sheet.placed_at, sheet.came_up_at, sheet.ended_at
    )
    for (
        like, asks, job_id, name, duration_s, at, came_as, queued_as, queued_at, active_at, up, over
    ) in _rows(
        sheet.pattern_of, sheet.spec_of, sheet.ids, sheet.names, sheet.durations_s,
        sheet.submitted_at, sheet.submitted_as, sheet.queued_as, sheet.queued_at, sheet.active_at,
        sheet.running_at, sheet.finished_at,
    ):  # fmt: skip
        pattern, spec = sheet.patterns[like], sheet.specs[asks]
        attempt = pattern.attempt
        if duration_s != spec.workload.duration_s:
            spec = replace(spec, workload=replace(spec.workload, duration_s=duration_s))
        if attempt is not None:
            placement, ranks, placed_at, came_up_at, ended_at = next(attempts)
            attempt = replace(
                attempt,
                placement=placement,
                ranks=ranks,
                placed_at=placed_at,
                running_at=came_up_at,
                ended_at=ended_at,
            )
        jobs.append(
            replace(
                pattern,
                id=job_id,
                name=name,
                spec=spec,
                submitted_at=at,
                submitted_as=came_as,
                queued_as=queued_as,
                queued_at=queued_at,
                attempt=attempt,
                active_at=active_at,
                running_at=up,
                finished_at=over,
            )
        )
    return jobs


def _rows(*columns: list[Any]) -> "zip[tuple[Any, ...]]":
    return zip(*columns, strict=True)
