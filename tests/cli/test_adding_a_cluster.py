"""What docs/adding-a-cluster.md does, step by step, as a package that is installed."""

import json
import os
import re
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"```(python|toml)\n(.*?)```", re.DOTALL)
WAIT_S_MAX = 60.0


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """The files of the page, installed as pip would install them."""
    page = (ROOT / "docs" / "adding-a-cluster.md").read_text("utf-8")
    adapter, tests, project = (text for _, text in BLOCK.findall(page))
    (tmp_path / "nap_cluster.py").write_text(adapter)
    (tmp_path / "test_nap_cluster.py").write_text(tests)
    points = tomllib.loads(project)["project"]["entry-points"]["muster.clusters"]
    installed = tmp_path / "nap_cluster-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: nap-cluster\nVersion: 1.0\n")
    lines = [f"{name} = {value}" for name, value in points.items()]
    (installed / "entry_points.txt").write_text("\n".join(["[muster.clusters]", *lines, ""]))
    return tmp_path


def environment(package: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(package), str(ROOT)])}


def test_the_tests_on_the_page_pass(package: Path) -> None:
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "test_nap_cluster.py"]
    ran = subprocess.run(
        [sys.executable, *words],
        cwd=package,
        env=environment(package),
        capture_output=True,
        text=True,
        timeout=WAIT_S_MAX,
        check=False,
    )
    assert re.search(r"^2 passed", ran.stdout, re.MULTILINE), ran.stdout + ran.stderr


def test_a_job_runs_on_the_cluster_on_the_page(package: Path) -> None:
    words = ["up", "--cluster", "nap:2", "--db", "memory:", "--port", "0"]
    server = subprocess.Popen(
        [sys.executable, "-m", "cli.main", *words],
        cwd=package,
        env=environment(package),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        banner = []
        for line in server.stdout:
            banner.append(line)
            if line.startswith("Try: "):
                break
        url = next(line.split()[1] for line in banner if line.startswith("  API"))
        assert "  cluster    2 napping nodes\n" in banner
        job = {
            "apiVersion": "muster.dev/v1",
            "kind": "Job",
            "metadata": {"name": "pair"},
            "spec": {"roles": [{"name": "Worker", "replicas": 2, "gpus": 1}]},
        }
        call(f"{url}/v1/jobs", json.dumps(job).encode())
        shown = call(f"{url}/v1/jobs/default/pair/ranks/1")["environment"]
        assert shown["env_if_unset"]["MASTER_ADDR"] == "127.0.0.2"
        until = time.monotonic() + WAIT_S_MAX
        while call(f"{url}/v1/jobs/default/pair")["job"]["phase"] != "Succeeded":
            assert time.monotonic() < until
            time.sleep(0.05)
    finally:
        server.terminate()
        server.communicate(timeout=WAIT_S_MAX)
    assert server.returncode == 0


def call(url: str, body: bytes | None = None) -> Any:
    request = Request(url, body, {"Content-Type": "application/json"})
    with urlopen(request, timeout=WAIT_S_MAX) as answer:
        return json.loads(answer.read())
