"""The compiled core: what may be compiled, when it is taken, and that it decides as the sources do."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli import compiled
from deploy.compiled import build, modules
from deploy.compiled.build import know_places

# A busy simulated day, as words that tell one log from another.
A_DAY = """
import sys
sys.path[:0] = {first!r}
import asyncio
from controlplane import engine
from tests.incidents.day import Day
day = Day(5, jobs=150, day_s=20_000.0, restless=True, racks=2, nodes=4).run()
print(engine.__file__.endswith(".py"), asyncio.run(day.log.head()))
"""


def test_no_compiled_module_would_be_something_else() -> None:
    found = [line for module in modules.compiled_modules() for line in modules.surprises(module)]
    assert found == []


def test_what_is_left_as_written_is_there() -> None:
    assert [name for name in modules._AS_WRITTEN if not (modules.ROOT / name).exists()] == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "class A(Value, frozen=True): ...",
            "A would be no value: it belongs into a module of its own",
        ),
        (
            "class A:\n    @cached_property\n    def x(self): ...",
            "A would work a cached property out whenever it is asked",
        ),
    ],
)
def test_what_would_be_something_else_is_named(
    text: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "it.py").write_text(text)
    monkeypatch.setattr(modules, "ROOT", tmp_path)
    assert list(modules.surprises("it.py")) == [f"it.py:1: {told}"]


def test_only_constant_names_have_a_place_that_remembers() -> None:
    generated = """
    cpy_r_r1 = CPyStatics[12]; /* 'phase' */
    cpy_r_r2 = CPyObject_GetAttr(cpy_r_job, cpy_r_r1);
    cpy_r_r3 = CPyStatics[7]; /* 'EVOLVE' */
    cpy_r_r4 = CPyDict_GetItem(cpy_r_r0, cpy_r_r3);
    cpy_r_r5 = CPyObject_GetAttr(cpy_r_job, cpy_r_name);
    """
    known = know_places(generated)
    assert "MusterObject_GetAttr(cpy_r_job, cpy_r_r1);" in known
    assert "MusterDict_GetItem(cpy_r_r0, cpy_r_r3);" in known
    assert "CPyObject_GetAttr(cpy_r_job, cpy_r_name);" in known


def test_a_tree_of_other_sources_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "TREE", tmp_path)
    assert not compiled.is_true()
    (tmp_path / compiled.STAMP).write_text(compiled.fingerprint())
    assert compiled.is_true()
    (tmp_path / compiled.STAMP).write_text("another one")
    assert not compiled.is_true()


def test_a_process_that_has_begun_as_written_goes_on_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "TREE", tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / compiled.STAMP).write_text(compiled.fingerprint())
    import controlplane  # noqa: F401 - it has begun

    compiled.prefer_compiled()
    assert str(tmp_path) not in sys.path


def compiler(tmp_path: Path, unknown: str) -> str:
    """One that has all headers but this."""
    path = tmp_path / "cc"
    refusal = f'case "$*" in *"-include {unknown} "*) exit 1;; esac'
    path.write_text(f'#!/bin/sh\n{refusal}\nexec cc "$@"\n')
    path.chmod(0o755)
    return str(path)


def _folders(made: Path) -> None:
    for folder in ("controlplane", "adapters/sqlite_log"):
        (made / folder).mkdir(parents=True)


@pytest.mark.parametrize(
    ("unknown", "libraries", "told"),
    [
        ("openssl/evp.h", {"links", "rows"}, "apt-get install libssl-dev"),
        ("sqlite3ext.h", {"strung"}, "apt-get install libsqlite3-dev"),
    ],
)
def test_where_headers_are_missing_the_tree_has_all_other_libraries(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    unknown: str,
    libraries: set[str],
    told: str,
) -> None:
    try:
        build.require_compiler()
    except build.CannotCompile as error:
        pytest.skip(str(error))
    if lacking := [each.without for each in build.IN_C if not build.can_be_compiled(each)]:
        pytest.skip("\n".join(lacking))
    cc, tree = compiler(tmp_path, unknown), tmp_path / "tree"
    monkeypatch.setattr(build, "compiler", lambda: cc)
    for module in (build, compiled):
        monkeypatch.setattr(module, "TREE", tree)
    monkeypatch.setattr(build, "ROOT", tmp_path)
    monkeypatch.setattr(build, "C_FILES", tmp_path / "c")
    # The others take a minute, and are tested by running on them.
    monkeypatch.setattr(build, "link_sources", _folders)
    monkeypatch.setattr(build, "_generate", lambda modules: ())
    monkeypatch.setattr(build, "_compile", lambda extensions, made: None)
    monkeypatch.chdir(tmp_path)
    assert build.main() == 0
    everything = {each.module.rsplit(".", 1)[-1] for each in build.IN_C}
    assert {path.name.split(".")[0] for path in tree.rglob("*.so")} == everything - libraries
    assert capsys.readouterr().err.count(told) == 1
    # Once the headers are there, the next call makes what was left out.
    monkeypatch.setattr(build, "compiler", lambda: "cc")
    assert build.main() == 0
    assert {path.name.split(".")[0] for path in tree.rglob("*.so")} == everything
    assert capsys.readouterr().err == ""


def test_both_forms_write_the_same_log() -> None:
    if not compiled.is_true():
        pytest.skip("nothing was compiled of these sources; run: make compile")
    written, libraries = _a_day(), _a_day(str(compiled.TREE))
    assert written.split(" ", 1)[0] == "True"
    assert libraries.split(" ", 1)[0] == "False"
    assert written.split(" ", 1)[1] == libraries.split(" ", 1)[1]


def _a_day(*first: str) -> str:
    words = A_DAY.format(first=[*first, str(modules.ROOT)])
    # Another hash seed each time: the bytes must not depend on it.
    env = {**os.environ, "PYTHONHASHSEED": str(len(first))}
    done = subprocess.run(
        [sys.executable, "-c", words], env=env, capture_output=True, text=True, check=True
    )
    return done.stdout
