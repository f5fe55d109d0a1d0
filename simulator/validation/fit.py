"""The fit of the constants to a file of measurements, and cross-validation.

Constants that act on different kinds of points are fitted separately, each block by the simplex
search of Nelder and Mead. The loss is the mean absolute logarithmic error, with each error limited
to one half, so that a measurement that no model explains does not distort the rest. Nothing is
random.

Leave-one-out: every system is predicted with constants that were fitted without it. A block whose
points all come from one system leaves out one series at a time instead. Leave-largest-out: the
largest scales are predicted by constants fitted on all smaller ones.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import exp, log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.hardware.constants import FITTED, Constants
from simulator.validation.points import BadPoint
from simulator.validation.predict import predict
from simulator.validation.scores import Case, Validation, summarise, validate

ERROR_MAX = 0.5
# Points with a large loss of efficiency count half as much again: models differ on them.
LOSSY_WEIGHT = 0.5
ROUNDS = 45
# The search stops when the losses of all corners differ by less.
CLOSE = 1e-6


class Block(NamedTuple):
    """Constants that are fitted together, and the cases that they are fitted on."""

    names: tuple[str, ...]
    takes: Callable[[Case], bool]
    # Additional starting points, as multiples of `start`; the result with the lowest loss is taken.
    also: tuple[tuple[float, ...], ...] = ()


def _kind(case: Case) -> str:
    return str(case.point.fields.get("kind"))


def _on_cpu(case: Case) -> bool:
    return "Xeon" in str(case.point.fields.get("gpu"))


BLOCKS = (
    Block(
        ("nccl_launch_us", "nccl_hop_factor"),
        lambda case: _kind(case) == "allreduce" and not _on_cpu(case),
    ),
    Block(
        ("mpi_hop_us",),
        lambda case: _kind(case) == "allreduce" and _on_cpu(case),
        # From far above the search does not descend: most errors are at their limit there.
        also=((0.5,), (0.25,)),
    ),
    Block(
        ("tcp_copy_gbs", "ps_server_gbs"),
        lambda case: _kind(case) == "train",
    ),
    Block(
        ("gemm_share", "activation_passes", "layer_launch_ms"),
        lambda case: _kind(case) == "llm_iter",
    ),
)


def fit(cases: Sequence[Case], start: Constants = FITTED) -> Constants:
    """Return the constants that fit these points best, searched from `start`."""
    constants = start
    for block in BLOCKS:
        constants = _fit_block(block, [case for case in cases if block.takes(case)], constants)
    return constants


def leave_one_out(cases: Sequence[Case], start: Constants = FITTED) -> Validation:
    """Predict every point with constants that were fitted without its system."""
    parts: list[Validation] = []
    for block in BLOCKS:
        own = [case for case in cases if block.takes(case)]
        by = (
            "system"
            if len({str(case.point.fields.get("system")) for case in own}) > 1
            else "series"
        )
        for name in dict.fromkeys(str(case.point.fields.get(by)) for case in own):
            rest = [case for case in own if str(case.point.fields.get(by)) != name]
            out = [case for case in own if str(case.point.fields.get(by)) == name]
            parts.append(validate(out, _fit_block(block, rest, start)))
    return _joined(parts, cases)


def leave_largest_out(cases: Sequence[Case], start: Constants = FITTED) -> Validation:
    """Predict the largest scale of every series with constants fitted on the smaller ones.

    If each series of a system has one scale, the system's largest is taken; a system that was
    measured at one scale only has none, and stays among the fitted points.
    """
    parts: list[Validation] = []
    for block in BLOCKS:
        own = [case for case in cases if block.takes(case)]
        largest = _largest(own)
        rest = [case for case in own if case.point.id not in largest]
        out = [case for case in own if case.point.id in largest]
        parts.append(validate(out, _fit_block(block, rest, start)))
    return _joined(parts, cases)


def _largest(cases: Sequence[Case]) -> set[str]:
    """Return the ids of the points at the largest scale of their series, or else of their system."""
    ids: set[str] = set()
    for system in dict.fromkeys(str(case.point.fields.get("system")) for case in cases):
        own = [case for case in cases if str(case.point.fields.get("system")) == system]
        series = dict.fromkeys(str(case.point.fields.get("series")) for case in own)
        in_series = [
            [case for case in own if str(case.point.fields.get("series")) == name]
            for name in series
        ]
        several = [part for part in in_series if len({_scale(case) for case in part}) > 1]
        for part in several or ([own] if len({_scale(case) for case in own}) > 1 else []):
            most = max(_scale(case) for case in part)
            ids.update(case.point.id for case in part if _scale(case) == most)
    return ids


def _scale(case: Case) -> float:
    gpus = case.point.fields.get("n_gpus")
    return float(gpus) if isinstance(gpus, int | float) else 0.0


def _joined(parts: Sequence[Validation], cases: Sequence[Case]) -> Validation:
    scored = [row for part in parts for row in part.points]
    failed = [row for part in parts for row in part.failed]
    return summarise(scored, failed, cases, {})


def _fit_block(block: Block, cases: Sequence[Case], start: Constants) -> Constants:
    if not cases:
        return start

    def made(logs: NDArray[np.float64]) -> Constants:
        values = {name: exp(float(x)) for name, x in zip(block.names, logs, strict=True)}
        return replace(start, **values)

    def loss(logs: NDArray[np.float64]) -> float:
        return _loss(cases, made(logs))

    first = np.log([getattr(start, name) for name in block.names])
    begun = [first, *(first + np.log(factors) for factors in block.also)]
    # The search restarts where it stopped: a simplex that shrank too early opens again.
    best = min((simplex(loss, simplex(loss, begin)) for begin in begun), key=loss)
    values = {name: float(f"{getattr(made(best), name):.4g}") for name in block.names}
    return replace(start, **values)


def _loss(cases: Sequence[Case], constants: Constants) -> float:
    total = weight = 0.0
    for case in cases:
        try:
            guess = predict(case.point, case.baseline, constants)
        except BadPoint:
            continue
        lossy = guess.efficiency is not None and guess.efficiency < 0.85
        heavy = 1.0 + (LOSSY_WEIGHT if lossy else 0.0)
        total += heavy * min(ERROR_MAX, abs(log(guess.predicted / guess.measured)))
        weight += heavy
    return total / weight if weight else 0.0


def simplex(
    loss: Callable[[NDArray[np.float64]], float], first: NDArray[np.float64], rounds: int = ROUNDS
) -> NDArray[np.float64]:
    """Minimise `loss` from `first` by the simplex search of Nelder and Mead."""
    corners = [np.array(first)]
    for i in range(len(first)):
        corner = np.array(first)
        corner[i] += 0.2
        corners.append(corner)
    values = [loss(corner) for corner in corners]
    for _ in range(rounds):
        order = np.argsort(values, kind="stable")
        corners, values = [corners[i] for i in order], [values[i] for i in order]
        if values[-1] - values[0] < CLOSE:
            break
        middle = np.mean(corners[:-1], axis=0)
        mirrored = 2.0 * middle - corners[-1]
        value = loss(mirrored)
        if value < values[0]:
            farther = 3.0 * middle - 2.0 * corners[-1]
            far = loss(farther)
            corners[-1], values[-1] = (farther, far) if far < value else (mirrored, value)
        elif value < values[-2]:
            corners[-1], values[-1] = mirrored, value
        else:
            nearer = 0.5 * (middle + corners[-1])
            near = loss(nearer)
            if near < values[-1]:
                corners[-1], values[-1] = nearer, near
            else:
                corners = [corners[0], *(0.5 * (c + corners[0]) for c in corners[1:])]
                values = [values[0], *(loss(c) for c in corners[1:])]
    return corners[int(np.argmin(values))]
