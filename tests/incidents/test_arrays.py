"""Arrays and dependencies in what looks back: forks, learned work, redaction, deciding again."""

import asyncio
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from adapters.logs.memory_log import MemoryLog
from adapters.simulated_cluster.workload import workload_of
from cli.log.incident import check_bundle
from controlplane.audit.bundle import make_bundle
from controlplane.model import commands as c
from controlplane.model import events as e
from controlplane.model.dependencies import After, Condition
from controlplane.model.spec import JobSpec
from studies.analysis.job_history import JobHistories
from studies.fork import Forked, fork, parse_change
from studies.fork.learned import Learned
from tests.incidents.day import ORIGIN, Day, Timed, some_spec
from tests.incidents.test_bundles import written
from tests.scenarios.scenario import run_now

DAY_S = 20_000.0


def array_commands(seed: int, day_s: float) -> list[Timed]:
    """Arrays with and without a limit, jobs after them, and requests upon them and their members."""
    dice = Random(f"{seed}/arrays")
    commands: list[Timed] = []
    for number in range(24):
        at, name = dice.uniform(2.0, day_s * 0.8), f"secret-array-{number}"
        limit = dice.choice(["", "%2", "%3"])
        spec = replace(some_spec(dice), array=f"0-{dice.randint(2, 9)}{limit}")
        commands.append((at, _submit(f"a{number:03}", name, spec)))
        conditions = list(Condition)[:3]
        after = (After(dice.choice([name, f"{name}[1]"]), dice.choice(conditions)),)
        later = at + dice.uniform(1.0, 500.0)
        commands.append(
            (
                later,
                _submit(
                    f"d{number:03}", f"secret-after-{number}", replace(some_spec(dice), after=after)
                ),
            )
        )
        commands.append(
            (later + 2_500.0, c.RetryMembers(id=f"t{number}", namespace="team", name=name))
        )
        for turn in range(dice.randint(0, 3)):
            later += dice.expovariate(1 / 400.0)
            commands.append((later, _request(dice, f"r{number}-{turn}", name)))
    return sorted(commands, key=lambda timed: timed[0])


def _submit(job: str, name: str, spec: JobSpec) -> c.SubmitJob:
    return c.SubmitJob(id=job, actor="ann", job=job, namespace="team", name=name, spec=spec)


def _request(dice: Random, id: str, name: str) -> c.AnyCommand:
    common = {"id": id, "actor": "bob", "namespace": "team"}
    verb = dice.choice([c.CancelJob, c.SuspendJob, c.ResumeJob, c.DeleteJob, c.RetryMembers])
    if verb is c.RetryMembers:
        return c.RetryMembers(name=name, **common)
    whole = dice.random() < 0.6
    return verb(name=name if whole else f"{name}-1", **common)


@pytest.fixture(scope="module")
def day() -> Day:
    day = Day(2, jobs=60, day_s=DAY_S, racks=2, nodes=4)
    day.asked = sorted([*day.asked, *array_commands(2, DAY_S)], key=lambda timed: timed[0])
    return day.run()


def forked(day: Day, at: float, **how) -> Forked:  # type: ignore[no-untyped-def]
    return run_now(fork(day.log, at=ORIGIN + at, model=day.model, **how))


def test_the_day_has_arrays_of_every_end(day: Day) -> None:
    kinds = {type(recorded.event).__name__ for recorded in day.log.events}
    assert kinds >= {
        "OwnerSubmitted",
        "OwnerSucceeded",
        "OwnerFailed",
        "OwnerRemoved",
        "MembersRetried",
        "DependenciesMet",
    }


@pytest.mark.parametrize("at", [500.5, 4_000.0, 9_000.25, 15_000.0])
def test_a_fork_carries_arrays_on_as_they_were(day: Day, at: float) -> None:
    result = forked(day, at)
    assert result.error.is_exact, result.error.parting


def test_a_fork_with_a_change_carries_arrays_on(day: Day) -> None:
    result = forked(day, 4_000.0, change=parse_change(add_nodes=4))
    assert result.error.is_exact
    members = [job for job in result.comparison.jobs if "array" in job.job]
    assert members


def _without_work(spec: JobSpec) -> JobSpec:
    return replace(spec, hints={})


def _silent(event: e.Event) -> e.Event:
    """The event of a real cluster, where no job states its work."""
    if isinstance(event, e.JobSubmitted):
        return replace(event, spec=_without_work(event.spec))
    if isinstance(event, e.OwnerSubmitted):
        return replace(event, spec=replace(event.spec, job=_without_work(event.spec.job)))
    return event


def test_the_work_of_members_is_learned_from_the_log(day: Day) -> None:
    log = MemoryLog([replace(r, event=_silent(r.event)) for r in day.log.events])
    result = asyncio.run(fork(log, at=ORIGIN + 6_000.0, until=ORIGIN + 15_000.0))
    assert result.work == "learned from the log"
    assert result.error.finish_s_median is not None


def test_an_array_gets_the_usual_work_of_its_own_members(day: Day) -> None:
    """Members that a fork submits have the work that the real ones needed, not a default."""
    events = [replace(r, event=_silent(r.event)) for r in day.log.events]
    histories = JobHistories().hear_all(events)
    learned = Learned(histories, trusts=False)
    by_array: dict[str, list[float]] = {}
    for recorded in events:
        event = recorded.event
        if isinstance(event, e.JobSubmitted) and event.owner is not None:
            run_s = histories.jobs[event.job].run_s
            by_array.setdefault(event.owner.id, []).extend([] if run_s is None else [run_s])
    compared = 0
    for recorded in events:
        event = recorded.event
        if isinstance(event, e.OwnerSubmitted) and by_array.get(event.owner):
            spec = learned.array_spec(event.owner, event.namespace, event.spec.job)
            lengths = by_array[event.owner]
            assert min(lengths) <= workload_of(spec).duration_s <= max(lengths)
            compared += 1
    assert compared > 5


@pytest.mark.parametrize("part", range(4))
def test_a_redacted_history_of_arrays_is_decided_alike(day: Day, tmp_path: Path, part: int) -> None:
    length = len(day.log.events)
    first, last = 1 + part * length // 5, (part + 2) * length // 5
    bundle = run_now(make_bundle(day.log, first=first, last=last, release="9", redact=True))
    text = b"".join(bundle.lines())
    for secret in (b"secret-array", b"secret-after", b"registry.example"):
        assert secret not in text
    check_bundle(written(bundle, tmp_path / "part.bundle"))
