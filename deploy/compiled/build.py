"""Makes C of the modules, and shared libraries of that, in a tree that stands before the sources.

The tree has a link to every file of the packages and the libraries beside them. A stamp says of which
sources it was made; whoever starts compares it (`cli/compiled.py`) and takes the sources as they are
if one of them has changed since.
"""

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
from typing import Any

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
# Modules that are written in C as well, and one that needs OpenSSL's headers for that.
_IN_C = ("controlplane.payloads", "adapters.sqlite_log.times")
_LINKS = "controlplane.links"
_AS_C = ["-O2", "-Wall", "-Werror", "-fPIC", "-fvisibility=hidden", "-shared"]
WITHOUT_OPENSSL = (
    "the chain is checked as it is written, which takes longer: OpenSSL's headers are missing; "
    "on Debian: apt-get install libssl-dev"
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
    _link(made)
    _compile(_generate(modules), made)
    for module in _IN_C:
        _compile_c(module, made)
    if has_openssl():
        _compile_c(_LINKS, made, "-lcrypto")
    (made / STAMP).write_text(fingerprint())
    shutil.rmtree(TREE, ignore_errors=True)
    made.rename(TREE)


def require_compiler() -> None:
    if sys.platform != "linux":
        raise CannotCompile("the core is compiled on Linux only")
    include = Path(sysconfig.get_paths()["include"]) / "Python.h"
    if not include.exists():
        raise CannotCompile("Python's headers are missing; on Debian: apt-get install python3-dev")
    if shutil.which(_compiler()) is None:
        raise CannotCompile(f"{_compiler()} is missing; on Debian: apt-get install gcc")


def has_openssl() -> bool:
    words = [_compiler(), "-E", "-include", "openssl/evp.h", "-x", "c", os.devnull]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def _compiler() -> str:
    return (sysconfig.get_config_var("CC") or "cc").split()[0]


def _link(tree: Path) -> None:
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


def _compile_c(module: str, tree: Path, *linked_to: str) -> None:
    source = Path(__file__).with_name(module.rsplit(".", 1)[-1] + ".c")
    include = f"-I{sysconfig.get_paths()['include']}"
    _run([*_AS_C, include, str(source), *linked_to, "-o", str(_library(module, tree))])


def _include(extensions: Sequence[Any]) -> list[str]:
    asked = [folder for extension in extensions for folder in extension.include_dirs]
    return [*dict.fromkeys([*asked, sysconfig.get_paths()["include"]])]


def _library(module: str, tree: Path) -> Path:
    return tree / (module.replace(".", "/") + str(sysconfig.get_config_var("EXT_SUFFIX")))


def _run(words: Sequence[str]) -> None:
    done = subprocess.run([_compiler(), *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotCompile(f"the compiler stopped at {words[-1]}:\n{done.stderr[-2_000:]}")


def main() -> int:
    try:
        if not is_true() or (has_openssl() and not _library(_LINKS, TREE).exists()):
            require_compiler()
            print("compiling the core: a minute or two ...", flush=True)
            build()
    except CannotCompile as error:
        print(f"Muster runs as it is written: {error}", file=sys.stderr)
        return 1
    if not _library(_LINKS, TREE).exists():
        print(WITHOUT_OPENSSL, file=sys.stderr)
    print(f"Muster runs compiled while its sources stay as they are: {TREE.relative_to(ROOT)}")
    return 0
