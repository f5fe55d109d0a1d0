"""A part of a log that stands by itself: whole, without names, compressed, as a test."""

import asyncio
import gzip
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from adapters.logs.memory_log import MemoryLog
from cli.log.incident import check_bundle, with_log
from cli.log.regression import write_test
from cli.log.sources import parse_source
from controlplane.audit.bundle import IncidentBundle, make_bundle
from controlplane.audit.redecide import redecide
from controlplane.log.codec import from_row
from controlplane.log.replay import rebuild
from controlplane.log.snapshots import state_hash
from controlplane.model import events as e
from tests.incidents.day import Day
from tests.scenarios.scenario import run_now


def bundle_of(day: Day, first: int = 3_000, last: int = 4_000, **how) -> IncidentBundle:  # type: ignore[no-untyped-def]
    return run_now(make_bundle(day.log, first=first, last=last, release="9", **how))


def written(bundle: IncidentBundle, path: Path) -> Path:
    body = b"".join(bundle.lines())
    path.write_bytes(gzip.compress(body) if path.suffix == ".gz" else body)
    return path


def test_a_bundle_begins_and_ends_between_two_instants(day: Day) -> None:
    bundle, events = bundle_of(day), day.log.events
    base, last = bundle.header.base, bundle.header.last
    assert base < 3_000
    assert last >= 4_000
    assert events[base - 1].at < events[base].at
    assert events[last - 1].at < events[last].at


@pytest.mark.parametrize("name", ["i.bundle", "i.bundle.gz"])
def test_a_bundle_is_a_log_in_all_that_looks_back(day: Day, tmp_path: Path, name: str) -> None:
    bundle = bundle_of(day)
    path = written(bundle, tmp_path / name)

    async def look(log):  # type: ignore[no-untyped-def]
        assert await redecide(log) is None
        middle = (bundle.header.base + bundle.header.last) // 2
        then = await rebuild(log, position=middle)
        again = await rebuild(day.log, position=middle)
        assert state_hash(then.world) == state_hash(again.world)
        at = await rebuild(log, at=then.world.at)
        assert at.world.position >= middle
        return state_hash((await rebuild(log)).world)

    assert with_log(path, look) == bundle.header.state_hash
    check_bundle(path)


def test_without_names_no_name_is_left_and_all_is_decided_alike(day: Day, tmp_path: Path) -> None:
    plain, redacted = bundle_of(day), bundle_of(day, redact=True)
    text = b"".join(redacted.lines())
    for secret in (b"registry.example", b'"ann"', b'"team"', b"research", b"submit-"):
        assert secret in b"".join(plain.lines())
        assert secret not in text
    names = {job.name for job in plain.base.jobs}
    assert not any(
        f'"{name}"'.encode() in text for name in names - {f"job-{n}" for n in range(9999)}
    )
    check_bundle(written(redacted, tmp_path / "r.bundle"))
    assert [r.type for r in redacted.rows] == [r.type for r in plain.rows]


def test_environment_values_and_output_are_taken_out() -> None:
    from controlplane.audit.redaction import Redactor
    from controlplane.model.failures import Exit
    from tests.controlplane.specification import spec

    role = replace(spec().roles[0], env={"TOKEN": "hunter2"}, command=("train", "--key=hunter2"))
    submitted = e.JobSubmitted("j1", "nlp", "secret-job", replace(spec(), roles=(role,)))
    detail = "secret-job: password hunter2"
    exited = e.RanksExited("j1", 1, (Exit(0, 1, detail=detail, lines=("hunter2",)),))
    events = [e.Recorded(1, 0.0, submitted, "key", "ann"), e.Recorded(2, 1.0, exited)]
    redactor = Redactor()
    first, second = (redactor.recorded(x) for x in events)
    assert "hunter2" not in str(first)
    assert "secret-job" not in str((first, second))
    assert first.event.spec.roles[0].env == {"TOKEN": "redacted"}
    assert second.event.exits[0].lines == ()


def test_a_changed_bundle_is_detected(day: Day, tmp_path: Path) -> None:
    lines = list(bundle_of(day).lines())
    broken = tmp_path / "b.bundle"
    broken.write_bytes(b"".join([*lines[:100], *lines[101:]]))
    with pytest.raises(Exception, match="damaged at position"):
        check_bundle(broken)
    broken.write_bytes(lines[0] + b'{"state":{}}\n' + b"".join(lines[2:]))
    with pytest.raises(Exception, match="beginning cannot be read"):
        check_bundle(broken)


def test_a_bundle_that_is_decided_otherwise_fails(day: Day, tmp_path: Path) -> None:
    bundle = bundle_of(day)
    recorded = [from_row(row) for row in bundle.rows]
    at = next(i for i, r in enumerate(recorded) if isinstance(r.event, e.GangPlaced))
    slots = tuple(replace(s, devices=()) for s in recorded[at].event.placement)
    recorded[at] = replace(recorded[at], event=replace(recorded[at].event, placement=slots))
    forged = MemoryLog([*day.log.events[: bundle.header.base], *recorded])
    again = run_now(make_bundle(forged, first=3_000, last=recorded[at].position, release="9"))
    path = written(again, tmp_path / "f.bundle")
    with pytest.raises(AssertionError, match="decided otherwise today"):
        check_bundle(path)


def test_one_command_makes_a_test_of_a_bundle(day: Day, tmp_path: Path) -> None:
    path = written(bundle_of(day, note="a queue starved"), tmp_path / "night of the 16th.bundle.gz")
    test = asyncio.run(write_test(parse_source(str(path)), str(tmp_path / "tests"), None))
    assert test.name == "test_night_of_the_16th.py"
    assert '"""a queue starved"""' in test.read_text()
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(test)]
    done = subprocess.run(words, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
