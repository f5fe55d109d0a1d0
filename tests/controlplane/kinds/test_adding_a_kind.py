"""The steps of docs/adding-a-kind.md are done here, one by one."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
BLOCK = re.compile(r"```(python|toml)\n(.*?)```", re.DOTALL)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """The files of the page, installed as pip would install them."""
    page = (ROOT / "docs" / "adding-a-kind.md").read_text("utf-8")
    kind, tests, project = (text for _, text in BLOCK.findall(page))
    (tmp_path / "dask_job.py").write_text(kind)
    (tmp_path / "test_dask_job.py").write_text(tests)
    points = tomllib.loads(project)["project"]["entry-points"]["muster.kinds"]
    installed = tmp_path / "dask_job-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: dask-job\nVersion: 1.0\n")
    lines = [f"{name} = {value}" for name, value in points.items()]
    (installed / "entry_points.txt").write_text("\n".join(["[muster.kinds]", *lines, ""]))
    return tmp_path


def run(package: Path, *args: str) -> str:
    path = os.pathsep.join([str(package), str(ROOT)])
    done = subprocess.run(
        [sys.executable, *args],
        cwd=package,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_tests_on_the_page_pass(package: Path) -> None:
    output = run(package, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_dask_job.py")
    assert re.search(r"^5 passed", output, re.MULTILINE), output


def test_the_kind_on_the_page_loads_as_an_entry_point(package: Path) -> None:
    manifest = package / "job.yaml"
    spec = {"image": "dask:1", "command": ["python", "etl.py"]}
    manifest.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "example.com/v1",
                "kind": "DaskJob",
                "metadata": {"name": "etl"},
                "spec": spec,
            }
        )
    )

    output = run(package, "-m", "cli.main", "convert", "-f", str(manifest), "-o", "json")

    assert json.loads(output)["spec"]["framework"] == {
        "kind": "DaskJob",
        "version": "example.com/v1",
        "options": {"port": 8786},
    }
