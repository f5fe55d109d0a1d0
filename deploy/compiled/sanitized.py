"""`python -m deploy.compiled.sanitized`: the tests of what is written in C, on libraries that watch it.

The compiler's sanitizers stop the tests at the first access beyond what is there, use of what was let
go, or step that C leaves undefined. Only the modules in C are compiled; all else runs as it is written.
"""

import os
import shutil
import subprocess
import sys

from deploy.compiled.build import (
    AS_C,
    IN_C,
    CannotCompile,
    can_be_compiled,
    compile_c,
    compiler,
    link_sources,
    require_compiler,
)
from deploy.compiled.modules import ROOT

TREE = ROOT / "build" / "sanitized"
WATCHED = [
    *[word for word in AS_C if not word.startswith("-O")],
    *["-O1", "-g", "-fno-omit-frame-pointer"],
    *["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"],
]
TESTS = (
    "tests/controlplane/test_chain.py",
    "tests/controlplane/test_lives.py",
    "tests/controlplane/test_payloads.py",
    "tests/controlplane/test_replay.py",
    "tests/controlplane/test_rows.py",
    "tests/controlplane/test_submissions.py",
    "tests/adapters/test_sqlite_columns.py",
)


def main() -> int:
    try:
        _build()
    except CannotCompile as error:
        print(f"what is written in C was not watched: {error}", file=sys.stderr)
        return 1
    quick = "not slow and not cluster and not as_written"
    words = [sys.executable, "-m", "pytest", "-o", f"pythonpath={TREE} .", "-m", quick]
    # What a sanitizer says must not be kept from the reader by pytest, which it stops.
    return subprocess.run(
        [*words, "-p", "no:cacheprovider", "-s", *TESTS], env=_watching()
    ).returncode


def _build() -> None:
    require_compiler()
    os.chdir(ROOT)
    shutil.rmtree(TREE, ignore_errors=True)
    link_sources(TREE)
    for each in IN_C:
        if not can_be_compiled(each):
            raise CannotCompile(each.without)
        compile_c(each, TREE, WATCHED)


def _watching() -> dict[str, str]:
    """Python itself is not watched, so the sanitizers must be there before it."""
    found = [_library("libasan.so"), _library("libubsan.so")]
    return {
        **os.environ,
        "PYTHONPATH": str(TREE),
        "LD_PRELOAD": ":".join(found),
        # Every object by itself, instead of many in one piece of memory.
        "PYTHONMALLOC": "malloc",
        # An interpreter that ends leaves much behind.
        "ASAN_OPTIONS": "detect_leaks=0",
    }


def _library(name: str) -> str:
    asked = [compiler(), f"-print-file-name={name}"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
