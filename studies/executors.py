"""Who computes the cells: this process, all cores of this machine, or a Dask cluster.

Results come back in any order; what is made of them does not depend on it.
"""

import multiprocessing
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any

from studies.cells import CellResult, Task, run_task

DASK = "dask://"
Executor = Callable[[Sequence[Task]], Iterator[CellResult]]


def executor_for(text: str, workers: int) -> Executor:
    """`local`, or the address of a Dask scheduler as in `dask://HOST:PORT`."""
    if text.startswith(DASK):
        return lambda tasks: _on_dask(text.removeprefix(DASK), tasks)
    if text != "local":
        raise ValueError(f"{text!r} is no executor: say local, or dask://HOST:PORT")
    if workers <= 1:
        return lambda tasks: map(run_task, tasks)
    return lambda tasks: _on_cores(workers, tasks)


def _on_cores(workers: int, tasks: Sequence[Task]) -> Iterator[CellResult]:
    # A fresh interpreter for each worker: forking a process that has threads is asking for trouble.
    context = multiprocessing.get_context("spawn")
    with ExitStack() as stack:
        pool = ProcessPoolExecutor(min(workers, len(tasks)), mp_context=context)
        stack.callback(pool.shutdown, wait=True, cancel_futures=True)
        try:
            with _interrupts_are_ours(), _without_main():
                waiting: set[Future[CellResult]] = {pool.submit(run_task, task) for task in tasks}
            while waiting:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        except BaseException:
            # Nobody wants the cells that are being computed any more.
            for process in list((pool._processes or {}).values()):
                process.terminate()
            raise


@contextmanager
def _interrupts_are_ours() -> Iterator[None]:
    """Workers that begin here hear no Ctrl-C: whoever sees it ends them, without a trace of each."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _without_main() -> Iterator[None]:
    """Workers that begin here do not import the caller's script.

    A spawned process imports the script that runs as `__main__`; one that calls `ask` at its top
    level would start a study of its own in every worker. Workers need nothing of it: what they run
    is in `studies.cells`.
    """
    before = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = before


def _on_dask(address: str, tasks: Sequence[Task]) -> Iterator[CellResult]:
    """The workers need Muster installed, and the trace at the same path."""
    try:
        from distributed import Client, as_completed
    except ImportError:
        raise ValueError("Dask is not installed here: pip install 'muster[dask]'") from None
    with Client(f"tcp://{address}", set_as_default=False) as client:
        futures: list[Any] = [
            client.submit(run_task, task, key=f"muster-{task.key}", pure=True) for task in tasks
        ]
        try:
            for future in as_completed(futures, loop=client.loop):
                result: CellResult = future.result()
                yield result
        finally:
            client.cancel(futures)
