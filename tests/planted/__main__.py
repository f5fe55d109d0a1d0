"""Plants each bug in a copy of the tree and runs the suites that should notice it.

`python -m tests.planted [WORD ...]` takes only the bugs whose name has one of the words. A bug that
no test notices is an error.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.planted.bugs import BUGS, Bug

ROOT = Path(__file__).parents[2]


def main(words: list[str]) -> int:
    chosen = [bug for bug in BUGS if not words or any(word in bug.name for word in words)]
    unnoticed = 0
    for bug in chosen:
        noticed_by = plant(bug)
        unnoticed += not noticed_by
        print(f"{bug.name}\n    {noticed_by or 'NOT NOTICED'}", flush=True)
    print(f"{len(chosen) - unnoticed} of {len(chosen)} planted bugs were noticed")
    return 1 if unnoticed or not chosen else 0


def plant(bug: Bug) -> str:
    """The first test that fails with the bug in place, or nothing."""
    with tempfile.TemporaryDirectory(prefix="muster-planted-") as folder:
        copy = Path(folder) / "tree"
        skipped = (".git", ".venv", "build", "__pycache__", ".*_cache", ".hypothesis")
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*skipped))
        source = copy / bug.file
        text = source.read_text()
        assert bug.old in text, f"{bug.name}: {bug.file} no longer contains {bug.old!r}"
        source.write_text(text.replace(bug.old, bug.new))
        words = ["-x", "-q", "--tb=no", "-p", "no:cacheprovider", "-m", "not slow"]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *words, *bug.suites],
            cwd=copy,
            capture_output=True,
            text=True,
        )
    lines = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return lines[0] if lines and done.returncode == 1 else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
