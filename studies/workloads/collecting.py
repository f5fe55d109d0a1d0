"""The rows that an importer collects, with the numbers of rows left out and the reasons."""

from collections import Counter
from collections.abc import Sequence

from studies.workloads.trace import BadTrace, Trace, make_trace


class Collector:
    """Rows in any order with absolute or relative times; the resulting trace begins at 0."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._rows: list[tuple[str, float, float, float]] = []
        self._labels: list[dict[str, str]] = []
        self._priorities: list[int] = []
        self._estimates: list[float] = []
        self._left_out: Counter[str] = Counter()
        self._notes: Counter[str] = Counter()

    def add(
        self,
        id: str,
        submit: float,
        gpus: float,
        duration: float,
        *,
        priority: int = 0,
        estimate: float | None = None,
        **labels: str,
    ) -> None:
        """Add a job; times are in seconds."""
        self._rows.append((id, submit, gpus, duration))
        self._labels.append(labels)
        self._priorities.append(priority)
        self._estimates.append(float("nan") if estimate is None else estimate)

    def leave_out(self, why: str) -> None:
        """Count a row that is left out."""
        self._left_out[why] += 1

    def note(self, what: str) -> None:
        """Count a row that was changed in the way that `what` describes."""
        self._notes[what] += 1

    def trace(self) -> Trace:
        """Return the trace; raise BadTrace if it has no jobs."""
        if not self._rows:
            left_out = "; ".join(self._notes_on_rows()) or "it has no rows"
            raise BadTrace(self.name, None, f"no job of it can be used: {left_out}")
        ids, submit, gpus, duration = zip(*self._rows, strict=True)
        first = min(submit)
        columns = sorted({column for row in self._labels for column in row})
        labels: dict[str, Sequence[str]] = {
            column: [row.get(column, "") for row in self._labels] for column in columns
        }
        return make_trace(
            self.name,
            _distinct(ids),
            [at - first for at in submit],
            gpus,
            duration,
            labels=labels,
            notes=self._notes_on_rows(),
            priority=self._priorities if any(self._priorities) else None,
            estimate=self._estimates if any(x == x for x in self._estimates) else None,
        )

    def _notes_on_rows(self) -> list[str]:
        left_out = [f"{n} left out: {why}" for why, n in sorted(self._left_out.items())]
        return [*left_out, *(f"{n} {what}" for what, n in sorted(self._notes.items()))]


def _distinct(ids: Sequence[str]) -> Sequence[str]:
    """Return the ids; a repeated id gets a number."""
    if len(set(ids)) == len(ids):
        return ids
    seen: Counter[str] = Counter()
    distinct = []
    for text in ids:
        seen[text] += 1
        distinct.append(text if seen[text] == 1 else f"{text}.{seen[text]}")
    return distinct
