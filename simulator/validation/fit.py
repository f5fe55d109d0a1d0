"""Fits the constants to a file of measurements, and says how well they carry over.

Constants that act on different kinds of points are fitted apart, each block by Nelder and Mead's
simplex on the mean of absolute logarithmic errors, each counted to at most one half, so that a
measurement that no model explains does not bend the rest. Nothing is random.

Left out one at a time, every system is predicted with constants that never saw it. A block whose
points all come from one system leaves out one series at a time instead. Left out all at once, the
largest scales are predicted by constants fitted on all that is smaller.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import exp, log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.constants import FITTED, Constants
from simulator.validation.points import BadPoint
from simulator.validation.predict import predict
from simulator.validation.scores import Case, Validation, summarise, validate

ERROR_MAX = 0.5
# Points that lost much count half as much again: they are where models differ.
LOSSY_WEIGHT = 0.5
ROUNDS = 45
# Corners whose losses differ by less are one.
CLOSE = 1e-6


class Block(NamedTuple):
    """Constants that are fitted together, and on what."""

    names: tuple[str, ...]
    takes: Callable[[Case], bool]
    # Where else the search begins, as multiples of the start; the lowest loss of all counts.
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
        # From far above there is no way down: there most errors are counted to their limit.
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
    """The constants that fit these points best, found from `start`."""
    constants = start
    for block in BLOCKS:
        constants = _fit_block(block, [case for case in cases if block.takes(case)], constants)
    return constants


def leave_one_out(cases: Sequence[Case], start: Constants = FITTED) -> Validation:
    """Every point predicted by constants that were fitted without its system."""
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
    """The largest scale of every series, predicted by constants fitted on the smaller ones.

    Where each series of a system has one scale, the system's largest is taken; a system that was
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
    """The ids of the points at the largest scale of their series, or else of their system."""
    found: set[str] = set()
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
            found.update(case.point.id for case in part if _scale(case) == most)
    return found


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
    # Begun once more where it stopped: a simplex that has shrunk too early opens again.
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
    """Nelder and Mead's search for a minimum."""
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
