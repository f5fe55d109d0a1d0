"""The analysis of a log, from its rows to the result."""

from controlplane.log.codec import from_row
from controlplane.log.hash_chain import check_chain
from controlplane.log.replay import PAGE_ROWS, beginning
from controlplane.ports import LogReader
from studies.analysis.incident_analyser import IncidentAnalyser
from studies.analysis.values import Analysis, EmptySpan


async def analyse(
    log: LogReader, *, since: float | None = None, until: float | None = None
) -> Analysis:
    """Read a log or a bundle, and analyse the span from `since` to `until` (UTC seconds).

    Raise EmptySpan if no event of the log lies in the span.
    """
    first, last = await _span(log, since, until)
    world, digest, _ = await beginning(log)
    position, analyser = world.position, IncidentAnalyser(world, first=first, last=last)
    while rows := await log.read(position, PAGE_ROWS):
        for row in check_chain(rows, after=position, previous=digest):
            if row.at > last:
                return analyser.analysis()
            analyser.hear(from_row(row))
        position, digest = rows[-1].position, rows[-1].hash
    return analyser.analysis()


async def _span(log: LogReader, since: float | None, until: float | None) -> tuple[float, float]:
    """Return the part of the requested span that the log covers; (0, 0) for an empty log."""
    head = (await log.head()).position
    rows = [*await log.read(0, 1), *await log.read(head - 1, 1)] if head else []
    begins, ends = (rows[0].at, rows[-1].at) if rows else (0.0, 0.0)
    first = begins if since is None else max(since, begins)
    last = ends if until is None else min(until, ends)
    if since is not None and until is not None and until < since:
        raise EmptySpan("the span ends before it begins")
    if rows and first > last:
        raise EmptySpan(
            "nothing of the log lies in the span: it "
            + ("ends earlier" if first > ends else "begins later")
        )
    return (first, last) if rows else (0.0, 0.0)
