"""What docs/adding-a-policy.md does, step by step, as a package that is installed."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"```(python|toml)\n(.*?)```", re.DOTALL)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """The files of the page, installed as pip would install them."""
    page = (ROOT / "docs" / "adding-a-policy.md").read_text("utf-8")
    policies, tests, project = (text for _, text in BLOCK.findall(page))
    (tmp_path / "small_policies.py").write_text(policies)
    (tmp_path / "test_small_policies.py").write_text(tests)
    groups = tomllib.loads(project)["project"]["entry-points"]
    installed = tmp_path / "small_policies-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: small\nVersion: 1.0\n")
    lines: list[str] = []
    for group, points in groups.items():
        lines += [f"[{group}]", *[f"{name} = {value}" for name, value in points.items()]]
    (installed / "entry_points.txt").write_text("\n".join([*lines, ""]))
    return tmp_path


def run(package: Path, *args: str, installed: bool = True) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(package), str(ROOT)] if installed else [str(ROOT)])
    # Python looks for packages in the folder that it is started in, too.
    folder = package if installed else package.parent
    return subprocess.run(
        [sys.executable, *args],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_the_tests_on_the_page_pass(package: Path) -> None:
    ran = run(package, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_small_policies.py")
    assert re.search(r"^4 passed", ran.stdout, re.MULTILINE), ran.stdout + ran.stderr


def test_a_study_compares_the_discipline_in_worker_processes(package: Path) -> None:
    (package / "jobs.csv").write_text("id,submit,gpus,duration\na,0,8,9\nb,1,6,99\nc,2,3,9\n")
    study = ("whatif", "--trace", "jobs.csv", "--gpus", "8", "--workers", "2", "--out", "study")

    ran = run(package, "-m", "cli.main", *study, "--policy", "fifo,smallest")

    assert ran.returncode == 0, ran.stdout + ran.stderr
    result = json.loads((package / "study" / "result.json").read_text())
    fifo, smallest = (s["measures"]["wait_mean_s"]["mean"] for s in result["scenarios"])
    assert smallest < fifo


LOG = """
from pathlib import Path
from controlplane.log.codec import to_line, to_rows
from controlplane.model.policy import Policy
from controlplane.model.rows import GENESIS
from studies.simulation.run import run
from studies.whatif.clusters import equal_nodes
from studies.whatif.policies import StudyPolicy
from studies.workloads.trace import make_trace
import small_policies as s
from controlplane.disciplines.registry import DISCIPLINES
from controlplane.scheduling.quota_models.quota_model import QUOTA_MODELS
DISCIPLINES.register(s.SMALLEST)
QUOTA_MODELS.register(s.HALF)
trace = make_trace("t", list("abc"), [0, 1, 2], [4, 3, 2], [9, 9, 9])
policy = StudyPolicy("p", "", Policy(discipline="smallest", model="half"))
rows = to_rows(run(trace, equal_nodes(1, 8), policy, keep_events=True).log, GENESIS)
Path("log.jsonl").write_bytes(b"".join(to_line(row) + b"\\n" for row in rows))
"""


def test_its_log_is_verified_where_it_is_installed_and_refused_elsewhere(package: Path) -> None:
    made = run(package, "-c", LOG)
    assert made.returncode == 0, made.stderr

    verified = run(package, "-m", "cli.main", "log", "verify", "log.jsonl")
    assert verified.returncode == 0, verified.stdout + verified.stderr

    # The name is in the log's first event.
    log = str(package / "log.jsonl")
    refused = run(package, "-m", "cli.main", "log", "verify", log, installed=False)
    assert refused.returncode == 1, refused.stdout
    assert "position 1: there is no discipline 'smallest' here; there are: fifo" in refused.stderr
    assert "Install the package that adds it" in refused.stderr
    assert "Traceback" not in refused.stderr
