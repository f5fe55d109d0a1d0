"""Which code runs: what was compiled of these very sources, or else the sources as they are.

`make compile` leaves a tree of shared libraries behind, with a stamp that says what they were made
of. Both forms decide alike, byte for byte; the compiled one takes about half the time.
"""

import hashlib
import importlib.util
import os
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TREE = ROOT / "build" / "compiled"
STAMP = "stamp"
_SOURCES = ("controlplane", "simulator", "adapters", "studies", "deploy/compiled")


def prefer_compiled() -> None:
    """Lets imports find compiled modules first, if they are there and true. To be called before them."""
    if "controlplane" not in sys.modules and is_true():
        sys.path.insert(0, str(TREE))


def is_true() -> bool:
    """Whether there is a tree, and it was made of the sources as they are now."""
    try:
        return (TREE / STAMP).read_text() == fingerprint()
    except OSError:
        return False


def is_compiled() -> bool:
    """Whether the core that runs here, or would, is the compiled one."""
    found = importlib.util.find_spec("controlplane.engine")
    return found is not None and not str(found.origin).endswith(".py")


def fingerprint() -> str:
    """What the sources and the interpreter are known by."""
    digest = hashlib.sha256(f"{sys.version} {sysconfig.get_platform()}".encode())
    for line in sorted(line for package in _SOURCES for line in _files(str(ROOT / package))):
        digest.update(line.encode())
    return digest.hexdigest()


def _files(folder: str) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                if entry.name != "__pycache__":
                    yield from _files(entry.path)
            elif entry.name.endswith((".py", ".h", ".c")):
                known = entry.stat()
                yield f"{entry.path} {known.st_mtime_ns} {known.st_size}\n"
