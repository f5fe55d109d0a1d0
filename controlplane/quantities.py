"""Amounts of a resource as Kubernetes writes them: 500m, 2Gi, 1e3. Exact, never a float.

A sum keeps the spelling of its first part that is not zero, so that memory stays in Gi.
"""

import re
from fractions import Fraction
from math import ceil
from typing import NamedTuple

_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_NUMBER = re.compile(
    r"([+-]?)(\d+\.?\d*|\.\d+)(?:([eE][+-]?\d{1,2})|([numkMGTPE]?|[KMGTPE]i))", re.ASCII
)
# Nothing is finer than this; what would be is rounded up.
_FINEST = Fraction(1, 10**9)
# No cluster has this much of anything, and digits without end would be work without end.
_LENGTH_MAX = 64


class Quantity(NamedTuple):
    """An exact amount, and which of the three spellings it has."""

    amount: Fraction
    spelling: str = "decimal"

    def __str__(self) -> str:
        return _written(self.amount, self.spelling)

    @property
    def whole(self) -> int:
        """The amount as a whole number, rounded up."""
        return ceil(self.amount)

    def plus(self, other: "Quantity") -> "Quantity":
        spelling = self.spelling if self.amount else other.spelling
        return Quantity(self.amount + other.amount, spelling)

    def times(self, count: int) -> "Quantity":
        return Quantity(self.amount * count, self.spelling)


NOTHING = Quantity(Fraction(0))


def parse(given: object) -> Quantity | None:
    """What a manifest gives as an amount, a text or a number; None if it is none."""
    if isinstance(given, bool) or not isinstance(given, str | int | float):
        return None
    if isinstance(given, int) and abs(given) >= 10**_LENGTH_MAX:
        return None
    text = str(given)
    match = _NUMBER.fullmatch(text) if len(text) <= _LENGTH_MAX else None
    if match is None:
        return None
    sign, digits, exponent, suffix = match.groups()
    amount = Fraction(digits) * (-1 if sign == "-" else 1)
    if exponent is not None:
        return Quantity(_rounded(amount * Fraction(10) ** int(exponent[1:])), "exponent")
    if suffix in _BINARY:
        return Quantity(_rounded(amount * 2 ** _BINARY[suffix]), "binary")
    return Quantity(_rounded(amount * Fraction(10) ** _DECIMAL[suffix]))


def _rounded(amount: Fraction) -> Fraction:
    return ceil(amount / _FINEST) * _FINEST


def _written(amount: Fraction, spelling: str) -> str:
    """The shortest whole number with the largest suffix that loses nothing."""
    if spelling == "binary" and abs(amount) >= 1024:
        amount = Fraction(ceil(amount))
        fitting = [suffix for suffix, bits in _BINARY.items() if amount % 2**bits == 0]
        return f"{amount / 2 ** _BINARY[fitting[-1]]}{fitting[-1]}" if fitting else str(amount)
    if not amount:
        return "0"
    powers = {power: suffix for suffix, power in _DECIMAL.items()}
    power = max(p for p in powers if (amount / Fraction(10) ** p).denominator == 1)
    number = amount / Fraction(10) ** power
    if spelling == "exponent" and power:
        return f"{number}e{power}"
    return f"{number}{powers[power]}"
