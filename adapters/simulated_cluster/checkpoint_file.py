"""What simulated checkpoints hold, in a file, so that it outlives the process as real ones do.

A line is one job and the share of its work that is saved, or null once that is of no more use; the
last line of a job counts. A line that a crash cut short is as if it had never been written.
"""

import json
from collections.abc import Hashable, Iterator, MutableMapping
from pathlib import Path


class CheckpointFile(MutableMapping[Hashable, float]):
    def __init__(self, path: Path) -> None:
        self._path = path
        self._shares = _read(path)
        self._write_whole()

    def __getitem__(self, job: Hashable) -> float:
        return self._shares[job]

    def __setitem__(self, job: Hashable, share: float) -> None:
        if self._shares.get(job) != share:
            self._shares[job] = share
            self._add(job, share)

    def __delitem__(self, job: Hashable) -> None:
        del self._shares[job]
        self._add(job, None)

    def __iter__(self) -> Iterator[Hashable]:
        return iter(self._shares)

    def __len__(self) -> int:
        return len(self._shares)

    def _add(self, job: Hashable, share: float | None) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(_line(job, share))

    def _write_whole(self) -> None:
        """Without what was overwritten; beside the old file first, so that one of them is whole."""
        if not self._path.exists():
            return
        beside = self._path.with_name(f"{self._path.name}.new")
        beside.write_text("".join(_line(*item) for item in self._shares.items()), encoding="utf-8")
        beside.replace(self._path)


def _line(job: Hashable, share: float | None) -> str:
    return json.dumps({"job": str(job), "share": share}) + "\n"


def _read(path: Path) -> dict[Hashable, float]:
    found: dict[Hashable, float] = {}
    if not path.exists():
        return found
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            entry = json.loads(line)
            job, share = entry["job"], entry["share"]
        except (ValueError, TypeError, KeyError):
            continue
        found.pop(job, None)
        if isinstance(share, int | float) and 0.0 <= share <= 1.0:
            found[job] = float(share)
    return found
