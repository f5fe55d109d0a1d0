"""Quantities of Kubernetes: 500m, 2Gi, 1e3. They are exact fractions, never floats.

A sum keeps the format of its first summand that is not zero, so that memory stays in Gi.
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
# The smallest unit, as in Kubernetes; finer amounts are rounded up.
_FINEST = Fraction(1, 10**9)
# The longest text that is parsed: no real quantity is longer, and parsing takes time in its length.
_LENGTH_MAX = 64


class Quantity(NamedTuple):
    """An exact amount and its format (`spelling`): decimal, binary or exponent."""

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
    """Parse a quantity of a manifest, a text or a number; return None if it is not one."""
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
    """Return an integer with the largest suffix that keeps the amount exact."""
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
