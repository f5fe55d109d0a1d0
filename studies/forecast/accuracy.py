"""The accuracy of forecasts: each is kept until it can be compared with what happened.

All of it is in one mapping of JSON values, which the server may store with the log, so that the
figures survive a restart. It is not in the log: a forecast is advice and decides nothing.
"""

from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any, TypeVar

import msgspec

from controlplane.lifecycle.job import Job
from controlplane.model import events as e
from studies.forecast.views import Accuracy, Errors, Forecast

OPEN_MAX = 10_000
_ENDS = (e.JobSucceeded, e.JobFailed)
# The key of the sums; every other key is a job id.
SUMS = "sums"

T = TypeVar("T")


class _Sum(msgspec.Struct):
    count: int = 0
    by_p50: int = 0
    by_p90: int = 0
    error_s: float = 0.0
    lateness_s: float = 0.0

    def add(self, p50: float | None, p90: float | None, at: float) -> None:
        if p50 is None:
            return
        self.count += 1
        self.error_s += abs(at - p50)
        self.lateness_s += at - p50
        self.by_p50 += at <= p50
        self.by_p90 += p90 is None or at <= p90

    def errors(self) -> Errors:
        n = self.count
        return Errors(
            count=n,
            mean_error_s=round(self.error_s / n, 3) if n else None,
            mean_lateness_s=round(self.lateness_s / n, 3) if n else None,
            by_p50=round(self.by_p50 / n, 4) if n else None,
            by_p90=round(self.by_p90 / n, 4) if n else None,
        )


class _Sums(msgspec.Struct):
    made: int = 0
    start: _Sum = msgspec.field(default_factory=_Sum)
    finish: _Sum = msgspec.field(default_factory=_Sum)


class _Open(msgspec.Struct, omit_defaults=True):
    """The last forecasts for a job before it started, and before it ended."""

    start: Forecast | None = None
    finish: Forecast | None = None


class ForecastAccuracy:
    """The forecasts whose outcome is open, and the sums of errors, in the mapping `book`."""

    def __init__(self, book: MutableMapping[Any, Any] | None = None) -> None:
        self._book: MutableMapping[Any, Any] = {} if book is None else book

    def note(self, job: str, forecast: Forecast) -> None:
        """Keep the forecast for a job; at most `OPEN_MAX` jobs are kept."""
        open_ = self._open(job)
        if forecast.start_p50 is None or forecast.start_p50 >= forecast.made_at:
            open_.start = forecast
        open_.finish = forecast
        sums = self._sums()
        sums.made += 1
        self._book[job] = msgspec.to_builtins(open_)
        self._book[SUMS] = msgspec.to_builtins(sums)
        if len(self._book) > OPEN_MAX + 1:
            del self._book[next(key for key in self._book if key != SUMS)]

    def record(self, batch: Sequence[e.Recorded]) -> None:
        """Compare forecasts with recorded events; a job that is cancelled counts for nothing."""
        if not self._book:
            return
        for recorded in batch:
            event = recorded.event
            if isinstance(event, e.GangPlaced) and event.job in self._book:
                self._started(event.job, recorded.at)
            elif isinstance(event, _ENDS) and event.job in self._book:
                self._ended(event.job, recorded.at)
            elif isinstance(event, e.JobCancelled | e.JobRemoved):
                self._book.pop(event.job, None)

    def _started(self, job: str, at: float) -> None:
        open_, sums = self._open(job), self._sums()
        forecast, open_.start = open_.start, None
        if forecast is not None:
            # The job is closed first: a crash in between then loses one count instead of counting
            # it twice.
            self._book[job] = msgspec.to_builtins(open_)
            sums.start.add(forecast.start_p50, forecast.start_p90, at)
            self._book[SUMS] = msgspec.to_builtins(sums)

    def _ended(self, job: str, at: float) -> None:
        forecast, sums = self._open(job).finish, self._sums()
        del self._book[job]
        if forecast is not None:
            sums.finish.add(forecast.finish_p50, forecast.finish_p90, at)
            self._book[SUMS] = msgspec.to_builtins(sums)

    def catch_up(self, jobs: Mapping[str, Job]) -> None:
        """Close forecasts whose outcome was decided while this object saw no events.

        That happens between an append and the end of a process, or under a leader with another
        mapping. Such forecasts count neither as right nor as wrong.
        """
        for key in [key for key in self._book if key != SUMS]:
            job, open_ = jobs.get(key), self._open(key)
            if job is None or job.finished:
                del self._book[key]
            elif _placed_since(job, open_.start):
                open_.start = None
                self._book[key] = msgspec.to_builtins(open_)

    def accuracy(self) -> Accuracy:
        """Return the accuracy of all forecasts so far."""
        sums = self._sums()
        return Accuracy(made=sums.made, starts=sums.start.errors(), finishes=sums.finish.errors())

    def _sums(self) -> _Sums:
        return _read(self._book.get(SUMS), _Sums)

    def _open(self, job: str) -> _Open:
        return _read(self._book.get(job), _Open)


def _placed_since(job: Job, forecast: Forecast | None) -> bool:
    return (
        forecast is not None
        and job.attempt is not None
        and job.attempt.placed_at >= forecast.made_at
    )


def _read(kept: object, kind: type[T]) -> T:
    """Return the stored value, or an empty one if it is missing or damaged."""
    try:
        return msgspec.convert({} if kept is None else kept, kind)
    except msgspec.ValidationError:
        return kind()
