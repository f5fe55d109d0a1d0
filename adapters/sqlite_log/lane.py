"""A connection with a thread of its own, which asyncio can wait for."""

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import TypeVar, TypeVarTuple

from adapters.sqlite_log.failures import translated
from adapters.sqlite_log.opening import connect
from controlplane.errors import LogUnavailable

T = TypeVar("T")
V = TypeVar("V")
Ts = TypeVarTuple("Ts")


class Lane:
    """A connection, and the one thread that uses it: one call after the other, as they came.

    A result goes straight to the event loop. An executor would pass it on through a second future
    and that one's locks, which takes as long as appending five events.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path = path
        self._connection = connection
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._closed = False
        # A daemon: a log that nobody closed must not keep the process alive.
        Thread(target=self._serve, name=f"log {path.name}", daemon=True).start()

    @classmethod
    async def open(cls, path: Path, *, read_only: bool, lock_s_max: float) -> "Lane":
        return cls(path, await asyncio.to_thread(connect, path, read_only, lock_s_max))

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            call()

    async def run(self, work: Callable[[sqlite3.Connection, *Ts], T], *args: *Ts) -> T:
        if self._closed:
            raise LogUnavailable(f"{self._path} was closed")
        return await self._call(work, *args)

    async def _call(self, work: Callable[[sqlite3.Connection, *Ts], T], *args: *Ts) -> T:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()

        def call() -> None:
            try:
                result = work(self._connection, *args)
            except sqlite3.Error as error:
                failure = translated(error, self._path)
                failure.__cause__ = error
                _tell(loop, done, done.set_exception, failure)
            except BaseException as error:  # noqa: BLE001 - raised again where the caller waits
                _tell(loop, done, done.set_exception, error)
            else:
                _tell(loop, done, done.set_result, result)

        self._calls.put(call)
        return await done

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await self._call(sqlite3.Connection.close)
            self._calls.put(None)


def _tell(
    loop: asyncio.AbstractEventLoop,
    done: asyncio.Future[T],
    settle: Callable[[V], None],
    outcome: V,
) -> None:
    """Has the loop settle the future, unless the caller has gone away."""

    def settle_if_awaited() -> None:
        if not done.done():
            settle(outcome)

    try:
        loop.call_soon_threadsafe(settle_if_awaited)
    except RuntimeError:
        # The loop is closed, and with it everyone who could have waited.
        pass
