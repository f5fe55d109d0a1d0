"""Arrays and dependencies on the command line."""

from pathlib import Path

import pytest
import yaml

from tests.cli.conftest import Muster

EXAMPLES = Path(__file__).parents[2] / "examples"

pytestmark = pytest.mark.usefixtures("server")


def test_the_flag_makes_an_array_that_is_one_row_with_counts(muster: Muster, manifest) -> None:
    submitted = muster("submit", manifest("sweep"), "--array", "0-3%2", "--wait")
    assert submitted.code == 0, submitted.err
    row = muster("list").out
    assert "sweep" in row
    assert "4 succeeded" in row
    assert "sweep-2" not in row
    members = muster("list", "--array", "sweep", "-o", "name").out.split()
    assert sorted(members) == [f"default/sweep-{index}" for index in range(4)]
    for name in ("sweep[2]", "sweep-2"):
        assert "Succeeded" in muster("get", name).out


def test_failed_indices_are_retried_and_the_exit_code_is_the_outcome(
    muster: Muster, manifest
) -> None:
    ended = muster("submit", manifest("bad", exit_code=3), "--array", "1,3", "--wait")
    assert ended.code == 100
    assert muster("retry", "bad", "--index", "2").code != 0
    retried = muster("retry", "bad", "--index", "3")
    assert retried.code == 0, retried.err
    assert muster("wait", "bad").code == 100


def test_the_flags_of_another_kind_are_annotations(muster: Muster, manifest) -> None:
    example = EXAMPLES / "pytorchjob.yaml"
    name = yaml.safe_load(example.read_text())["metadata"]["name"]
    assert muster("submit", manifest("first", duration_s=2_000)).code == 0
    flags = ("--array", "0-1", "--after", "first:finished")
    submitted = muster("submit", example, *flags)
    assert submitted.code == 0, submitted.err
    assert "first" in muster("why", name).out
    assert muster("cancel", "first").code == 0
    assert muster("wait", name).code == 0
    members = muster("list", "--array", name, "-o", "name").out.split()
    assert sorted(members) == [f"default/{name}-{index}" for index in range(2)]


def test_a_job_after_an_array_waits_for_all_of_it(muster: Muster, manifest) -> None:
    assert muster("submit", manifest("first", duration_s=2_000), "--array", "0-2").code == 0
    assert muster("submit", manifest("next"), "--after", "first").code == 0
    why = muster("why", "next").out
    assert "first" in why
    assert muster("cancel", "first").code == 0
    ended = muster("wait", "next")
    assert ended.code == 100
    assert "first" in muster("why", "next").out


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--array", "3-1"), "3-1"),
        (("--array", "0-3%0"), "'0' after %"),
        (("--array", "a"), "'a'"),
        (("--after", "first:never"), "never"),
    ],
)
def test_a_flag_that_cannot_be_read_is_refused_by_its_value(
    muster: Muster, manifest, flags: tuple[str, str], message: str
) -> None:
    ran = muster("submit", manifest("one"), *flags)
    assert ran.code == 2
    assert message in ran.err
    assert muster("list", "-o", "name").out == ""


def test_an_array_is_cancelled_and_deleted_whole(muster: Muster, manifest) -> None:
    muster("submit", manifest("wide", duration_s=5_000), "--array", "0-9%2")
    assert muster("suspend", "wide").code == 0
    assert muster("resume", "wide").code == 0
    cancelled = muster("cancel", "wide")
    assert cancelled.code == 0, cancelled.err
    assert muster("wait", "wide").code == 101
    assert muster("delete", "wide[1]").code != 0
    assert muster("delete", "wide").code == 0
