"""Submitting: all or nothing, mistakes with their lines, and jobs made from flags."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import EXAMPLES, Muster

Manifest = Callable[..., Path]

pytestmark = pytest.mark.usefixtures("server")


def joined(tmp_path: Path, *files: Path) -> Path:
    path = tmp_path / "joined.yaml"
    path.write_text("\n---\n".join(file.read_text() for file in files))
    return path


def test_every_document_of_a_file_is_submitted(muster: Muster) -> None:
    ran = muster("submit", EXAMPLES / "sweep.yaml", "-o", "name")
    assert ran.out.split() == ["default/sweep-lr-1e-3", "default/sweep-lr-1e-4"]


def test_a_bad_second_document_leaves_nothing_behind(
    muster: Muster, manifest: Manifest, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text(
        "apiVersion: muster.dev/v1\nkind: Job\nmetadata:\n  name: b\nspec:\n  rolls: []\n"
    )
    ran = muster("submit", joined(tmp_path, manifest("a"), bad))
    assert ran.code == 2
    assert "joined.yaml:7: " in ran.err
    assert "rolls" in ran.err
    assert muster("list", "-o", "name").out == ""


def test_a_name_that_stands_twice_in_a_file_is_refused(
    muster: Muster, manifest: Manifest, tmp_path: Path
) -> None:
    ran = muster("submit", joined(tmp_path, manifest("twin"), manifest("twin")))
    assert ran.code == 2
    assert "joined.yaml:3: default/twin is here a second time" in ran.err


def test_a_name_that_is_taken_is_refused_with_what_to_do(
    muster: Muster, manifest: Manifest
) -> None:
    path = manifest("taken", duration_s=1_000_000)
    assert muster("submit", path).code == 0
    ran = muster("submit", path)
    assert ran.code == 1
    assert "already the name of a job" in ran.err
    assert "muster delete" in ran.err


def test_a_manifest_comes_through_a_pipe(muster: Muster, manifest: Manifest) -> None:
    ran = muster("submit", "-", stdin=manifest("piped").read_text())
    assert ran.out == "default/piped submitted\n"
    assert muster("submit", "-", stdin="a: b: c").err.startswith("error: standard input:1: ")


def test_the_namespace_option_fills_in_and_does_not_overrule(
    muster: Muster, manifest: Manifest
) -> None:
    text = manifest("placed").read_text().replace('"namespace":"default",', "")
    text = text.replace(',"namespace":"default"', "")
    assert muster("submit", "-", "-n", "nlp", stdin=text).out == "nlp/placed submitted\n"
    ran = muster("submit", manifest("other", namespace="ads"), "-n", "nlp")
    assert ran.code == 2
    assert "the manifest has namespace ads, but -n is nlp" in ran.err


def test_a_plan_answers_and_stores_nothing(muster: Muster, manifest: Manifest) -> None:
    ran = muster("submit", manifest("dream", replicas=2, gpus=8), "--plan")
    assert ran.code == 0
    assert "default/dream (Job, 16 GPUs): it would start now" in ran.out
    assert "worker-1" in ran.out
    assert muster("submit", manifest("dream"), "--plan", "-o", "json").json["starts_now"] is True
    assert muster("submit", manifest("dream"), "--plan", "--wait").code == 2
    assert muster("list", "-o", "name").out == ""


def test_a_job_is_made_from_flags(muster: Muster) -> None:
    words = ["--name", "mnist", "--workers", "2", "--gpus", "1", "--image", "tf:1", "--ps", "1"]
    ran = muster("submit", "tfjob", *words, "-n", "nlp", "--", "python", "mnist.py")
    assert (ran.code, ran.out) == (0, "nlp/mnist submitted\n")
    spec = muster("get", "nlp/mnist", "-o", "json").json["spec"]
    assert [role["name"] for role in spec["roles"]] == ["Worker", "PS"]
    assert spec["roles"][0]["command"] == ["python", "mnist.py"]


@pytest.mark.parametrize("kind", ["tfjob", "pytorchjob", "mpijob"])
def test_a_dry_run_prints_a_manifest_that_can_be_submitted(muster: Muster, kind: str) -> None:
    words = ["--name", "dry", "--workers", "2", "--image", "x:1", "--dry-run", "-o", "yaml"]
    shown = muster("submit", kind, *words, "--", "python train.py --fast")
    assert shown.code == 0
    assert muster("list", "-o", "name").out == ""
    assert "python train.py --fast" in shown.out
    assert muster("submit", "-", stdin=shown.out).out == "default/dry submitted\n"


@pytest.mark.parametrize(
    "words",
    [
        ["tfjob", "--name", "x"],
        ["tfjob", "--name", "x", "--image", "i", "--env", "novalue"],
        ["pytorchjob", "--name", "x", "--image", "i", "--running-timeout", "soon"],
        ["mpijob", "--name", "Not-A-Name", "--image", "i"],
        ["no-such-file.yaml"],
        [],
    ],
)
def test_wrong_usage_exits_with_2(muster: Muster, words: list[str]) -> None:
    assert muster("submit", *words).code == 2
