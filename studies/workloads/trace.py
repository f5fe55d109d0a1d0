"""A workload as columns: the submission time, the GPUs and the duration of each job.

Times are seconds. Rows are in the order of submission: by time, and at the same time by id (as
numbers if all ids are numbers). Columns that a trace does not have are None.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# The text columns, and the meaning of each.
LABELS = {
    "queue": "where the job waits",
    "user": "who submitted it",
    "kind": "what the job is: a kind of manifest, or the owner's word for it",
    "model": "what it trains",
    "status": "how it ended in the recorded cluster",
    "gpu_type": "which GPUs it asked for",
    "shares": "what its ranks have of GPUs that they share; see `shares.py`",
}


class BadTrace(ValueError):
    """The trace cannot be used: the file, the line, and the problem."""

    def __init__(self, source: str, line: int | None, problem: str) -> None:
        super().__init__(source, line, problem)
        self.source = source
        self.line = line
        self.problem = problem

    def __str__(self) -> str:
        where = self.source if self.line is None else f"{self.source}, line {self.line}"
        return f"{where}: {self.problem}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A workload, one entry of each column per job."""

    name: str
    ids: Sequence[str]
    submit: Floats
    # Whole numbers, or floats with thousandths if a job shares GPUs.
    gpus: NDArray[Any]
    duration: Floats
    # The estimate of the user or of a predictor in seconds; NaN where there is none.
    estimate: Floats | None = None
    priority: Integers | None = None
    # The range of replicas of an elastic job; 0 for a job that is not elastic.
    min_replicas: Integers | None = None
    max_replicas: Integers | None = None
    labels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    # What was left out or changed when the trace was read, in plain words.
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def gpu_seconds(self) -> float:
        return float(self.gpus @ self.duration)

    @property
    def span_s(self) -> float:
        """Seconds from the first submission to the last."""
        return float(self.submit[-1] - self.submit[0]) if len(self) else 0.0

    def rows(self, chosen: Integers | slice) -> "Trace":
        """Return the trace reduced to some of its rows, which must be in order."""
        picked = range(len(self))[chosen] if isinstance(chosen, slice) else chosen
        take: dict[str, Any] = {
            name: None if getattr(self, name) is None else getattr(self, name)[chosen]
            for name in ("submit", "gpus", "duration", *OPTIONAL)
        }
        labels = {name: [column[i] for i in picked] for name, column in self.labels.items()}
        return replace(self, ids=[self.ids[i] for i in picked], labels=labels, **take)


OPTIONAL = ("estimate", "priority", "min_replicas", "max_replicas")


def make_trace(
    name: str,
    ids: Sequence[str],
    submit: Iterable[float] | Floats,
    gpus: Iterable[float] | NDArray[Any],
    duration: Iterable[float] | Floats,
    *,
    labels: Mapping[str, Sequence[str]] | None = None,
    notes: Iterable[str] = (),
    **optional: Any,
) -> Trace:
    """Return a trace of these columns, with its rows sorted.

    Text columns without content are dropped.
    """
    columns = {
        "submit": _column(submit, np.float64),
        "gpus": gpu_column(gpus),
        "duration": _column(duration, np.float64),
    }
    for column, values in optional.items():
        if values is not None:
            columns[column] = _column(values, np.float64 if column == "estimate" else np.int64)
    order = _order(columns["submit"], ids)
    if order is not None:
        columns = {column: values[order] for column, values in columns.items()}
        ids = [ids[i] for i in order]
    kept = {}
    for label, texts in (labels or {}).items():
        if any(texts):
            kept[label] = texts if order is None else [texts[i] for i in order]
    return Trace(name=name, ids=ids, labels=kept, notes=tuple(notes), **columns)


def gpu_column(values: Iterable[float] | NDArray[Any]) -> NDArray[Any]:
    """Return numbers of GPUs as an array: integers unless there are fractions among them."""
    column = _column(values, np.float64)
    whole = column.astype(np.int64)
    return whole if np.array_equal(column, whole) else column


def gpu_number(gpus: float) -> float:
    """Return a number of GPUs for an answer: an int if it is whole, else with thousandths."""
    return int(gpus) if gpus == int(gpus) else round(float(gpus), 3)


def _column(values: Any, kind: type[np.generic]) -> NDArray[Any]:
    return np.ascontiguousarray(values, dtype=kind)


def _order(submit: Floats, ids: Sequence[str]) -> Integers | None:
    """Return the order of submission, or None if the rows are in it already."""
    keys = id_keys(ids)
    if isinstance(keys, np.ndarray):
        order = np.lexsort((keys, submit))
    else:
        order = np.array(sorted(range(len(ids)), key=lambda i: (submit[i], keys[i])), dtype=int)
    return None if np.array_equal(order, np.arange(len(ids))) else order


def id_keys(ids: Sequence[str]) -> Integers | Sequence[str]:
    """Return the sort keys of ids: numbers if all ids are numbers, else the ids."""
    if ids and all(map(_is_number, ids)):
        return np.array(list(map(int, ids)), dtype=np.int64)
    return ids


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 19
