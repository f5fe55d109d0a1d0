"""How wrong forecasts were: each is remembered until it can be compared with what happened."""

from collections import OrderedDict
from collections.abc import Sequence

from controlplane import events as e
from studies.forecast_answers import Accuracy, Errors, Forecast

OPEN_MAX = 10_000
_ENDS = (e.JobSucceeded, e.JobFailed)


class _Sum:
    def __init__(self) -> None:
        self.count = self.by_p50 = self.by_p90 = 0
        self.error_s = self.lateness_s = 0.0

    def add(self, p50: float | None, p90: float | None, at: float) -> None:
        if p50 is None:
            return
        self.count += 1
        self.error_s += abs(at - p50)
        self.lateness_s += at - p50
        self.by_p50 += at <= p50
        self.by_p90 += p90 is None or at <= p90

    def told(self) -> Errors:
        n = self.count
        return Errors(
            count=n,
            mean_error_s=round(self.error_s / n, 3) if n else None,
            mean_lateness_s=round(self.lateness_s / n, 3) if n else None,
            by_p50=round(self.by_p50 / n, 4) if n else None,
            by_p90=round(self.by_p90 / n, 4) if n else None,
        )


class Ledger:
    """The last forecast that was made of each job before it started, and before it ended."""

    def __init__(self) -> None:
        self._starts: OrderedDict[str, Forecast] = OrderedDict()
        self._finishes: OrderedDict[str, Forecast] = OrderedDict()
        self._made = 0
        self._start, self._finish = _Sum(), _Sum()

    def note(self, job: str, forecast: Forecast) -> None:
        self._made += 1
        if forecast.start_p50 is None or forecast.start_p50 >= forecast.made_at:
            _keep(self._starts, job, forecast)
        _keep(self._finishes, job, forecast)

    def record(self, batch: Sequence[e.Recorded]) -> None:
        """What happened; a job that is cancelled proves nobody wrong."""
        if not self._starts and not self._finishes:
            return
        for recorded in batch:
            event = recorded.event
            if isinstance(event, e.GangPlaced):
                told = self._starts.pop(event.job, None)
                if told is not None:
                    self._start.add(told.start_p50, told.start_p90, recorded.at)
            elif isinstance(event, _ENDS):
                told = self._finishes.pop(event.job, None)
                if told is not None:
                    self._finish.add(told.finish_p50, told.finish_p90, recorded.at)
            elif isinstance(event, e.JobCancelled | e.JobRemoved):
                self._starts.pop(event.job, None)
                self._finishes.pop(event.job, None)

    def accuracy(self) -> Accuracy:
        return Accuracy(made=self._made, starts=self._start.told(), finishes=self._finish.told())


def _keep(table: OrderedDict[str, Forecast], job: str, forecast: Forecast) -> None:
    table[job] = forecast
    table.move_to_end(job)
    if len(table) > OPEN_MAX:
        table.popitem(last=False)
