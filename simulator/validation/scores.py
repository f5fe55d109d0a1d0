"""Errors of all points of a file, and their means by group."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import msgspec
import numpy as np

from simulator.hardware.constants import FITTED, NAMES, Constants
from simulator.validation.points import BadPoint, Point
from simulator.validation.predict import predict

LARGE = 64_000_000
SMALL = 1_000_000
GROUPS = (
    "training",
    "training, efficiency below 0.85",
    "parameter server",
    "allreduce of 64 MB and more",
    "allreduce of 1-64 MB",
    "allreduce below 1 MB",
    "allreduce peak",
    "LLM iteration",
    "LLM utilisation",
    "time to train",
    "types of GPU",
)
# Pairs that differ by less are too close to rank.
APART = 0.05


class Scored(msgspec.Struct, frozen=True, kw_only=True):
    """One point: the measured value, the predicted value, and the signed relative error."""

    id: str
    kind: str
    system: str
    series: str
    groups: tuple[str, ...]
    unit: str
    measured: float
    predicted: float
    error: float
    efficiency: float | None = None


class Failed(msgspec.Struct, frozen=True, kw_only=True):
    """A point that could not be predicted, and why."""

    id: str
    system: str
    problem: str


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Absolute relative errors in percent."""

    points: int
    mape: float
    median: float
    p90: float


class Ranking(msgspec.Struct, frozen=True, kw_only=True):
    """Of the pairs of variants that differ by more than 5 %, how many the model ranks correctly."""

    pairs: int
    right: int

    @property
    def percent(self) -> float:
        """The share of correctly ranked pairs in percent; 100 without any pair."""
        return 100.0 * self.right / self.pairs if self.pairs else 100.0


class Validation(msgspec.Struct, frozen=True, kw_only=True):
    """The scores of all points, and their summaries."""

    points: tuple[Scored, ...]
    failed: tuple[Failed, ...]
    groups: dict[str, Group]
    ranking: Ranking
    constants: dict[str, float]


@dataclass(frozen=True)
class Case:
    """A point to predict, and the baseline of its series."""

    point: Point
    baseline: Point | None


def read_points(document: object) -> tuple[list[Case], list[Failed]]:
    """Return the points to predict, each with the baseline of its series, and the unusable ones.

    Raise BadPoint if the file is not a list of points.
    """
    rows = document.get("points") if isinstance(document, Mapping) else document
    if not isinstance(rows, list):
        raise BadPoint("the file must be a mapping with a list named points, or such a list")
    points, failed = [], []
    for index, row in enumerate(rows):
        if isinstance(row, Mapping):
            points.append(Point(row))
        else:
            failed.append(Failed(id=f"[{index}]", system="", problem="is not a mapping"))
    baselines = {str(p.fields.get("series")): p for p in points if p.is_baseline}
    cases = [
        Case(p, baselines.get(str(p.fields.get("series")))) for p in points if not p.is_baseline
    ]
    return cases, failed


def validate(
    cases: Sequence[Case], constants: Constants = FITTED, failed: Sequence[Failed] = ()
) -> Validation:
    """Predict every point; a point that cannot be predicted is listed with the reason."""
    scored: list[Scored] = []
    problems = list(failed)
    for case in cases:
        try:
            scored.append(_score(case, constants))
        except BadPoint as error:
            system = str(case.point.fields.get("system") or "")
            problems.append(Failed(id=case.point.id, system=system, problem=str(error)))
    return summarise(scored, problems, cases, {name: getattr(constants, name) for name in NAMES})


def summarise(
    scored: Sequence[Scored],
    failed: Sequence[Failed],
    cases: Iterable[Case],
    constants: dict[str, float],
) -> Validation:
    """Return the means by group, in a fixed order, and the ranking of pairs."""
    present = {name for row in scored for name in row.groups}
    points = {case.point.id: case.point for case in cases}
    return Validation(
        points=tuple(scored),
        failed=tuple(failed),
        groups={n: _group([r for r in scored if n in r.groups]) for n in GROUPS if n in present},
        ranking=_ranking(scored, points),
        constants=constants,
    )


def _score(case: Case, constants: Constants) -> Scored:
    point = case.point
    guess = predict(point, case.baseline, constants)
    return Scored(
        id=point.id,
        kind=point.kind,
        system=str(point.fields.get("system") or ""),
        series=str(point.fields.get("series") or ""),
        groups=_groups(point, guess.efficiency),
        unit=guess.unit,
        measured=guess.measured,
        predicted=guess.predicted,
        error=guess.predicted / guess.measured - 1.0,
        efficiency=guess.efficiency,
    )


def _groups(point: Point, efficiency: float | None) -> tuple[str, ...]:
    match point.kind:
        case "train" | "train_efficiency":
            groups = ["training"]
            if efficiency is not None and efficiency < 0.85:
                groups.append("training, efficiency below 0.85")
            if point.text("comm", "").startswith("ps_") and point.count("n_nodes", 1) > 1:
                groups.append("parameter server")
            return tuple(groups)
        case "allreduce":
            size = point.number("bytes")
            band = "of 64 MB and more" if size >= LARGE else "of 1-64 MB"
            return (f"allreduce {band if size >= SMALL else 'below 1 MB'}",)
        case "llm_iter":
            return ("LLM iteration",)
        case "mfu":
            return ("LLM utilisation",)
        case "allreduce_peak_busbw":
            return ("allreduce peak",)
        case "type_ratio":
            return ("types of GPU",)
        case _:
            return ("time to train",)


def _group(rows: Sequence[Scored]) -> Group:
    errors = np.abs([row.error for row in rows]) * 100.0
    return Group(
        points=len(rows),
        mape=float(np.mean(errors)),
        median=float(np.median(errors)),
        p90=float(np.percentile(errors, 90)),
    )


def _ranking(rows: Sequence[Scored], points: Mapping[str, Point]) -> Ranking:
    """Rank pairs of alternatives: the same system, model and number of GPUs, another variant."""
    alike: dict[tuple[Any, ...], list[Scored]] = {}
    for row in rows:
        fields = points[row.id].fields
        if row.kind in ("train", "llm_iter"):
            key = (row.system, row.kind, str(fields.get("model")), fields.get("n_gpus"), row.unit)
            alike.setdefault(key, []).append(row)
    right = pairs = 0
    for group in alike.values():
        for a, b in combinations(group, 2):
            if abs(a.measured - b.measured) <= APART * min(a.measured, b.measured):
                continue
            pairs += 1
            right += (a.measured < b.measured) == (a.predicted < b.predicted)
    return Ranking(pairs=pairs, right=right)
