"""The house rules that no tool checks."""

import ast
import re
import runpy
import subprocess
from pathlib import Path

import pytest

from tests.planted.bugs import BUGS, Bug

ROOT = Path(__file__).parent.parent
JUNK_DRAWERS = {"utils", "util", "helpers", "common", "misc", "base", "manager", "shared"}

# The checkout's own folder, and the one that build machines like to use; the brackets keep this
# line from matching itself.
MACHINE_PATH = re.compile(rf"(?<![\w.]){re.escape(str(ROOT))}\b|(?<![\w.])/wor[k]/")


@pytest.fixture(scope="module")
def files() -> list[Path]:
    """What git tracks, or would track once added."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout; clone the repository to run this")
    git = ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others"]
    names = subprocess.run(
        [*git, "--exclude-standard"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    return [ROOT / name for name in names.split("\0") if name and (ROOT / name).is_file()]


@pytest.fixture(scope="module")
def modules(files: list[Path]) -> list[Path]:
    return [file for file in files if file.suffix == ".py"]


def test_no_module_is_a_junk_drawer(modules: list[Path]) -> None:
    named = [_name(m) for m in modules if {m.stem, m.parent.name} & JUNK_DRAWERS]
    assert named == []


def test_every_module_begins_with_a_docstring(modules: list[Path]) -> None:
    mute = [_name(m) for m in modules if not ast.get_docstring(ast.parse(m.read_text("utf-8")))]
    assert mute == []


def test_the_drawn_states_are_those_of_the_code() -> None:
    draw = runpy.run_path(str(ROOT / "docs" / "draw_states.py"))["draw"]
    drawn = (ROOT / "docs" / "states.md").read_text("utf-8")
    assert drawn == draw(), "docs/states.md is stale: run `make docs`"


def test_the_table_of_kinds_is_that_of_the_registry() -> None:
    draw = runpy.run_path(str(ROOT / "docs" / "draw_kinds.py"))["draw"]
    drawn = (ROOT / "docs" / "kinds.md").read_text("utf-8")
    assert drawn == draw(), "docs/kinds.md is stale: run `make docs`"


def test_no_file_names_a_folder_of_one_machine(files: list[Path]) -> None:
    assert [_name(f) for f in files if MACHINE_PATH.search(_text(f))] == []


def test_the_lock_files_name_no_index() -> None:
    locks = sorted(ROOT.glob("requirements*.lock"))
    assert locks
    assert [_name(lock) for lock in locks if "://" in _text(lock)] == []


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_planted_bugs_still_find_the_line_that_they_spoil(bug: Bug) -> None:
    assert bug.old in _text(ROOT / bug.file), f"{bug.file} no longer says {bug.old!r}"


def _name(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except UnicodeDecodeError:
        return ""
