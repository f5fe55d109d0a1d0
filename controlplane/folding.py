"""Taking rows of the log into a state, each checked before it is believed."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from controlplane import events as e
from controlplane.chain import follows, page_of
from controlplane.codec import (
    EVENT_TYPES,
    Row,
    check_chain,
    decoder_of,
    from_row,
    read_event,
    unreadable,
)
from controlplane.errors import LogCorrupt
from controlplane.job import Job
from controlplane.job_life import EVOLVE
from controlplane.lives import usual_life
from controlplane.page import Page
from controlplane.state import State


class _Kind:
    """A type of event as rows know it."""

    def __init__(self, kind: type[e.Event]) -> None:
        self.version: int = kind.version
        self.decode: Callable[[bytes], Any] = decoder_of(kind.__name__)
        # Whether it is about a job that is there before and after.
        self.evolves: bool = kind in EVOLVE


_KINDS: Final = {name: _Kind(kind) for name, kind in EVENT_TYPES.items()}


def fold(
    state: State,
    rows: Sequence[Row],
    digest: bytes,
    watch: Callable[[e.Recorded], None] | None = None,
) -> bytes:
    """Takes rows in that follow right behind.

    `digest` is the hash of the row before the first; that of the last one is returned. Raises
    LogCorrupt with the first bad position.
    """
    if watch is None and rows and type(state) is State:
        page = page_of(rows)
        if page is not None and fold_pages(state, [page], digest) != digest:
            return page.hash
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


def fold_pages(state: State, pages: Sequence[Page], digest: bytes) -> bytes:
    """Takes pages in, as far as each is the one that follows, and returns the last one's hash.

    What exactly is wrong with the next is for `fold` to say. A world has indexes that go from event
    to event, so this is for bare states.
    """
    assert type(state) is State, state
    good: list[Page] = []
    position = state.position
    for page in pages:
        if page.after != position or not follows(page, digest):
            break
        good.append(page)
        position, digest = page.last, page.hash
    if good:
        _take_in(state, good)
    return digest


# The events of a job that are not yet taken in: each, its time, its position, and so on.
_Told = list[Any]


def _take_in(state: State, pages: Sequence[Page]) -> None:
    """As `apply` does for each event, but the usual ones are gathered, and taken in job by job.

    No event looks at another one's job, so their order among each other does not matter; that of
    what was found impossible does. That both ways lead to the same state is what the properties and
    scenarios test.
    """
    gathered: dict[str, _Told] = {}
    failure: LogCorrupt | None = None
    try:
        for page in pages:
            _gather(state, page, gathered)
    except LogCorrupt as error:
        failure = error
    for job_id, told in gathered.items():
        try:
            _tell(state.jobs, job_id, told)
        except LogCorrupt as error:
            if failure is None or error.position < failure.position:
                failure = error
    if failure is not None:
        raise failure
    state.position, state.at = pages[-1].last, pages[-1].ats[-1]


def _gather(state: State, page: Page, gathered: dict[str, _Told]) -> None:
    """What is not an event of a job, or was caused by a person, is taken in at once.

    So is a job's whole life when an attempt has ended, while it is at hand.
    """
    position, payloads, causes = page.after, page.payloads.split(b"\n"), page.causes.split("\n")
    # Not as numbers, which would only be packed and unpacked on their way.
    ats: list[Any] = page.ats
    versions = page.versions
    event: Any
    for index, name in enumerate(page.types.split("\n")):
        position += 1
        kind = _KINDS.get(name)
        if kind is None or versions[index] != kind.version:
            event = read_event(position, name, versions[index], payloads[index])
        else:
            try:
                event = kind.decode(payloads[index])
            except msgspec.MsgspecError as error:
                raise unreadable(position, name, kind.version, error) from None
        if kind is None or not kind.evolves or causes[index]:
            _apply(state, position, ats[index], event, causes[index], gathered)
            continue
        job_id = event.job
        told = gathered.get(job_id)
        if told is None:
            gathered[job_id] = [event, ats[index], position]
            continue
        told.append(event)
        told.append(ats[index])
        told.append(position)
        if type(event) is e.AttemptEnded:
            del gathered[job_id]
            _tell(state.jobs, job_id, told)


def _apply(
    state: State,
    position: int,
    at: float,
    event: e.Event,
    cause: str,
    gathered: dict[str, _Told],
) -> None:
    if isinstance(event, e.JobEvent) and event.job in gathered:
        _tell(state.jobs, event.job, gathered.pop(event.job))
    state.position = position - 1
    try:
        state.take(position, at, event, cause)
    except (AssertionError, LookupError) as error:
        raise _impossible(position, error) from error


def _tell(jobs: dict[str, Job], job_id: str, told: _Told) -> None:
    """Takes in what was gathered about one job."""
    job = jobs.get(job_id)
    lived = None if job is None else _lived(job, told)
    if lived is not None:
        jobs[job_id] = lived
        return
    position = told[2]
    try:
        job = jobs[job_id]
        for index in range(0, len(told), 3):
            event, position = told[index], told[index + 2]
            job = EVOLVE[type(event)](job, event, told[index + 1], position)
    except (AssertionError, LookupError) as error:
        raise _impossible(position, error) from error
    jobs[job_id] = job


def _lived(job: Job, told: _Told) -> Job | None:
    try:
        return usual_life(job, told)
    except LookupError:
        # Some rank is none of the gang's, and the plain way will find out which event says so.
        return None


def _impossible(position: int, error: Exception) -> LogCorrupt:
    return LogCorrupt(position, f"this cannot have happened: {error}")
