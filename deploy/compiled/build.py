"""Makes C of the modules, and shared libraries of that, in a tree that stands before the sources.

The tree has a link to every file of the packages and the libraries beside them. A stamp says of which
sources it was made; whoever starts compares it (`cli/compiled.py`) and takes the sources as they are
if one of them has changed since.
"""

import _sqlite3
import ctypes
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

from cli.compiled import STAMP, TREE, fingerprint, is_true
from deploy.compiled.modules import PACKAGES, ROOT, compiled_modules, surprises

C_FILES = ROOT / "build" / "c"
# The last file that a generated one includes.
_LAST_INCLUDE = re.compile(r'(#include "__native_internal_\w+\.h"\n)')
# Where a constant is asked for: a field by its name, or a global or an imported module by its key.
_CONSTANT = re.compile(
    r"( (\w+) = CPyStatics\[\d+\];[^\n]*\n\s+\w+ = )CPy(Object_GetAttr|Dict_GetItem)(\(\w+, \2\);)"
)
# More than the first level gains nothing that can be measured, and takes four times as long.
_QUICKLY = ["-O1", "-w", "-fPIC", "-fvisibility=hidden", "-fwrapv", "-DNDEBUG"]
_PYTHON = [f"-I{sysconfig.get_paths()['include']}"]
AS_C = ["-O3", "-Wall", "-Werror", "-fPIC", "-fvisibility=hidden", "-shared"]


class InC(NamedTuple):
    """A module that is written in C as well, and what of others it needs for that."""

    module: str
    header: str = "Python.h"
    linked_to: str = ""
    # What is slower without the header, and where to get it.
    without: str = ""


_WITHOUT_OPENSSL = (
    "the chain is made and checked as it is written, which takes longer: OpenSSL's headers are missing; "
    "on Debian: apt-get install libssl-dev"
)
_STRUNG = "adapters.sqlite_log.strung"
IN_C = (
    InC("controlplane.payloads"),
    InC("controlplane.submissions"),
    InC("controlplane.links", "openssl/evp.h", "-lcrypto", _WITHOUT_OPENSSL),
    InC("controlplane.rows", "openssl/evp.h", "-lcrypto", _WITHOUT_OPENSSL),
    InC(
        _STRUNG,
        "sqlite3ext.h",
        "-ldl",
        "SQLite is asked as it is written, which takes longer: its headers are missing (on Debian: "
        "apt-get install libsqlite3-dev), or Python has an SQLite of its own",
    ),
)


class CannotCompile(Exception):
    """What is missing, in words for the person who asked."""


def build() -> None:
    modules = compiled_modules()
    if found := [line for module in modules for line in surprises(module)]:
        raise CannotCompile("\n".join(["these would be something else:", *found]))
    os.chdir(ROOT)
    shutil.rmtree(C_FILES, ignore_errors=True)
    made = TREE.with_name(TREE.name + ".new")
    shutil.rmtree(made, ignore_errors=True)
    link_sources(made)
    _compile(_generate(modules), made)
    for each in IN_C:
        if can_be_compiled(each):
            compile_c(each, made, AS_C)
    (made / STAMP).write_text(fingerprint())
    shutil.rmtree(TREE, ignore_errors=True)
    made.rename(TREE)


def require_compiler() -> None:
    if sys.platform != "linux":
        raise CannotCompile("the core is compiled on Linux only")
    include = Path(sysconfig.get_paths()["include"]) / "Python.h"
    if not include.exists():
        raise CannotCompile("Python's headers are missing; on Debian: apt-get install python3-dev")
    if shutil.which(compiler()) is None:
        raise CannotCompile(f"{compiler()} is missing; on Debian: apt-get install gcc")


def can_be_compiled(each: InC) -> bool:
    words = [compiler(), *_PYTHON, "-E", "-include", each.header, "-x", "c", os.devnull]
    has_header = subprocess.run(words, capture_output=True, check=False).returncode == 0
    return has_header and (each.module != _STRUNG or _sqlite_is_shared())


def _sqlite_is_shared() -> bool:
    """Whether Python's SQLite is a library that others can add functions to."""
    path = getattr(_sqlite3, "__file__", None)
    return path is not None and hasattr(ctypes.CDLL(path), "sqlite3_auto_extension")


def compiler() -> str:
    return (sysconfig.get_config_var("CC") or "cc").split()[0]


def link_sources(tree: Path) -> None:
    """The packages once more, as links to their files."""
    for package in PACKAGES:
        for source in sorted((ROOT / package).rglob("*")):
            if "__pycache__" in source.parts or source.is_dir():
                continue
            link = tree / source.relative_to(ROOT)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(source)


def _generate(modules: Sequence[str]) -> Sequence[Any]:
    """Extensions as setuptools knows them, whose C files know where to find fields; see `slots.h`."""
    from mypyc.build import mypycify

    said = StringIO()
    try:
        # What it says of a module that it can compile is of no use to anybody.
        with redirect_stdout(said), redirect_stderr(said):
            extensions = mypycify([*modules], target_dir=str(C_FILES), multi_file=True)
    except SystemExit:
        raise CannotCompile(f"mypyc refuses:\n{said.getvalue()}") from None
    slots = Path(__file__).with_name("slots.h")
    for path in C_FILES.rglob("__native_*.c"):
        text = path.read_text()
        text, included = _LAST_INCLUDE.subn(rf'\1#include "{slots}"\n', text, count=1)
        assert included, f"{path} includes nothing of mypyc's"
        path.write_text(know_places(text))
    return extensions


def know_places(text: str) -> str:
    """Generated C in which every look-up of a constant remembers where it was found."""
    text = _CONSTANT.sub(r"\1Muster\3\4", text)
    return text.replace(" = PyObject_Vectorcall(", " = MusterObject_Vectorcall(")


def _compile(extensions: Sequence[Any], tree: Path) -> None:
    """Objects first, on every core, and then a library of each extension's."""
    objects = {
        (extension.name, source): C_FILES / "objects" / f"{extension.name}.{number}.o"
        for extension in extensions
        for number, source in enumerate(extension.sources)
    }
    (C_FILES / "objects").mkdir()
    largest_first = sorted(objects, key=lambda it: -Path(it[1]).stat().st_size)
    include = [f"-I{folder}" for folder in (*_include(extensions), C_FILES)]
    compiling = [
        [*_QUICKLY, *include, "-c", one[1], "-o", str(objects[one])] for one in largest_first
    ]
    linking = [
        [
            "-shared",
            *[str(objects[extension.name, source]) for source in extension.sources],
            "-o",
            str(_library(extension.name, tree)),
        ]
        for extension in extensions
    ]
    with ThreadPoolExecutor(os.cpu_count()) as workers:
        for calls in (compiling, linking):
            # Whoever failed is heard of when all are asked for what they have done.
            list(workers.map(_run, calls))


def compile_c(each: InC, tree: Path, how: Sequence[str]) -> None:
    source = Path(__file__).with_name(each.module.rsplit(".", 1)[-1] + ".c")
    libraries = [each.linked_to] if each.linked_to else []
    _run([*how, *_PYTHON, str(source), *libraries, "-o", str(_library(each.module, tree))])


def _include(extensions: Sequence[Any]) -> list[str]:
    asked = [folder for extension in extensions for folder in extension.include_dirs]
    return [*dict.fromkeys([*asked, sysconfig.get_paths()["include"]])]


def _library(module: str, tree: Path) -> Path:
    return tree / (module.replace(".", "/") + str(sysconfig.get_config_var("EXT_SUFFIX")))


def _run(words: Sequence[str]) -> None:
    done = subprocess.run([compiler(), *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotCompile(f"the compiler stopped at {words[-1]}:\n{done.stderr[-2_000:]}")


def _missing() -> list[InC]:
    """What runs as it is written, beside what is compiled."""
    return [each for each in IN_C if not _library(each.module, TREE).exists()]


def main() -> int:
    try:
        if not is_true() or any(can_be_compiled(each) for each in _missing()):
            require_compiler()
            print("compiling the core: a minute or two ...", flush=True)
            build()
    except CannotCompile as error:
        print(f"Muster runs as it is written: {error}", file=sys.stderr)
        return 1
    for told in dict.fromkeys(each.without for each in _missing()):
        print(told, file=sys.stderr)
    print(f"Muster runs compiled while its sources stay as they are: {TREE.relative_to(ROOT)}")
    return 0
