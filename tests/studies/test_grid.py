"""Studies of several runs: the same bytes however they are computed, and whatever interrupts them."""

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from random import Random
from time import sleep

import pytest

from cli.main import run
from studies.whatif.comparison import interval, paired, t_quantile
from studies.whatif.executors import executor_for
from studies.whatif.whatif import WhatIf, ask, study_of
from studies.workloads.csv_trace import read_csv
from studies.workloads.formats import READERS


@pytest.fixture
def trace(tmp_path) -> Path:
    dice, at = Random(2), 0
    lines = ["id,submit,gpus,duration,queue,user"]
    for i in range(150):
        at += dice.randint(0, 90)
        gpus, length = dice.choice((1, 2, 8, 16)), dice.randint(0, 1_500)
        lines.append(f"{i},{at},{gpus},{length},{dice.choice('ab')},{dice.choice('xyz')}")
    path = tmp_path / "trace.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def question(trace: Path, **more) -> WhatIf:
    asked = {"nodes": ("4x8", "6x8"), "policies": ("fifo", "easy"), "replications": 3}
    asked |= {"faults": ("none", "1:1"), "checkpoint_s": (300.0,), "prices": (2.0,)}
    return WhatIf(trace=str(trace), **(asked | more))


def bytes_of(folder: Path) -> dict[str, str]:
    """Every file of a study by name, as a hash."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_a_study_gives_the_same_bytes_in_one_process_in_several_and_on_dask(trace, tmp_path):
    distributed = pytest.importorskip("distributed")
    asked = question(trace, policies=("easy",), faults=("1:1",), replications=2)
    ask(asked, tmp_path / "one", executor=executor_for("local", 1))
    ask(asked, tmp_path / "two", executor=executor_for("local", 2))
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        address = cluster.scheduler_address.removeprefix("tcp://")
        ask(asked, tmp_path / "dask", executor=executor_for(f"dask://{address}", 1))

    one = bytes_of(tmp_path / "one")
    assert "result.json" in one
    assert bytes_of(tmp_path / "two") == one
    assert bytes_of(tmp_path / "dask") == one


def command(trace: Path, out: Path) -> list[str]:
    return [
        sys.executable, "-m", "cli.main", "whatif", "--trace", str(trace), "--nodes", "4x8,6x8",
        "--policy", "fifo,easy,sjf", "--replications", "6", "--out", str(out), "--workers", "2",
    ]  # fmt: skip


def test_a_study_that_is_killed_goes_on_and_ends_with_the_same_bytes(trace, tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    subprocess.run(command(trace, whole), check=True, capture_output=True)
    process = subprocess.Popen(
        command(trace, killed), start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    while len(list(killed.glob("cells/*.json"))) < 5:
        assert process.poll() is None, "it was over before it could be killed"
        sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    done = {path.name: path.stat().st_mtime_ns for path in killed.glob("cells/*.json")}

    subprocess.run(command(trace, killed), check=True, capture_output=True)

    assert 5 <= len(done) < len(list(whole.glob("cells/*.json")))
    # What was there has been used, and not computed again.
    assert all((killed / "cells" / name).stat().st_mtime_ns == at for name, at in done.items())
    drafts = [name for name in bytes_of(killed) if Path(name).name.startswith(".")]
    assert {k: v for k, v in bytes_of(killed).items() if k not in drafts} == bytes_of(whole)


def test_a_cell_that_is_not_whole_is_computed_again(trace, tmp_path):
    asked = question(trace, nodes=("4x8",), policies=("fifo",), faults=("none",))
    ask(asked, tmp_path / "out", executor=executor_for("local", 1))
    before = bytes_of(tmp_path / "out")
    for cell in (tmp_path / "out" / "cells").glob("*.json"):
        cell.write_bytes(cell.read_bytes()[:100])

    ask(asked, tmp_path / "out", executor=executor_for("local", 1))

    assert bytes_of(tmp_path / "out") == before


def test_a_malformed_trace_leaves_nothing_behind(tmp_path):
    bad = tmp_path / "bad.csv"
    bad.write_text("id,submit,gpus,duration\na,0,1,5\nb,0,one,5\n")
    out = tmp_path / "out"

    code = run(["whatif", "--trace", str(bad), "--gpus", "8", "--out", str(out)])

    assert code == 2
    assert not out.exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"policies": ("luck",)}, "'luck'"),
        ({"nodes": ("4by8",)}, "4by8"),
        ({"nodes": (), "gpus": ()}, "needs a cluster"),
        ({"faults": ("often",)}, "'often'"),
        ({"loads": (0.0,)}, "load"),
        ({"quotas": ({"missing": 4},)}, "'missing'"),
        ({"autoscale_from": (9,)}, "autoscale"),
        ({"replications": 0}, "replications"),
        ({"synthetic_days": 1e9}, "synthetic_days"),
        ({"synthetic_days": float("nan")}, "synthetic_days"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused_before_anything_runs(trace, changes, message):
    with pytest.raises(ValueError, match=message):
        study_of(question(trace, **changes))


def test_scenarios_are_compared_under_the_same_random_numbers(trace, tmp_path):
    asked = question(trace, nodes=("4x8",), policies=("fifo", "fifo", "easy"))
    result = ask(asked, tmp_path / "out", executor=executor_for("local", 2))

    names = [scenario["name"] for scenario in result["scenarios"]]
    # A policy that is named twice is one scenario.
    assert names == [
        "fifo, faults none",
        "fifo, faults 1:1",
        "easy, faults none",
        "easy, faults 1:1",
    ]
    base, faulty = result["scenarios"][0], result["scenarios"][1]
    assert base["measures"]["jct_mean_s"]["n"] == 3
    assert faulty["against_base"]["restarts"]["mean"] > 0
    assert base["measures"]["restarts"]["mean"] == 0


def test_a_goal_is_reached_by_search(trace, tmp_path):
    asked = question(trace, nodes=("3x8",), policies=("fifo",), faults=("none",), replications=1)
    result = ask(
        WhatIf(**{**_fields(asked), "goal": "wait_p90_s<=2m"}), tmp_path / "out",
        executor=executor_for("local", 1),
    )  # fmt: skip

    goal = result["goal"]
    tried = {probe["nodes"]: probe for probe in goal["tried"]}
    assert tried[goal["nodes"]]["value"] <= 120
    assert not tried[goal["nodes"] - 1]["granted"]
    assert goal["in_order"]


def _fields(asked: WhatIf) -> dict:
    return {name: getattr(asked, name) for name in asked.__struct_fields__}


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.links += [v for k, v in attrs if k in ("src", "href", "xlink:href") and v]
        if tag not in ("meta", "input", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag


def test_the_report_is_one_page_that_needs_nothing_else(trace, tmp_path):
    ask(question(trace), tmp_path / "out", executor=executor_for("local", 2), title="A <b> title")
    page = (tmp_path / "out" / "report.html").read_text()

    parser = _Links()
    parser.feed(page)

    assert parser.open == []
    assert parser.links == []
    assert not re.search(r"https?://|url\(|@import|<script", page)
    assert "A &lt;b&gt; title" in page
    for heading in (
        "Comparison of the scenarios",
        "Wait against capacity",
        "Where the GPU time went",
        "Use over time",
        "Use by node",
        "Gantt chart",
        "Longest waits",
    ):
        assert heading in page  # fmt: skip


def test_the_csv_of_jobs_has_every_job(trace, tmp_path):
    ask(question(trace, replications=1), tmp_path / "out", executor=executor_for("local", 1))

    lines = (tmp_path / "out" / "jobs" / "000.csv").read_text().splitlines()

    assert len(lines) == 151
    assert lines[0].startswith("id,submit,gpus,duration,start,end,wait,jct")


def test_the_schedule_is_written_as_lines(trace, tmp_path):
    out = tmp_path / "schedule.csv"
    code = run(["whatif", "--trace", str(trace), "--gpus", "64", "--schedule-out", str(out)])

    assert code == 0
    lines = out.read_text().splitlines()
    assert len(lines) == 150
    assert all(re.fullmatch(r"\d+,\d+,\d+", line) for line in lines)


# ---------------------------------------------------------------- statistics


@pytest.mark.parametrize(
    ("freedom", "expected"), [(1, 12.706), (4, 2.776), (5, 2.571), (9, 2.262), (30, 2.042), (1000, 1.962)]
)  # fmt: skip
def test_quantiles_are_students(freedom, expected):
    assert t_quantile(freedom) == pytest.approx(expected, abs=2e-3)


def test_an_interval_covers_the_truth_as_often_as_stated():
    dice = Random(1)
    hits = 0
    for _ in range(1_000):
        bounds = interval([dice.gauss(10, 3) for _ in range(6)])
        hits += bounds["low"] <= 10 <= bounds["high"]

    assert 930 <= hits <= 970


def test_pairs_see_what_is_hidden_by_chance():
    dice = Random(3)
    noise = [dice.gauss(0, 100) for _ in range(10)]
    base = [1_000 + x for x in noise]
    better = [990 + x + dice.gauss(0, 2) for x in noise]

    difference = paired(better, base)

    assert difference["clear"]
    assert difference["mean"] == pytest.approx(-10, abs=3)
    # Taken apart, the two look the same.
    assert interval(better)["high"] > interval(base)["low"]


def test_a_result_can_be_read_by_machines(trace, tmp_path):
    ask(question(trace), tmp_path / "out", executor=executor_for("local", 2))
    result = json.loads((tmp_path / "out" / "result.json").read_text())

    assert result["format"] == 1
    first = result["scenarios"][0]
    assert first["replication_0"]["fairness"]["over"] == "user"
    assert first["measures"]["cost"]["mean"] > 0
    assert 0 < first["replication_0"]["fairness"]["jain_slowdown"] <= 1


def test_a_study_reads_its_trace_once(tmp_path, monkeypatch):
    path = tmp_path / "jobs.csv"
    path.write_text("id,submit,gpus,duration\n1,0,1,5\n")
    times = []

    def counted(path):
        times.append(path)
        return read_csv(path)

    monkeypatch.setitem(READERS, "csv", counted)
    words = ["--trace", str(path), "--gpus", "1,2", "--workers", "1", "--out", str(tmp_path / "o")]
    assert run(["whatif", *words]) == 0
    assert times == [path]
