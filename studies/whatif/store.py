"""The folder in which the cells of a study are stored; a cell is complete there, or absent.

A study that was killed continues from the stored cells. The key of a cell covers everything that
its result depends on, so a changed question never reads an old result.
"""

import json
import os
from pathlib import Path
from typing import Any

from studies.whatif.cells import CellResult, Task


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file atomically: after a crash it has either its old or its new content."""
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
    """The cells of studies in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._cells = folder / "cells"

    def find(self, task: Task) -> dict[str, Any] | None:
        """Return the stored document of a task, or None; an incomplete file counts as absent."""
        try:
            document = json.loads((self._cells / f"{task.key}.json").read_bytes())
        except (OSError, ValueError):
            return None
        return document if isinstance(document, dict) else None

    def keep(self, result: CellResult) -> None:
        """Store a result, its document last: where the document exists, the other files do too."""
        if result.jobs_csv is not None:
            write_whole(self._cells / f"{result.key}.jobs.csv", result.jobs_csv)
        if result.schedule is not None:
            write_whole(self._cells / f"{result.key}.schedule.csv", result.schedule)
        write_whole(self._cells / f"{result.key}.json", result.document)

    def side_file(self, task: Task, kind: str) -> bytes:
        """Return a CSV file of a cell; `kind` is "jobs" or "schedule"."""
        return (self._cells / f"{task.key}.{kind}.csv").read_bytes()
