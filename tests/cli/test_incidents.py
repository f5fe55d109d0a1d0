"""Bundles, walks, forks and analyses on the command line."""

from pathlib import Path

import pytest

from tests.cli.conftest import Muster
from tests.cli.logs import sqlite_log
from tests.incidents.day import ORIGIN, Day


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    day = Day(2, jobs=250, day_s=20_000.0, racks=2, nodes=4).run()
    return sqlite_log(tmp_path_factory.mktemp("day") / "day.db", list(day.log.events))


def test_a_bundle_is_made_checked_and_turned_into_a_test(
    log: Path, muster: Muster, tmp_path: Path
) -> None:
    out = tmp_path / "i.bundle.gz"
    ran = muster("log", "export", log, "--from", "-1h", "--bundle", out, "--redact")
    assert ran.code == 0, ran.err
    assert "without names" in ran.err
    assert "decides all that was recorded" in muster("log", "verify", out).out
    assert muster("replay", out).code == 0
    assert "begins with the state" in muster("replay", out, "--position", "3").err
    assert muster("replay", out, "--at", str(ORIGIN)).code == 2
    assert muster("log", "test", out, "--into", tmp_path / "t").code == 0
    assert muster("log", "test", log).code == 2
    assert muster("log", "export", log, "--redact").code == 2


def test_a_walk_shows_what_changed_and_why(log: Path, muster: Muster) -> None:
    lines = muster("replay", log, "--job", "job-1").out.splitlines()
    assert all("team/job-1: " in line for line in lines)
    assert "(asked by " in lines[0]
    assert any("<- event " in line for line in lines)
    back = muster("replay", log, "--job", "team/job-1", "--back").out.splitlines()
    assert back == lines[::-1]
    part = muster("replay", log, "--step", "--from", "100", "--until", "110").out.splitlines()
    assert [int(line.split()[0]) for line in part] == list(range(100, 111))
    node = muster("replay", log, "--node", "rack-0-0", "--until", "400", "--json").out
    assert '"text":"node rack-0-0 is ready with 8 V100 GPUs"' in node


def test_of_many_finished_jobs_a_picture_shows_the_last(log: Path, muster: Muster) -> None:
    jobs = muster("replay", log, "--json").json["jobs"]
    finished = {job["name"]: job["finished_at"] for job in jobs if job["finished_at"] is not None}
    last = sorted(finished, key=lambda name: finished[name])[-50:]
    expected = [job["name"] for job in jobs if job["name"] not in finished or job["name"] in last]
    assert len(jobs) - len(expected) > 50

    shown = muster("replay", log).out.splitlines()

    assert [line.split()[1] for line in shown[3 : 3 + len(expected)]] == expected
    left = len(jobs) - len(expected)
    assert shown[3 + len(expected)].startswith(f"... and {left} more")
    everyone = muster("replay", log, "--all").out.splitlines()
    assert [line.split()[1] for line in everyone[3 : 3 + len(jobs)]] == [j["name"] for j in jobs]


def test_a_film_without_a_terminal_is_its_last_picture(log: Path, muster: Muster) -> None:
    ran = muster("replay", log, "--watch", "--until", "300")
    assert ran.code == 0
    assert "event 300" in ran.out
    assert muster("replay", log, "--watch", "--json").code == 2


def test_a_fork_shows_both_futures(log: Path, muster: Muster) -> None:
    ran = muster("fork", log, "--at", "-3h", "--cordon", "rack-0-0", "--cordon", "rack-0-1")
    assert ran.code == 0, ran.err
    assert "CONTROL  CHANGED" in ran.out
    assert "node rack-0-0 takes no new work" in ran.out
    fork = muster("fork", log, "--at", "-3h", "--add-nodes", "2", "--json").json
    assert fork["changes"] == ["2 more nodes"]
    assert fork["comparison"]["other"]["gpu_hours"] > 0
    assert fork["first_decision"] is not None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--at", "-3h", "--set", "policy"], "write NAME=VALUE"),
        (["--at", "-3h", "--set", "colour=blue"], "cannot be set"),
        (["--at", "-3h", "--cordon", "nowhere"], "there was no node"),
        (["--at", "-3h", "--with-fault", "rack-0-0"], "write NODE@TIME"),
        (["--at", "-3h", "--until", "-4h"], "does not lie behind the fork"),
        (["--at", "0"], "no past to fork from"),
    ],
)
def test_a_fork_that_cannot_be_made_reports_why(
    log: Path, muster: Muster, words: list[str], message: str
) -> None:
    ran = muster("fork", log, *words)
    assert ran.code in (1, 2)
    assert message in ran.err


def test_an_analysis_names_what_failed(log: Path, muster: Muster) -> None:
    ran = muster("analyse", log)
    assert ran.code == 0
    for title in ("CAUSE", "NODE", "USER", "IMAGE", "EXIT CODE", "arrivals", "run times"):
        assert title in ran.out
    analysis = muster("analyse", log, "--from", "-1h", "--json").json
    assert analysis["until"] - analysis["since"] == pytest.approx(3600)


@pytest.mark.parametrize(
    ("span", "message"),
    [
        (["--from", "2100-01-01T00:00:00Z"], "it ends earlier"),
        (["--to", "1970-01-02T00:00:00Z"], "it begins later"),
        (["--from", "-1h", "--to", "-2h"], "ends before it begins"),
    ],
)
def test_an_analysis_of_a_span_without_a_log_is_refused(
    log: Path, muster: Muster, span: list[str], message: str
) -> None:
    ran = muster("analyse", log, *span)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err


def test_the_log_of_the_control_plane_is_meant_where_none_is_named(
    log: Path, muster: Muster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUSTER_DB", str(log))
    assert muster("replay", "--at", "-3h").out == muster("replay", log, "--at", "-3h").out
    assert muster("analyse").out == muster("analyse", log).out
    assert "no past to fork from" in muster("fork", "--at", "0").err


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--job", "missing/job"], 102, "there was no job missing/job"),
        (["--node", "nowhere"], 1, "there was no node nowhere"),
        (["--step", "--job", "missing", "--back"], 102, "there was no job missing"),
        (["--node", "rack-0-0", "--from", "6", "--until", "6"], 0, "nothing happened"),
    ],
)
def test_a_walk_without_matching_jobs_reports_it(
    log: Path, muster: Muster, words: list[str], code: int, message: str
) -> None:
    ran = muster("replay", log, *words)
    assert (ran.code, ran.out) == (code, "")
    assert message in ran.err


def test_one_job_is_shown_in_full_as_it_was(log: Path, muster: Muster) -> None:
    ran = muster("replay", log, "--at", "-3h", "--job", "job-1")
    assert ran.code in (0, 102)
    listed = muster("replay", log, "--at", "-3h", "--json").json["jobs"]
    queued = next(job for job in listed if job["phase"] == "Queued")
    name = f"{queued['namespace']}/{queued['name']}"
    ran = muster("replay", log, "--at", "-3h", "--job", name)
    assert ran.code == 0
    assert "in queue" in ran.out
    shown = muster("replay", log, "--at", "-3h", "--job", name, "--json").json["job"]
    assert shown["why"]["phase"] == "Queued"
    assert shown["why"]["reasons"]
    assert muster("replay", log, "--at", "-3h", "--job", "missing").code == 102
