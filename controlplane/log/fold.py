"""The one path from rows of the log to a state: verify the chain, decode, apply."""

from collections.abc import Callable, Sequence

from controlplane.log.codec import from_row
from controlplane.log.hash_chain import check_chain
from controlplane.log.installed import check_event
from controlplane.model import events as e
from controlplane.model.errors import LogCorrupt
from controlplane.model.rows import Row
from controlplane.state.state import State
from controlplane.state.world import World


def fold(
    state: State | World,
    rows: Sequence[Row],
    previous: bytes,
    observe: Callable[[e.Recorded], None] | None = None,
) -> bytes:
    """Apply the rows that follow the state's position, and return the hash of the last one.

    `previous` is the hash of the row before the first, and is returned if there are no rows.
    `observe` is called with each event after it was applied. Raises LogCorrupt with the first bad
    position: a row that was changed, cannot be decoded, or cannot have happened in this state; and
    PolicyMissing, a kind of it, for an event that names what is not installed.
    """
    for row in check_chain(rows, after=state.position, previous=previous):
        recorded = from_row(row)
        check_event(recorded)
        try:
            state.apply(recorded)
        except (AssertionError, LookupError) as error:
            raise LogCorrupt(recorded.position, f"this cannot have happened: {error}") from error
        if observe is not None:
            observe(recorded)
    return rows[-1].hash if rows else previous
