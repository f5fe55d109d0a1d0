"""Taking rows of the log into a state, each checked before it is believed."""

from collections.abc import Callable, Sequence

import msgspec

from controlplane.chain import follows, page_of
from controlplane.codec import Row, check_chain, decoder_of, from_row, read_event
from controlplane.errors import LogCorrupt
from controlplane.events import Recorded
from controlplane.job import EVOLVE
from controlplane.page import Page
from controlplane.state import State

# The events of jobs by the names that rows have: what each makes of a job, and how it is read.
_EVOLVE = {kind.__name__: evolve for kind, evolve in EVOLVE.items()}
_DECODE = {kind.__name__: decoder_of(kind.__name__) for kind in EVOLVE}
_VERSIONS = {kind.__name__: kind.version for kind in EVOLVE}


def fold(
    state: State,
    rows: Sequence[Row],
    digest: bytes,
    watch: Callable[[Recorded], None] | None = None,
) -> bytes:
    """Takes rows in that follow right behind.

    `digest` is the hash of the row before the first; that of the last one is returned. Raises
    LogCorrupt with the first bad position.
    """
    if watch is None and rows and type(state) is State:
        page = page_of(rows)
        if page is not None and fold_page(state, page, digest):
            return page.hashes[-1]
    for row in check_chain(rows, after=state.position, previous=digest):
        recorded = from_row(row)
        try:
            state.apply(recorded)
        except (AssertionError, LookupError) as error:
            raise _impossible(recorded.position, error) from error
        digest = row[8]
        if watch is not None:
            watch(recorded)
    return digest


def fold_page(state: State, page: Page, digest: bytes) -> bool:
    """Takes a page in, or leaves the state alone if it is not the one that follows.

    What exactly is wrong with it then is for `fold` to say. A world has indexes that go from event
    to event, so it is for bare states.
    """
    assert type(state) is State, state
    if page.after != state.position or not follows(page, digest):
        return False
    _take_in(state, page)
    return True


def _take_in(state: State, page: Page) -> None:
    """As `apply` does for each event, written out for the usual ones.

    A long log passes through here, and every call and value that is spared counts. What is not an
    event of a job, or was caused by a person, or is of an older version, takes the plain way. That
    both ways lead to the same state is what the properties and scenarios test.
    """
    jobs, position = state.jobs, page.after
    columns = zip(
        page.types, page.versions, page.payloads, page.ats, page.causes, page.actors, strict=True
    )
    try:
        for name, version, payload, at, cause, actor in columns:
            position += 1
            evolve = _EVOLVE.get(name)
            if evolve is None or cause or version != _VERSIONS[name]:
                state.position = position - 1
                event = read_event(position, name, version, payload)
                state.apply(Recorded(position, at, event, cause, actor))
            else:
                news = _DECODE[name](payload)
                jobs[news.job] = evolve(jobs[news.job], news, at, position)
    except (AssertionError, LookupError) as error:
        raise _impossible(position, error) from error
    except msgspec.MsgspecError as error:
        raise LogCorrupt(position, f"it cannot be read: {error}") from None
    state.position = position
    state.at = page.ats[-1]


def _impossible(position: int, error: Exception) -> LogCorrupt:
    return LogCorrupt(position, f"this cannot have happened: {error}")
