"""Studies that were asked for over HTTP: one runs at a time, in a process of its own.

The process that answers people stays quick, and a study that is cancelled is gone at once.
"""

import asyncio
import multiprocessing
import shutil
import tempfile
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from time import perf_counter

from aiohttp import web

from controlplane.errors import Rejected
from studies.executors import executor_for
from studies.grid import Progress
from studies.whatif import WhatIf, ask

KEPT_MAX = 32
WAITING_MAX = 8


class StudyState(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(slots=True)
class Study:
    id: str
    question: WhatIf
    folder: Path
    state: StudyState = StudyState.WAITING
    done: int = 0
    total: int = 0
    problem: str = ""
    began: float | None = None
    process: SpawnProcess | None = field(default=None, repr=False)

    @property
    def seconds_left(self) -> float | None:
        """From how long the runs that are done have taken."""
        if self.state is not StudyState.RUNNING or self.began is None or not self.done:
            return None
        return (perf_counter() - self.began) / self.done * (self.total - self.done)


class Desk:
    def __init__(self) -> None:
        self._studies: OrderedDict[str, Study] = OrderedDict()
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._folder: Path | None = None

    def folder_for(self, id: str) -> Path:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="muster-studies-"))
        folder = self._folder / id
        folder.mkdir()
        return folder

    def discard(self, folder: Path) -> None:
        """Removes the folder of a study that was not taken."""
        shutil.rmtree(folder, ignore_errors=True)

    def take(self, study: Study) -> None:
        """Queues a study; refuses when too many wait already."""
        waiting = sum(s.state is StudyState.WAITING for s in self._studies.values())
        if waiting >= WAITING_MAX:
            self.discard(study.folder)
            raise Rejected("busy", f"{waiting} studies are waiting already")
        self._studies[study.id] = study
        self._forget_old()
        task = asyncio.create_task(self._see_through(study))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def find(self, id: str) -> Study:
        study = self._studies.get(id)
        if study is None:
            raise Rejected("no_such_study", f"there is no study {id!r}")
        return study

    def all(self) -> list[Study]:
        return list(self._studies.values())

    def cancel(self, study: Study) -> None:
        if study.state in (StudyState.WAITING, StudyState.RUNNING):
            study.state = StudyState.CANCELLED
            if study.process is not None:
                study.process.kill()

    async def close(self) -> None:
        for study in self._studies.values():
            self.cancel(study)
        for task in list(self._tasks):
            with suppress(asyncio.CancelledError):
                await task
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    async def _see_through(self, study: Study) -> None:
        async with self._turn:
            if study.state is not StudyState.WAITING:
                return
            study.state, study.began = StudyState.RUNNING, perf_counter()
            ours, theirs = multiprocessing.Pipe(duplex=False)
            context = multiprocessing.get_context("spawn")
            study.process = context.Process(
                target=conduct, args=(study.question, study.folder, theirs), daemon=True
            )
            study.process.start()
            theirs.close()
            try:
                await asyncio.to_thread(_follow, study, ours)
            finally:
                study.process.kill()
                await asyncio.to_thread(study.process.join)
                ours.close()

    def _forget_old(self) -> None:
        over = [s for s in self._studies.values() if s.state not in _UNDER_WAY]
        for study in over[: max(0, len(self._studies) - KEPT_MAX)]:
            del self._studies[study.id]
            shutil.rmtree(study.folder, ignore_errors=True)


_UNDER_WAY = (StudyState.WAITING, StudyState.RUNNING)
DESK = web.AppKey("desk", Desk)


def conduct(question: WhatIf, folder: Path, tell: Connection) -> None:
    """In the process of its own: everything it has to say goes through the pipe.

    It uses one core and leaves the others to the server and the cluster.
    """
    try:
        ask(question, folder, executor=executor_for("local", 1), on_progress=tell.send)
        tell.send("")
    except Exception as error:  # noqa: BLE001 - whoever asked is told
        tell.send(str(error) or type(error).__name__)


def _follow(study: Study, ours: Connection) -> None:
    """In a thread: takes progress in until the last word, or until the process is gone."""
    while True:
        try:
            told = ours.recv()
        except (EOFError, OSError):
            told = "the process that ran it ended before its time"
        if isinstance(told, Progress):
            study.done, study.total = told
            continue
        if study.state is StudyState.RUNNING:
            study.state = StudyState.FAILED if told else StudyState.DONE
            study.problem = told
        return
