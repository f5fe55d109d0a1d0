"""Studies requested over HTTP: one runs at a time, in a process of its own.

So the server stays responsive, and a cancelled study ends immediately.
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

from controlplane.model.errors import Rejected
from studies.fork.futures import ForkQuestion
from studies.whatif.executors import executor_for
from studies.whatif.grid import Progress
from studies.whatif.whatif import WhatIf, ask

KEPT_MAX = 32
WHATIF, FORK = "whatif", "fork"

StudyQuestion = WhatIf | ForkQuestion
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
    question: StudyQuestion
    folder: Path
    state: StudyState = StudyState.WAITING
    done: int = 0
    total: int = 0
    problem: str = ""
    began: float | None = None
    process: SpawnProcess | None = field(default=None, repr=False)
    # WHATIF or FORK, and one line that names the question.
    kind: str = WHATIF
    title: str = ""
    # Of a fork: the instant at which it begins, in UTC seconds.
    at: float | None = None

    @property
    def seconds_left(self) -> float | None:
        """The estimated remaining time, from the duration of the finished runs.

        None while the study does not run or no run has finished.
        """
        if self.state is not StudyState.RUNNING or self.began is None or not self.done:
            return None
        return (perf_counter() - self.began) / self.done * (self.total - self.done)


class StudyRunner:
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
        """Remove the folder of a study that was refused."""
        shutil.rmtree(folder, ignore_errors=True)

    def take(self, study: Study) -> None:
        """Queue a study; raise Rejected when too many wait already."""
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
STUDY_RUNNER = web.AppKey("study_runner", StudyRunner)


def conduct(question: StudyQuestion, folder: Path, progress: Connection) -> None:
    """Run a study in its own process; progress and errors go through the pipe `progress`.

    The result is written to `folder`. A study uses one core and leaves the others to the server and
    the cluster.
    """
    try:
        if isinstance(question, ForkQuestion):
            question.conduct(folder, progress.send)
        else:
            ask(question, folder, executor=executor_for("local", 1), on_progress=progress.send)
        progress.send("")
    except Exception as error:  # noqa: BLE001 - reported as the study's problem
        progress.send(str(error) or type(error).__name__)


def _follow(study: Study, ours: Connection) -> None:
    """Receive progress, in a thread, until the final message or the end of the process."""
    while True:
        try:
            message = ours.recv()
        except (EOFError, OSError):
            message = "the process that ran it ended early"
        if isinstance(message, Progress):
            study.done, study.total = message
            continue
        if study.state is StudyState.RUNNING:
            study.state = StudyState.FAILED if message else StudyState.DONE
            study.problem = message
        return
