"""What was recorded is decided again: alike by the same code, and otherwise by another."""

import os
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from adapters.logs.memory_log import MemoryLog
from controlplane.audit.redecide import DecisionVerifier, Difference, Differs, redecide
from controlplane.decisions.autonomous import makes_room
from controlplane.log.codec import from_line, from_row, to_line, to_rows
from controlplane.log.hash_chain import check_chain
from controlplane.model import commands as c
from controlplane.model import events as e
from controlplane.model.errors import LogCorrupt
from controlplane.model.rows import GENESIS, Row
from controlplane.model.spec import Repair, Role, Scheduling
from controlplane.state.world import World
from tests.controlplane.specification import Given, node, on, spec, submit
from tests.incidents.changes import CHANGES, Change
from tests.incidents.day import Day
from tests.scenarios.scenario import Scenario, run_now

ROOT = Path(__file__).parents[2]


def difference(events, *, whole: bool = True) -> Difference | None:
    verifier = DecisionVerifier(World())
    try:
        verifier.take(events)
        verifier.finish(whole=whole)
    except Differs as differs:
        return differs.difference
    return None


def test_a_recorded_day_is_decided_alike(day: Day) -> None:
    kinds = {type(recorded.event) for recorded in day.log.events}
    assert kinds >= {e.JobRestarting, e.RanksAdded, e.RankRelaunched, e.NodeLost, e.JobRemoved}
    assert difference(day.log.events) is None
    assert run_now(redecide(day.log)) is None


def test_it_may_come_in_pieces_of_any_size(day: Day) -> None:
    verifier, events, dice = DecisionVerifier(World()), day.log.events[:2_000], Random(1)
    while events:
        size = dice.randint(1, 9)
        verifier.take(events[:size])
        events = events[size:]
    verifier.finish(whole=False)
    assert verifier.world.position == 2_000


@pytest.mark.parametrize("seed", range(3))
def test_drains_and_amendments_are_decided_alike(seed: int) -> None:
    day = Day(seed, jobs=400, day_s=20_000.0, racks=2, nodes=4, restless=True).run()
    drains = [r for r in day.log.events if r.cause.startswith("drain-")]
    assert any(isinstance(r.event, e.NodeCordoned) for r in drains)
    assert any(isinstance(r.event, e.JobRestarting) for r in drains)
    assert difference(day.log.events) is None


@pytest.mark.parametrize("seed", range(12))
def test_a_log_of_engines_that_were_killed_is_decided_alike(seed: int) -> None:
    """Lost and late reports, jumping clocks, stale leaders: all that is in the log is explained."""
    assert difference(Scenario(seed).run().log.events) is None


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12, 300))
def test_many_logs_of_engines_that_were_killed_are_decided_alike(seed: int) -> None:
    assert difference(Scenario(seed).run().log.events) is None


def test_a_log_that_was_cut_and_led_on_is_decided_alike(day: Day) -> None:
    """As after a restore of the good part of a damaged log."""
    cut = next(i for i in range(500, 900) if day.log.events[i].step == day.log.events[i - 1].step)
    events = list(day.log.events[:cut])
    assert difference(events, whole=False) is None
    assert difference(events) is not None
    start, step = e.EngineStarted(2, "next"), events[-1].step + 1
    later = e.Recorded(cut + 1, events[-1].at + 100.0, start, step=step)
    assert difference([*events, later], whole=False) is None


# ---------------------------------------------------------------- other code


@pytest.fixture(scope="session")
def export(rows: list[Row], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("day") / "day.jsonl"
    path.write_bytes(b"".join(to_line(row) + b"\n" for row in rows))
    return path


@pytest.mark.parametrize("change", [None, *CHANGES], ids=lambda x: x.name if x else "no change")
def test_a_change_of_decision_code_is_seen(
    change: Change | None, export: Path, tmp_path: Path
) -> None:
    """With a copy of the control plane in which one line decides otherwise."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "controlplane", tmp_path / "controlplane", ignore=ignored)
    if change is not None:
        source = tmp_path / "controlplane" / change.file
        text = source.read_text()
        assert change.old in text, f"{change.file} no longer contains {change.old!r}"
        source.write_text(text.replace(change.old, change.new))
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests/incidents/verify_with.py"), str(export)],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == (0 if change is None else 3), done.stdout + done.stderr


def test_the_difference_shows_both_versions(day: Day) -> None:
    """A placement was forged, and the chain closed again."""
    events = list(day.log.events)
    index, placed = next(
        (i, r) for i, r in enumerate(events) if isinstance(r.event, e.GangPlaced) and i > 300
    )
    slots = tuple(replace(slot, node="rack-1-3") for slot in placed.event.placement)
    events[index] = replace(placed, event=replace(placed.event, placement=slots))
    differing = difference(events)
    assert differing is not None
    assert differing.position == placed.position
    assert [decided.type for decided in differing.recorded][:1] == ["GangPlaced"]
    assert differing.recorded[0].event.placement == slots
    assert differing.decided[0].event == placed.event


@pytest.mark.parametrize("kind", [e.GangStarted, e.JobSucceeded, e.AttemptEnded, e.JobRequeued])
def test_a_decision_that_was_left_out_is_missed(kind: type[e.Event], day: Day) -> None:
    events = list(day.log.events)
    index = next(i for i, r in enumerate(events) if isinstance(r.event, kind))
    del events[index]
    shorter = [replace(r, position=i) for i, r in enumerate(events, 1)]
    assert parts_at(shorter) >= index


def parts_at(events: list[e.Recorded]) -> int:
    """The position at which a log is impossible, or decided otherwise."""
    try:
        differing = difference(events)
    except LogCorrupt as error:
        return error.position
    return -1 if differing is None else differing.position


# ---------------------------------------------------------------- the chain


def test_each_of_2000_byte_flips_is_detected_at_its_position(rows: list[Row]) -> None:
    dice, lines = Random(7), [to_line(row) for row in rows]
    detected_in_line = 0
    for _ in range(2_000):
        index = dice.randrange(len(lines))
        line = bytearray(lines[index])
        line[dice.randrange(len(line))] ^= 1 << dice.randrange(8)
        try:
            damaged = from_line(bytes(line))
        except ValueError:
            detected_in_line += 1
            continue
        previous = rows[index - 1].hash if index else GENESIS
        with pytest.raises(LogCorrupt) as caught:
            list(check_chain([damaged], after=index, previous=previous))
        assert caught.value.position == index + 1
    assert 0 < detected_in_line < 2_000


def test_every_deletion_swap_and_insertion_is_detected_at_its_position(rows: list[Row]) -> None:
    some = rows[:1_200]
    previous = [GENESIS, *(row.hash for row in some)]

    def bad_at(index: int, changed: list[Row]) -> int:
        """The rows before are good, so that the check may begin at the change."""
        with pytest.raises(LogCorrupt) as caught:
            list(check_chain(changed, after=index, previous=previous[index]))
        return caught.value.position

    for index in range(len(some) - 2):
        here, after, later = some[index : index + 3]
        assert bad_at(index, [after, later]) == index + 1, "a deletion"
        assert bad_at(index, [after, here, later]) == index + 1, "a swap"
        extra = replace(from_row(here), actor="mallory")
        linked = to_rows([extra], previous[index])[0]
        unlinked = linked._replace(hash=here.hash)
        assert bad_at(index, [unlinked, here, after]) == index + 1, "an insertion"
        # One that is linked well is as good as any other; what it stands before no longer follows.
        assert bad_at(index, [linked, here, after]) == index + 2, "an insertion with its link"


def test_a_log_with_a_closed_chain_is_another_log(rows: list[Row]) -> None:
    """A chain that is closed again has another last hash, and the old one may have been noted."""
    events = [from_row(row) for row in rows[:500]]
    events[250] = replace(events[250], actor="mallory")
    assert to_rows(events, GENESIS)[-1].hash != rows[499].hash


def test_order_is_looked_at(day: Day) -> None:
    events = list(day.log.events[:400])
    one = next(i for i, (a, b) in enumerate(pairwise(events)) if i > 200 and a.at < b.at)
    events[one + 1] = replace(events[one + 1], at=events[0].at)
    with pytest.raises(LogCorrupt, match="earlier than the event before it"):
        difference(events)


def test_the_memory_log_is_read_as_any_other(day: Day) -> None:
    log = MemoryLog(day.log.events[:1_000])
    assert run_now(redecide(log, whole=False)) is None
    assert e.EVENT_TYPES


# ---------------------------------------------------------------- passes that decided nothing


def test_every_change_that_lets_a_pass_decide_more_requests_one() -> None:
    """A pass that decided nothing is not in the log, so no other event may let it decide more."""
    replace_lost = Scheduling(repair=Repair.REPLACE)
    grows = (Role(name="Worker", replicas=2, gpus=4, min_replicas=1),)
    given = Given(node("n1"), node("n2"))
    given.when(submit("a", "j1", spec(workers=2, gpus=4, scheduling=replace_lost)))
    given.when(submit("b", "j2", spec(roles=grows)))
    given.happened(e.GangPlaced("j1", 1, on(("n1", range(4)), ("n2", range(4)))))
    given.happened(e.GangPlaced("j2", 1, on(("n1", range(4, 8)))))
    given.when(c.ReportRanks(job="j1", attempt=1, started=(0, 1)))
    assert not makes_room(given.world, given.decided)
    given.when(c.ReportRanks(job="j2", attempt=1, started=(0,)))
    assert makes_room(given.world, given.decided), "it may grow"
    given.when(c.ReportNodeLost(node="n2"))
    assert makes_room(given.world, given.decided), "it may be repaired, or must start again"
