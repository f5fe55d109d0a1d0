"""A synchronous step takes as long as its slowest rank."""

from functools import lru_cache
from statistics import NormalDist


@lru_cache(maxsize=4096)
def slowest(ranks: int, spare: int = 0) -> float:
    """The expected largest of so many standard normal draws, in standard deviations (Blom).

    With backup workers the step ends with the `ranks`-th of `ranks + spare`.
    """
    total = ranks + spare
    if total <= 1:
        return 0.0
    return NormalDist().inv_cdf((ranks - 0.375) / (total + 0.25))


def slowest_exponential(ranks: int) -> float:
    """The same for exponential tails, in means: the harmonic number."""
    return sum(1.0 / i for i in range(1, ranks + 1))
