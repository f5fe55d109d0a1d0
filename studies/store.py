"""Where the cells of a study are kept: each is there whole, or not at all.

A study that was killed goes on from the cells that are there. A cell is named by everything that
its result depends on, so a changed question never finds an old answer.
"""

import json
import os
from pathlib import Path
from typing import Any

from studies.cells import CellResult, Task


def write_whole(path: Path, content: bytes) -> None:
    """The file has all of this, or what it had before, whatever happens meanwhile."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with draft.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


class Store:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._cells = folder / "cells"

    def find(self, task: Task) -> dict[str, Any] | None:
        """What is kept of a task's cell, or None; a file that is not whole counts as none."""
        try:
            document = json.loads((self._cells / f"{task.key}.json").read_bytes())
        except (OSError, ValueError):
            return None
        return document if isinstance(document, dict) else None

    def keep(self, result: CellResult) -> None:
        """The document comes last: where it is, everything of the cell is."""
        if result.jobs_csv is not None:
            write_whole(self._cells / f"{result.key}.jobs.csv", result.jobs_csv)
        if result.schedule is not None:
            write_whole(self._cells / f"{result.key}.schedule.csv", result.schedule)
        write_whole(self._cells / f"{result.key}.json", result.document)

    def side_file(self, task: Task, kind: str) -> bytes:
        return (self._cells / f"{task.key}.{kind}.csv").read_bytes()
