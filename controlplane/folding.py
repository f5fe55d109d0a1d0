"""Taking rows of the log into a state, each checked before it is believed."""

from collections.abc import Callable, Sequence

import msgspec

from controlplane import events as e
from controlplane.chain import follows, page_of
from controlplane.codec import Row, check_chain, decoder_of, from_row, read_event
from controlplane.errors import LogCorrupt
from controlplane.job import Job
from controlplane.job_life import EVOLVE
from controlplane.lives import usual_life
from controlplane.page import Page
from controlplane.state import State

# The events of jobs by the names that rows have.
_DECODE = {kind.__name__: decoder_of(kind.__name__) for kind in EVOLVE}
_VERSIONS = {kind.__name__: kind.version for kind in EVOLVE}


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
        position, digest = page.last, page.hashes[-1]
    if good:
        _take_in(state, good)
    return digest


# The events of a job that are not yet taken in, with the time and the position of each.
_Told = tuple[list[e.Event], list[float], list[int]]


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
    """What is not an event of a job, or was caused by a person, or is of an older version, takes
    the plain way at once."""
    position, payloads, ats, causes = page.after, page.payloads, page.ats, page.causes
    versions = page.versions
    try:
        for index, name in enumerate(page.types):
            position += 1
            decode = _DECODE.get(name)
            if decode is None or causes[index] or versions[index] != _VERSIONS[name]:
                _apply(state, page, index, gathered)
                continue
            event = decode(payloads[index])
            told = gathered.get(event.job)
            if told is None:
                gathered[event.job] = ([event], [ats[index]], [position])
            else:
                told[0].append(event)
                told[1].append(ats[index])
                told[2].append(position)
    except (AssertionError, LookupError) as error:
        raise _impossible(position, error) from error
    except msgspec.MsgspecError as error:
        raise LogCorrupt(position, f"it cannot be read: {error}") from None


def _apply(state: State, page: Page, index: int, gathered: dict[str, _Told]) -> None:
    position = page.after + index + 1
    event = read_event(position, page.types[index], page.versions[index], page.payloads[index])
    if isinstance(event, e.JobEvent) and event.job in gathered:
        _tell(state.jobs, event.job, gathered.pop(event.job))
    state.position = position - 1
    state.apply(
        e.Recorded(position, page.ats[index], event, page.causes[index], page.actors[index])
    )


def _tell(jobs: dict[str, Job], job_id: str, told: _Told) -> None:
    """Takes in what was gathered about one job."""
    events, ats, positions = told
    job, position = jobs.get(job_id), positions[0]
    lived = None if job is None else _lived(job, events, ats)
    if lived is not None:
        jobs[job_id] = lived
        return
    try:
        job = jobs[job_id]
        for event, at, position in zip(events, ats, positions, strict=True):
            job = EVOLVE[type(event)](job, event, at, position)
    except (AssertionError, LookupError) as error:
        raise _impossible(position, error) from error
    jobs[job_id] = job


def _lived(job: Job, events: list[e.Event], ats: list[float]) -> Job | None:
    try:
        return usual_life(job, events, ats)
    except LookupError:
        # Some rank is none of the gang's, and the plain way will find out which event says so.
        return None


def _impossible(position: int, error: Exception) -> LogCorrupt:
    return LogCorrupt(position, f"this cannot have happened: {error}")
