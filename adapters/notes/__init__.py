"""What must outlive the process and is no decision, kept beside the log: a few books of notes.

The log holds what was asked, reported and decided. How wrong forecasts were is neither; losing it
would change no decision. See docs/adr/0016.
"""

from collections.abc import MutableMapping
from typing import Any, Protocol


class Notes(Protocol):
    def book(self, name: str) -> MutableMapping[Any, Any]:
        """Empty, and not kept, until `load`."""

    async def load(self) -> None:
        """Begins to keep the books, from what was kept before; raises LogUnavailable."""

    def release(self) -> None:
        """Somebody else keeps them from now on."""
