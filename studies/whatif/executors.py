"""Executors of the cells of a study: this process, the cores of this machine, or a Dask cluster.

Results come back in any order, and the study's result does not depend on it.
"""

import multiprocessing
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any

from controlplane.disciplines.discipline import Discipline
from controlplane.disciplines.registry import DISCIPLINES
from controlplane.scheduling.quota_models.quota_model import QUOTA_MODELS, QuotaModel
from studies.whatif.cells import CellResult, Task, run_task

DASK = "dask://"
Executor = Callable[[Sequence[Task]], Iterator[CellResult]]
# Every registered discipline and quota model: another process has registered only those of this release.
Policies = tuple[tuple[Discipline, ...], tuple[QuotaModel, ...]]


def executor_for(text: str, workers: int) -> Executor:
    """Return the executor that `text` names: `local`, or a Dask scheduler as in `dask://HOST:PORT`.

    `workers` is the number of processes of `local`; with at most 1, cells run in this process.
    Raise ValueError for any other text.
    """
    if text.startswith(DASK):
        return lambda tasks: _on_dask(text.removeprefix(DASK), tasks)
    if text != "local":
        raise ValueError(f"{text!r} is not an executor: write local or dask://HOST:PORT")
    if workers <= 1:
        return lambda tasks: map(run_task, tasks)
    return lambda tasks: _on_cores(workers, tasks)


def run_elsewhere(policies: Policies, task: Task) -> CellResult:
    """Run a task in another process, with the policies that are registered in this one."""
    disciplines, quota_models = policies
    for discipline in disciplines:
        DISCIPLINES.register(discipline)
    for model in quota_models:
        QUOTA_MODELS.register(model)
    return run_task(task)


def _policies() -> Policies:
    return tuple(DISCIPLINES), tuple(QUOTA_MODELS)


def _on_cores(workers: int, tasks: Sequence[Task]) -> Iterator[CellResult]:
    # Each worker is a fresh interpreter: to fork a process that has threads is not safe.
    context = multiprocessing.get_context("spawn")
    with ExitStack() as stack:
        pool = ProcessPoolExecutor(min(workers, len(tasks)), mp_context=context)
        stack.callback(pool.shutdown, wait=True, cancel_futures=True)
        try:
            with _interrupts_are_ours(), _without_main():
                waiting: set[Future[CellResult]] = {
                    pool.submit(run_elsewhere, _policies(), task) for task in tasks
                }
            while waiting:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        except BaseException:
            # The caller has stopped reading, so the cells under way are not needed any more.
            for process in list((pool._processes or {}).values()):
                process.terminate()
            raise


@contextmanager
def _interrupts_are_ours() -> Iterator[None]:
    """Block SIGINT for the workers started inside: on Ctrl-C this process ends them.

    Otherwise every worker would print a traceback of its own.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _without_main() -> Iterator[None]:
    """Keep the workers started inside from importing the caller's script.

    A spawned process imports the script that runs as `__main__`; a script that calls `ask` at its
    top level would start another study in every worker. Workers do not need it: the code that they
    run is in `studies.whatif.cells`.
    """
    before = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = before


def _on_dask(address: str, tasks: Sequence[Task]) -> Iterator[CellResult]:
    """Run tasks on a Dask cluster, whose workers need Muster and the trace at the same path.

    Raise ValueError if Dask is not installed.
    """
    try:
        from distributed import Client, as_completed
    except ImportError:
        raise ValueError("Dask is not installed here: pip install 'muster[dask]'") from None
    with Client(f"tcp://{address}", set_as_default=False) as client:
        futures: list[Any] = [
            client.submit(run_elsewhere, _policies(), task, key=f"muster-{task.key}", pure=True)
            for task in tasks
        ]
        try:
            for future in as_completed(futures, loop=client.loop):
                result: CellResult = future.result()
                yield result
        finally:
            client.cancel(futures)
