"""Levels over time, and their means over any span.

A level is a number that changes at instants and is constant between them, for example the GPUs in
use. `Levels` keeps, for several levels at once, the integral of each from the beginning up to the
instants at which one of them changed. The mean over a span is the difference of two integrals
divided by the length of the span. Between two kept instants the integral is interpolated linearly,
which is exact as long as no instant between them was dropped.

The memory is bounded: when `points_max` instants are kept, every second one is dropped. The
integrals at the remaining ones stay exact, so only the resolution in time becomes coarser.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

POINTS_MAX = 65_536
_FIRST_SIZE = 256

Numbers = NDArray[np.float64]


class Levels:
    """Levels by name. All are 0 before the first call of `set`."""

    def __init__(self, names: Sequence[str], points_max: int = POINTS_MAX) -> None:
        self.names = tuple(names)
        self._points_max = points_max
        self._points = 0
        self._at = np.zeros(_FIRST_SIZE)
        self._sums = np.zeros((_FIRST_SIZE, len(self.names)))
        self._now = np.zeros(len(self.names))

    @property
    def last_at(self) -> float | None:
        """The instant of the last change; None before the first."""
        return float(self._at[self._points - 1]) if self._points else None

    @property
    def now(self) -> dict[str, float]:
        """The levels after the last change."""
        return dict(zip(self.names, self._now.tolist(), strict=True))

    def set(self, at: float, values: Sequence[float]) -> None:
        """Set all levels from `at` on, which must not be before the last change."""
        points = self._points
        if not points:
            self._append(at, self._sums[0])
        elif at > self._at[points - 1]:
            since = at - self._at[points - 1]
            self._append(at, self._sums[points - 1] + self._now * since)
        self._now = np.array(values, dtype=np.float64)

    def _append(self, at: float, sums: Numbers) -> None:
        if self._points == self._points_max:
            self._thin_out()
        elif self._points == len(self._at):
            self._at = np.concatenate((self._at, np.zeros_like(self._at)))
            self._sums = np.concatenate((self._sums, np.zeros_like(self._sums)))
        self._at[self._points] = at
        self._sums[self._points] = sums
        self._points += 1

    def _thin_out(self) -> None:
        """Drop every second instant, but neither the first nor the last."""
        kept = np.append(np.arange(0, self._points - 1, 2), self._points - 1)
        self._at[: len(kept)] = self._at[kept]
        self._sums[: len(kept)] = self._sums[kept]
        self._points = len(kept)

    def means(self, cuts: Numbers) -> dict[str, Numbers]:
        """Return the mean of each level between every two neighbours of `cuts`, which increase.

        The last levels are taken to last up to the last cut.
        """
        widths = np.diff(cuts)
        if not self._points:
            return {name: np.zeros(len(widths)) for name in self.names}
        at, sums = self._at[: self._points], self._sums[: self._points]
        beyond = np.maximum(0.0, cuts - at[-1])
        means = {}
        for column, name in enumerate(self.names):
            integral = np.interp(cuts, at, sums[:, column]) + self._now[column] * beyond
            means[name] = np.diff(integral) / widths
        return means
