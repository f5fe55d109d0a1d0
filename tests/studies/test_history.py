"""The history of a log on the axis of time, checked against the state at every instant."""

from collections.abc import Iterator
from itertools import groupby

import numpy as np
import pytest

from controlplane.log.codec import from_row
from controlplane.model import events as e
from controlplane.model.phases import Phase
from controlplane.model.policy import Policy
from controlplane.state.world import World
from studies.history import timeline as timelines
from studies.history.index import HistoryIndex
from studies.history.levels import Levels
from studies.history.marks import MarkIndex, MarkKind, evenly
from studies.history.spans import Spans
from studies.history.timeline import pieces_of
from studies.history.usage import PARTS
from tests.golden.test_golden import LOGS, rows_of


def test_a_mean_is_exact_over_any_span() -> None:
    levels = Levels(["a", "b"])
    levels.set(10.0, [4, 1])
    levels.set(20.0, [0, 1])
    levels.set(30.0, [8, 2])
    means = levels.means(np.array([0.0, 15.0, 25.0, 40.0]))
    assert means["a"].tolist() == pytest.approx([20 / 15, 2.0, 80 / 15])
    assert means["b"].tolist() == pytest.approx([5 / 15, 1.0, 25 / 15])


def test_several_changes_at_one_instant_count_as_the_last() -> None:
    levels = Levels(["a"])
    levels.set(10.0, [4])
    levels.set(10.0, [6])
    assert levels.means(np.array([10.0, 20.0]))["a"].tolist() == [6.0]


def test_without_changes_every_mean_is_zero() -> None:
    assert Levels(["a"]).means(np.array([0.0, 1.0]))["a"].tolist() == [0.0]


def test_thinned_levels_keep_their_totals_and_their_size() -> None:
    exact, thinned = Levels(["a"]), Levels(["a"], points_max=64)
    random = np.random.default_rng(7)
    for at, value in enumerate(random.integers(0, 9, 5_000).tolist()):
        exact.set(float(at), [value])
        thinned.set(float(at), [value])
    assert thinned._points <= 64
    whole = np.array([0.0, 5_000.0])
    assert thinned.means(whole)["a"] == pytest.approx(exact.means(whole)["a"])
    coarse = np.linspace(0.0, 5_000.0, 11)
    assert np.abs(thinned.means(coarse)["a"] - exact.means(coarse)["a"]).max() < 0.5


def batches(path) -> Iterator[list[e.Recorded]]:
    recorded = [from_row(row) for row in rows_of(path)]
    for _, batch in groupby(recorded, key=lambda one: one.at):
        yield list(batch)


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_every_gpu_is_in_one_part_at_every_instant(path) -> None:
    index, world = HistoryIndex(), World()
    for batch in batches(path):
        for recorded in batch:
            world.apply(recorded)
        index.observe(batch, world)
        now = index.usage.levels.now
        nodes = [node for node in world.nodes.values() if not node.removed]
        assert now["total"] == sum(node.info.gpus for node in nodes)
        held = sum(now[part] for part in ("productive", "starting", "held_idle"))
        assert held == pytest.approx(
            sum(world.devices.used_milli(queue) for queue in world.queues) / 1_000
        )
        # A node may be removed while ranks hold its devices; else the parts add up.
        if held + now["down"] + now["cordoned"] <= now["total"]:
            assert sum(now[part] for part in PARTS) == pytest.approx(now["total"])
        queued = [
            world.jobs[job] for job in world.phases.by_phase[Phase.QUEUED]
            if not world.jobs[job].awaits
        ]  # fmt: skip
        assert now["waiting_jobs"] == len(queued)
        assert now["waiting_gpus"] == sum(job.spec.gpu_milli for job in queued) / 1_000
        for name, levels in index.usage.queues.items():
            assert levels.now["used_gpus"] == pytest.approx(world.devices.used_milli(name) / 1_000)
    assert index.position == world.position


def test_a_busy_day_has_marks_in_words() -> None:
    index, world = HistoryIndex(), World()
    (path,) = [path for path in LOGS if path.stem == "0.1.0-day"]
    for batch in batches(path):
        for recorded in batch:
            world.apply(recorded)
        index.observe(batch, world)
    marks = index.marks.some(0.0, world.at, tuple(MarkKind), 10_000)
    assert len(marks) == len(index.marks)
    counts = index.marks.counts(np.array([0.0, world.at]), tuple(MarkKind))
    assert sum(sum(each) for each in counts.values()) == len(marks)
    assert all(mark.message for mark in marks)
    for mark in marks:
        if mark.kind is MarkKind.RESTART:
            assert mark.job
            assert mark.cause


def some_marks() -> MarkIndex:
    index = MarkIndex(details_max=500)
    for number in range(1, 1_001):
        index.record(e.Recorded(number, float(number), e.EngineStarted(number, "0.1.0")), {})
    index.record(e.Recorded(1_001, 1_000.5, e.PolicySet(Policy())), {})
    return index


def test_rare_marks_survive_thinning_and_all_are_counted() -> None:
    marks = some_marks()
    kinds = tuple(MarkKind)
    shown = marks.some(0.0, 2_000.0, kinds, 10)
    assert len(shown) == 10
    assert [mark.kind for mark in shown].count(MarkKind.POLICY) == 1
    assert [mark.position for mark in shown] == sorted(mark.position for mark in shown)
    counts = marks.counts(np.linspace(0.0, 1_001.0, 11), kinds)
    assert sum(counts[MarkKind.LEADER]) == 1_000
    assert sum(counts[MarkKind.POLICY]) == 1


def test_old_marks_lose_their_words_but_not_their_count() -> None:
    marks = some_marks()
    assert marks.some(0.0, 400.0, tuple(MarkKind), 10) == []
    assert sum(marks.counts(np.array([0.0, 400.0]), tuple(MarkKind))[MarkKind.LEADER]) == 400


@pytest.mark.parametrize("most", range(12))
def test_items_are_spread_evenly(most: int) -> None:
    chosen = evenly(list(range(10)), most)  # type: ignore[arg-type]
    assert len(chosen) == min(most, 10)
    assert len(set(chosen)) == len(chosen)
    if most > 1:
        assert (chosen[0], chosen[-1]) == (0, 9)


def held_at(world: World) -> dict[tuple[str, int, str], float]:
    """What every attempt holds on every node, from the jobs themselves."""
    held: dict[tuple[str, int, str], float] = {}
    for job in world.jobs.values():
        attempt = job.live_attempt
        for node, piece in {} if attempt is None else pieces_of(attempt).items():
            held[f"{job.namespace}/{job.name}", attempt.number, node] = piece.milli
    return held


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_open_bars_are_what_jobs_hold_at_every_instant(path) -> None:
    index, world = HistoryIndex(), World()
    for batch in batches(path):
        for recorded in batch:
            world.apply(recorded)
        index.observe(batch, world)
        timeline = index.timeline
        pieces = timeline.pieces.between(world.at, float("inf"))
        is_open = pieces["end"] == float("inf")
        rows = zip(
            pieces["job"][is_open].tolist(), pieces["attempt"][is_open].tolist(),
            pieces["node"][is_open].tolist(), strict=True,
        )  # fmt: skip
        shown = {(timeline.jobs[j].name, a, timeline.nodes[n].name) for j, a, n in rows}
        assert shown == set(held_at(world))
        waits = timeline.waits.between(world.at, float("inf"))
        waiting = {timeline.jobs[row].name for row in waits["job"].tolist()}
        assert waiting == {
            f"{job.namespace}/{job.name}" for job in world.jobs.values()
            if job.phase is Phase.UNSCHEDULABLE or (job.phase is Phase.QUEUED and not job.awaits)
        }  # fmt: skip
        outages = timeline.outages.between(world.at, float("inf"))
        out = {timeline.nodes[row].name for row in outages["node"].tolist()}
        assert out == {node.name for node in world.nodes.values() if not node.takes_work}


def test_spans_are_bounded_and_say_since_when_they_are_complete() -> None:
    spans = Spans({"job": "l"}, 100)
    first = spans.open(0.0, job=7)
    for number in range(1, 1_000):
        spans.set(spans.open(float(number), job=number), end=number + 0.5)
    assert len(spans) <= 100
    assert 800 < spans.complete_after < 999
    rows = spans.between(spans.complete_after, 2_000.0)
    assert rows["job"].tolist()[0] == 7
    assert rows["job"].tolist()[1:] == list(range(1_000 - len(spans) + 1, 1_000))
    spans.set(first, end=3_000.0)
    assert spans.between(2_000.0, 4_000.0)["end"].tolist() == [3_000.0]


def test_open_spans_alone_do_not_overflow() -> None:
    spans = Spans({"job": "l"}, 100)
    numbers = [spans.open(float(number), job=number) for number in range(1_000)]
    assert len(spans) <= 100
    for number in numbers:
        spans.set(number, end=2_000.0)
    assert spans.between(1_500.0, 2_500.0)["job"].tolist()[-1] == 999


def test_jobs_without_spans_are_forgotten(monkeypatch) -> None:
    monkeypatch.setattr(timelines, "JOBS_MAX", 20)
    monkeypatch.setattr(timelines, "WAITS_MAX", 50)
    monkeypatch.setattr(timelines, "PIECES_MAX", 50)
    (path,) = [path for path in LOGS if path.stem == "0.1.0-day"]
    index, world = HistoryIndex(), World()
    for batch in batches(path):
        for recorded in batch:
            world.apply(recorded)
        index.observe(batch, world)
    assert len(index.timeline.jobs) < 150
    waits = index.timeline.waits.between(0.0, world.at)
    shown = {index.timeline.jobs[row].name for row in waits["job"].tolist()}
    submitted = [
        one.event
        for batch in batches(path)
        for one in batch
        if isinstance(one.event, e.JobSubmitted)
    ]
    assert shown <= {f"{event.namespace}/{event.name}" for event in submitted}
    waiting = waits["job"][waits["end"] == float("inf")].tolist()
    assert {index.timeline.jobs[row].name for row in waiting} <= {
        f"{job.namespace}/{job.name}"
        for job in world.jobs.values()
        if job.phase is Phase.UNSCHEDULABLE or (job.phase is Phase.QUEUED and not job.awaits)
    }
