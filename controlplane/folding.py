"""Taking rows of the log into a state, each checked before it is believed."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec.structs import replace

from controlplane import events as e
from controlplane.chain import follows, page_of
from controlplane.codec import (
    EVENT_TYPES,
    Row,
    check_chain,
    decoder_of,
    from_row,
    read_event,
)
from controlplane.errors import LogCorrupt
from controlplane.job import Job
from controlplane.job_life import EVOLVE
from controlplane.lives import usual_life
from controlplane.page import Page
from controlplane.payloads import read_alike, read_all
from controlplane.state import State
from controlplane.submissions import read_submitted

# Today's version of each type of event, what reads it, and whether its job may stand beside it:
# whoever folds it must not ask the event for that.
_READERS: Final = {
    **{
        name: (kind.version, decoder_of(name), kind in EVOLVE) for name, kind in EVENT_TYPES.items()
    },
    e.JobSubmitted.__name__: (e.JobSubmitted.version, read_submitted, False),
}


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


# Events of jobs that are not yet taken in: of each job an event, its time, its position, and so on.
Told = dict[str, list[Any]]


def fold_pages(
    state: State, pages: Sequence[Page], digest: bytes, told: Told | None = None
) -> bytes:
    """Takes pages in, as far as each is the one that follows, and returns the last one's hash.

    What exactly is wrong with the next is for `fold` to say. A world has indexes that go from event
    to event, so this is for bare states.

    Most events are gathered and taken in job by job. No event looks at another one's job, so their
    order among each other does not matter; that of what was found impossible does. That both ways
    lead to the same state is what the properties and scenarios test. With `told`, what was gathered
    about jobs that go on is left there for the pages behind these: the state is whole once all of
    it is settled.
    """
    assert type(state) is State, state
    gathered: Told = {} if told is None else told
    try:
        for page in pages:
            if page.after != state.position or not follows(page, digest):
                break
            _gather(state, page, gathered)
            state.position, state.at, digest = page.last, page.ats[-1], page.hash
    except LogCorrupt as error:
        settle(state, gathered, error)
    if told is None:
        settle(state, gathered)
    return digest


def settle(state: State, told: Told, failure: LogCorrupt | None = None) -> None:
    """Takes in what was gathered. Raises what was found impossible first, or earlier than `failure`."""
    for job_id, events in told.items():
        try:
            _tell(state.jobs, job_id, events)
        except LogCorrupt as error:
            if failure is None or error.position < failure.position:
                failure = error
    told.clear()
    if failure is not None:
        raise failure


def _gather(state: State, page: Page, gathered: Told) -> None:
    """What is not an event of a job, or was caused by a person, is taken in at once.

    So is what was gathered about a job when its attempt has ended, while it is at hand.
    """
    position, causes = page.after, page.causes.split("\n")
    # Not as numbers, which would only be packed and unpacked on their way.
    ats: list[Any] = page.ats
    jobs, events = read_alike(page.types, page.versions, page.payloads, _READERS)
    # What happens to a job comes in little groups.
    last_id: str | None = None
    told: list[Any] | None = None
    for index, event in enumerate(events):
        position += 1
        whose = jobs[index]
        if whose is None or causes[index]:
            last_id = None
            event = _whole(page, index, event, whose)
            if causes[index] or type(event) not in EVOLVE:
                _apply(state, position, ats[index], event, causes[index], gathered)
                continue
            whose = event.job
        job_id: str = whose
        if job_id is not last_id:
            last_id, told = job_id, gathered.get(job_id)
        if told is None:
            told = gathered[job_id] = [event, ats[index], position]
            continue
        told.append(event)
        told.append(ats[index])
        told.append(position)
        if type(event) is e.AttemptEnded:
            del gathered[job_id]
            _tell(state.jobs, job_id, told)
            last_id = None


def recorded_in(page: Page) -> list[e.Recorded]:
    """The events of a page that follows, with their envelopes; raises LogCorrupt if one is none."""
    causes, actors, position = page.causes.split("\n"), page.actors.split("\n"), page.after
    found: list[e.Recorded] = []
    for index, event in enumerate(read_all(page.types, page.versions, page.payloads, _READERS)):
        position += 1
        if event is None:
            event = _read_row(page, index)
        found.append(e.Recorded(position, page.ats[index], event, causes[index], actors[index]))
    return found


def _whole(page: Page, index: int, event: Any, whose: str | None) -> Any:
    """An event that knows itself whose it is."""
    if event is None:
        return _read_row(page, index)
    return event if whose is None else replace(event, job=whose)


def _read_row(page: Page, index: int) -> e.Event:
    """An event of an older version, or one that cannot be read, which is then said."""
    name, payload = page.types.split("\n")[index], page.payloads.split(b"\n")[index]
    return read_event(page.after + index + 1, name, page.versions[index], payload)


def _apply(
    state: State,
    position: int,
    at: Any,
    event: e.Event,
    cause: str,
    gathered: Told,
) -> None:
    if isinstance(event, e.JobEvent) and event.job in gathered:
        _tell(state.jobs, event.job, gathered.pop(event.job))
    state.position = position - 1
    try:
        state.take(position, at, event, cause)
    except (AssertionError, LookupError) as error:
        raise _impossible(position, error) from error


def _tell(jobs: dict[str, Job], job_id: str, told: list[Any]) -> None:
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


def _lived(job: Job, told: list[Any]) -> Job | None:
    try:
        return usual_life(job, told)
    except LookupError:
        # Some rank is none of the gang's, and the plain way will find out which event says so.
        return None


def _impossible(position: int, error: Exception) -> LogCorrupt:
    return LogCorrupt(position, f"this cannot have happened: {error}")
