"""A fork with its futures on one axis, as the browser shows it."""

from pathlib import Path

import msgspec
import pytest

from controlplane.lifecycle.job import Job
from controlplane.log.replay import open_snapshot
from studies.fork import ForkError, parse_change
from studies.fork.futures import ForkQuestion, ForkResult
from studies.fork.past import look_back
from studies.fork.sentences import duration
from studies.whatif.grid import Progress
from tests.incidents.day import ORIGIN, Day
from tests.scenarios.scenario import run_now


@pytest.fixture(scope="module")
def short_day() -> Day:
    return Day(11, jobs=200, day_s=20_000.0, racks=2, nodes=4).run()


def question(day: Day, at: float = 5_000.0, **change: object) -> ForkQuestion:
    origin = run_now(look_back(day.log, at=ORIGIN + at, until=None, model=day.model))
    return ForkQuestion(origin=origin, change=parse_change(**change))  # type: ignore[arg-type]


def conducted(asked: ForkQuestion, folder: Path) -> tuple[ForkResult, list[Progress]]:
    steps: list[Progress] = []
    asked.conduct(folder, steps.append)
    return msgspec.json.decode((folder / "result.json").read_bytes(), type=ForkResult), steps


def test_without_a_change_all_futures_are_the_same(short_day: Day, tmp_path: Path) -> None:
    result, steps = conducted(question(short_day), tmp_path)
    assert result.is_exact
    assert result.actual.usage.productive == result.control.usage.productive
    assert result.control == result.changed
    assert [item.message for item in result.actual.marks.items if item.kind != "leader"] == [
        item.message for item in result.control.marks.items
    ]
    assert result.sentences == [
        "The control run repeats what happened, event for event.",
        "The change makes no difference in this time.",
    ]
    assert steps == [Progress(number, 4) for number in (1, 2, 3, 4)]


def test_more_nodes_are_seen_in_charts_and_sentences(short_day: Day, tmp_path: Path) -> None:
    result, _ = conducted(question(short_day, add_nodes=4), tmp_path)
    assert result.is_exact
    more = [
        b - a for a, b in zip(result.control.usage.total, result.changed.usage.total, strict=True)
    ]
    assert max(more) == 32
    assert result.changed.usage.from_ == result.control.usage.from_ == ORIGIN + 5_000.0
    assert result.changed.usage.bin_s == result.actual.usage.bin_s
    assert sum(result.changed.usage.waiting_gpus) < sum(result.control.usage.waiting_gpus)
    assert result.changed.timeline.bars_total > 0
    text = "\n".join(result.sentences)
    assert "on average instead of" in text
    assert "The first decision that differs" in text
    assert "earlier" in text


def waiting_at(day: Day, at: float) -> list[Job]:
    world = open_snapshot(question(day, at).origin.snapshot).world
    return [world.jobs[key.job] for queue in world.queues for key in world.waiting.keys(queue)]


def test_a_job_may_get_another_priority(short_day: Day, tmp_path: Path) -> None:
    at, last = next(
        (at, max(waiting, key=lambda job: job.queue_position))
        for at in range(2_000, 20_000, 1_000)
        if len(waiting := waiting_at(short_day, at)) > 1
    )
    name = f"job.{last.namespace}/{last.name}"
    asked = question(short_day, at, settings=[f"{name}.priority=1000"])
    result, _ = conducted(asked, tmp_path)
    assert not result.forked.refused
    assert result.forked.comparison.parting is not None
    for wrong in (f"{name}.colour=1", f"{name}.priority=high", f"{name}.queue=none-such",
                  "job.default/none-such.priority=1"):  # fmt: skip
        with pytest.raises(ForkError):
            question(short_day, at, settings=[wrong]).check()


def test_a_change_is_checked_before_it_runs(short_day: Day) -> None:
    question(short_day, cordon=[]).check()
    with pytest.raises(ForkError, match="no node"):
        question(short_day, cordon=["none-such"]).check()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.44, "0.4 s"), (59, "59 s"), (60, "1 min"), (125, "2 min 5 s"), (7_500, "2 h 5 min"),
     (90_000, "1 d 1 h")],
)  # fmt: skip
def test_a_duration_has_two_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text
