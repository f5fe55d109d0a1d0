"""What an expectation may contain: keys, and words, that some reader compares."""

from collections.abc import Iterable, Mapping
from typing import Any


def require_known(expect: Mapping[str, Any], known: Iterable[str]) -> None:
    """A key that nothing compares would pass unseen."""
    unknown = sorted(set(expect) - set(known))
    assert not unknown, f"no reader compares {unknown}; known are: {', '.join(sorted(known))}"


def require_word(what: str, word: object, known: Iterable[object]) -> None:
    """A word that is compared with nothing but the words known here."""
    assert word in known, f"no reader knows {what} {word!r}; known are: {sorted(map(str, known))}"


def require_distinct(what: str, items: Iterable[Any]) -> None:
    """A thing that is listed twice is checked once, so the second time means nothing."""
    listed = list(items)
    assert len(set(map(str, listed))) == len(listed), f"{what} are listed twice: {listed}"
