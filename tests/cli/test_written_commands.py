"""Every command that a document shows can at least be read by the command line."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from cli.main import cli

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# A line of a block, with what stands before a command: a prompt, a path, a pipe.
_COMMAND = re.compile(r"^(?: {4,}|\$ )(?:\$ )?(?:.*?[|&] )?(?:\.venv/bin/)?(muster [^\n]*)$", re.M)
_ENDS = ("|", "&&", "#", ">", ";")


def commands(text: str) -> Iterator[list[str]]:
    """The words behind `muster`, of each command; one that leaves something out is left out."""
    for line in _COMMAND.findall(text.replace("\\\n", " ")):
        words = shlex.split(line, comments=True)[1:]
        for part in _parts(words):
            if part and "..." not in part and "[...]" not in part:
                yield part


def _parts(words: list[str]) -> Iterator[list[str]]:
    """What stands between `&&`; what comes behind a pipe is another program's."""
    ends = [i for i, word in enumerate(words) if word in _ENDS]
    yield words[: ends[0]] if ends else words
    if ends and words[ends[0]] == "&&" and words[ends[0] + 1 : ends[0] + 2] == ["muster"]:
        yield from _parts(words[ends[0] + 2 :])


def parse(words: list[str]) -> None:
    """Reads a command line as far as it can be without doing anything."""
    context = cli.make_context("muster", list(words))
    command: click.Command = cli
    while isinstance(command, click.Group):
        rest = [*context._protected_args, *context.args]
        name, subcommand, rest = command.resolve_command(context, rest)
        assert subcommand is not None, words
        command, context = subcommand, subcommand.make_context(name or "", rest, parent=context)


WRITTEN = [
    pytest.param(words, id=f"{path.name}: {' '.join(words)[:80]}")
    for path in DOCUMENTS
    for words in commands(path.read_text())
]


def test_commands_are_extracted_from_documents() -> None:
    assert len(WRITTEN) > 60


@pytest.mark.parametrize("words", WRITTEN)
def test_a_written_command_is_one(words: list[str]) -> None:
    parse(words)


@pytest.mark.parametrize(
    "line", ["muster lits", "muster list --nosuch", "muster policy get -o wide"]
)
def test_what_is_none_is_noticed(line: str) -> None:
    with pytest.raises(click.UsageError):
        parse(shlex.split(line)[1:])


def test_the_python_of_the_whatif_page_runs_as_a_script(tmp_path: Path) -> None:
    """A script as people write it: without a guard around what runs at its top level."""
    text = (ROOT / "docs" / "whatif.md").read_text()
    (block,) = re.findall(r"```python\n(.*?)```", text, re.S)
    script = tmp_path / "ask.py"
    script.write_text(block.replace('"examples/', f'"{ROOT}/examples/'))
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "mean" in done.stdout
    assert (tmp_path / "out" / "report.html").exists()
