"""Run the commands of a document and write their output into it: `python docs/run_commands.py FILE.md`.

In a block that is fenced as `console`, a line that begins with `$ ` is a command and the lines below
it are its output. All commands of a document run one after the other in one empty folder that
has the repository's `examples`. A test checks that the documents match.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def with_outputs(text: str) -> str:
    """Return the document with the current output of its commands."""
    with tempfile.TemporaryDirectory(prefix="muster-docs-") as folder:
        (Path(folder) / "examples").symlink_to(ROOT / "examples")
        return BLOCK.sub(lambda block: f"```console\n{_run_all(block[1], folder)}```", text)


def _run_all(block: str, folder: str) -> str:
    commands = [line for line in block.splitlines() if line.startswith("$ ")]
    return "".join(f"{line}\n{_run(line[2:], folder)}" for line in commands)


def _run(command: str, folder: str) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    lines = [line.rstrip() for line in done.stdout.splitlines()]
    return "".join(f"{line}\n" for line in lines)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        document = Path(name)
        document.write_text(with_outputs(document.read_text()))
