"""Jobs of a snapshot side by side: whatever they are, they come back as they were."""

import pytest
from msgspec.structs import replace

from controlplane import commands as c
from controlplane.errors import LogCorrupt
from controlplane.model import Exit, Role, Workload
from controlplane.ports import Snapshot
from controlplane.replay import FORMAT, open_snapshot, read_image, take_snapshot
from controlplane.sheets import jobs_of, sheet_of
from tests.controlplane.specification import Given, node, spec, submit


def finished(world: Given, number: int, duration_s: float = 60.0):
    """A job that came, ran and ended."""
    job, of = f"j{number}", spec(workload=Workload(duration_s=duration_s))
    world.when(submit(f"train-{number}", job, of)).when_scheduled().later(1)
    world.when(c.ReportRanks(job=job, attempt=1, started=(0, 1))).later(number)
    world.when(c.ReportRanks(job=job, attempt=1, exited=(Exit(0, 0), Exit(1, 0)))).later(1)
    world.when(c.ReportRanks(job=job, attempt=1, gone=(0, 1))).later(1)
    return world.world.jobs[job]


def test_jobs_that_differ_in_names_times_and_places_are_like_one():
    world = Given(node(), node("n2"))
    jobs = [finished(world, number, 60.0 + number) for number in range(1, 6)]
    sheet = sheet_of(jobs)

    assert all(job.finished for job in jobs)
    assert (len(sheet.patterns), len(sheet.specs)) == (1, 1)
    assert jobs_of(sheet) == jobs


def test_jobs_of_one_length_have_one_spec():
    world = Given(node())
    first, second = jobs_of(sheet_of([finished(world, number) for number in (1, 2)]))

    assert first.spec is second.spec


def test_what_has_no_column_makes_a_pattern_or_a_spec():
    world = Given(node())
    job = finished(world, 1)
    odd = [
        replace(job, id="j2", namespace="elsewhere"),
        replace(job, id="j3", message="it ran out of memory"),
        replace(job, id="j4", spec=replace(job.spec, roles=(Role(name="Worker", image="other"),))),
        replace(job, id="j5", attempt=replace(job.attempt, number=2)),
        replace(job, id="j6", attempt=None),
    ]
    sheet = sheet_of([job, *odd])

    assert (len(sheet.patterns), len(sheet.specs)) == (5, 2)
    assert jobs_of(sheet) == [job, *odd]


def test_jobs_without_an_attempt_stand_among_the_others():
    world = Given(node())
    jobs = [finished(world, 1), replace(finished(world, 2), attempt=None), finished(world, 3)]

    assert jobs_of(sheet_of(jobs)) == jobs


@pytest.mark.parametrize("count", [0, 1, 499, 500, 501, 1_700])
def test_jobs_keep_their_order_over_many_sheets(count):
    world = Given(node())
    job = finished(world, 1)
    state = world.world
    state.jobs = {f"j{n}": replace(job, id=f"j{n}", name=f"train-{n}") for n in range(count)}

    opened = open_snapshot(take_snapshot(state, b"x" * 32))

    assert list(opened.world.jobs.values()) == list(state.jobs.values())
    assert opened.hash == b"x" * 32


def test_a_snapshot_of_a_later_format_is_told_apart():
    body = take_snapshot(Given(node()).world, b"").body
    later = body[:1] + bytes([FORMAT + 1]) + body[2:]

    with pytest.raises(LogCorrupt, match="the snapshot has format 3"):
        read_image(Snapshot(7, later))
