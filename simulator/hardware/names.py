"""Lookup of hardware by names with many spellings."""

import re
from difflib import get_close_matches


class UnknownHardware(LookupError):
    """No entry of the catalogue has this name."""

    def __init__(self, what: str, name: object, known: list[str], *, word: str = "") -> None:
        super().__init__(what, name)
        self.what = what
        # The unknown part of the name, where the rest is known.
        self.word = word
        self.name = name
        self.near = get_close_matches(str(name), known, n=3, cutoff=0.4)
        self.known = known

    def __str__(self) -> str:
        known = (
            f"near it: {', '.join(self.near)}" if self.near else f"it has {', '.join(self.known)}"
        )
        because = f" ({self.word!r} is not known)" if self.word else ""
        return f"no {self.what} {self.name!r} in the catalogue{because}; {known}"


def words(name: str) -> str:
    """Return the name in lower-case letters, digits and dots, with one blank for anything else."""
    return re.sub(r"[^a-z0-9.]+", " ", name.lower()).strip()
