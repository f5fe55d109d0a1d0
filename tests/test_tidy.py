"""The house rules that no tool checks."""

import ast
import re
import runpy
import subprocess
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.planted.bugs import BUGS, Bug

ROOT = Path(__file__).parent.parent
JUNK_DRAWERS = {"utils", "util", "helpers", "common", "misc", "base", "manager", "shared"}

# The checkout's own folder, and the one that build machines like to use; the brackets keep this
# line from matching itself.
MACHINE_PATH = re.compile(rf"(?<![\w.]){re.escape(str(ROOT))}\b|(?<![\w.])/wor[k]/")

PRODUCTION = ("adapters", "api", "cli", "controlplane", "simulator", "studies")
# Words that say nothing about the thing that they name or stand for. "not found", as in an answer of
# HTTP or of a lookup, is plain English.
FILLER_WORDS = {"told", "found", "said", "whoever", "nobody", "somebody"}
NOT_FOUND = re.compile("not[ _-]?found", re.IGNORECASE)
WORD = re.compile("[A-Z]?[a-z]+|[A-Z]+")
WITH_FILLER_WORDS = (
    # These quote such words.
    "tests/planted/bugs.py",
    "tests/test_tidy.py",
)
WITH_TWO_CLASSES_OF_A_NAME: tuple[str, ...] = ()


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


@pytest.fixture(scope="module")
def production(modules: list[Path]) -> list[Path]:
    return [m for m in modules if m.relative_to(ROOT).parts[0] in PRODUCTION]


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


def test_identifiers_and_texts_have_no_filler_words(modules: list[Path]) -> None:
    checked = [m for m in modules if not _name(m).startswith(WITH_FILLER_WORDS)]
    assert checked
    assert [f"{_name(m)}:{where}" for m in checked for where in _filler_words(m)] == []


def _filler_words(module: Path) -> Iterator[str]:
    with tokenize.open(module) as source:
        for token in tokenize.generate_tokens(source.readline):
            if token.type in (tokenize.NAME, tokenize.STRING, tokenize.COMMENT):
                words = WORD.findall(NOT_FOUND.sub("", token.string))
                if filler := FILLER_WORDS.intersection(word.lower() for word in words):
                    yield f"{token.start[0]}: {', '.join(sorted(filler))}"


def test_the_check_of_filler_words_reads_names_texts_and_comments(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    lines = [
        '"Somebody reads it."',
        "def read_found(): pass",
        "class WhatIsFound: pass",
        'PATH = f"{path} is not found"  # It was said before.',
        "class NotFound: pass",
        'foundation = "whoever reads it"',
    ]
    module.write_text("\n".join(lines))
    assert list(_filler_words(module)) == [
        "1: somebody",
        "2: found",
        "3: found",
        "4: said",
        "6: whoever",
    ]


def test_no_class_name_is_twice_in_a_package(production: list[Path]) -> None:
    places = defaultdict[tuple[str, str], list[str]](list)
    for module in production:
        for node in ast.parse(_text(module)).body:
            if isinstance(node, ast.ClassDef):
                places[module.relative_to(ROOT).parts[0], node.name].append(_name(module))
    checked = {key: at for key, at in places.items() if key[0] not in WITH_TWO_CLASSES_OF_A_NAME}
    assert {key: at for key, at in checked.items() if len(at) > 1} == {}


def test_no_file_names_a_folder_of_one_machine(files: list[Path]) -> None:
    assert [_name(f) for f in files if MACHINE_PATH.search(_text(f))] == []


def test_the_lock_files_name_no_index() -> None:
    locks = sorted(ROOT.glob("requirements*.lock"))
    assert locks
    assert [_name(lock) for lock in locks if "://" in _text(lock)] == []


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_planted_bugs_still_find_the_line_that_they_spoil(bug: Bug) -> None:
    assert bug.old in _text(ROOT / bug.file), f"{bug.file} no longer contains {bug.old!r}"


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name)
def test_every_relative_link_of_a_page_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", _text(page))
    relative = [link for link in links if "://" not in link and not link.startswith("mailto:")]
    assert [link for link in relative if not (page.parent / link).exists()] == []


def _name(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except UnicodeDecodeError:
        return ""
