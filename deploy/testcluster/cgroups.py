"""The control group of each node, parent of those of its pods. Versions 1 and 2."""

import time
from pathlib import Path

from deploy.testcluster.places import Place, node_name

ROOT = Path("/sys/fs/cgroup")
CONTROLLERS = ("cpuset", "cpu", "io", "memory", "pids", "hugetlb")


def name(place: Place, node: int) -> str:
    return f"/{place.bridge}/{node_name(node)}"


def make(place: Place, node: int) -> None:
    if is_version_2():
        for folder in (ROOT, ROOT / place.bridge):
            folder.mkdir(exist_ok=True)
            offered = (folder / "cgroup.controllers").read_text().split()
            for controller in CONTROLLERS:
                if controller in offered:
                    (folder / "cgroup.subtree_control").write_text(f"+{controller}")
        (ROOT / place.bridge / node_name(node)).mkdir(exist_ok=True)
        return
    for hierarchy in _hierarchies():
        for part in (place.bridge, f"{place.bridge}/{node_name(node)}"):
            folder = hierarchy / part
            folder.mkdir(exist_ok=True)
            # A new cpuset is empty, and nothing could run in it.
            for each in ("cpuset.cpus", "cpuset.mems"):
                if (folder / each).exists():
                    (folder / each).write_text((folder.parent / each).read_text())


def remove(place: Place, node: int) -> None:
    """Remove the folders of what has ended; wait a moment for a node that is still ending."""
    for hierarchy in [ROOT] if is_version_2() else _hierarchies():
        top = hierarchy / place.bridge
        if top.exists():
            _remove_tree(top / node_name(node))
            _remove(top)


def is_version_2() -> bool:
    return (ROOT / "cgroup.controllers").exists()


def _hierarchies() -> list[Path]:
    return sorted(path.parent for path in ROOT.glob("*/cgroup.procs"))


def _remove_tree(top: Path) -> None:
    for folder in sorted((path for path in top.rglob("*") if path.is_dir()), reverse=True):
        _remove(folder)
    _remove(top)


def _remove(folder: Path) -> None:
    for _ in range(20):
        try:
            folder.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            if any(path.is_dir() for path in folder.glob("*")):
                return
            time.sleep(0.05)
