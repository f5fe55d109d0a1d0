"""From a log to what it teaches."""

from controlplane.codec import check_chain, from_row
from controlplane.ports import LogReader
from controlplane.replay import PAGE_ROWS, beginning
from studies.analysis.values import Analysis, EmptySpan
from studies.analysis.witness import Witness


async def analyse(
    log: LogReader, *, since: float | None = None, until: float | None = None
) -> Analysis:
    """Reads a whole log, or a bundle, and says what it teaches about a span of it.

    Raises EmptySpan if nothing of the log lies in the span.
    """
    first, last = await _span(log, since, until)
    world, digest, _ = await beginning(log)
    position, witness = world.position, Witness(world, first=first, last=last)
    while rows := await log.read(position, PAGE_ROWS):
        for row in check_chain(rows, after=position, previous=digest):
            if row[1] > last:
                return witness.analysis()
            witness.hear(from_row(row))
        position, digest = rows[-1][0], rows[-1][8]
    return witness.analysis()


async def _span(log: LogReader, since: float | None, until: float | None) -> tuple[float, float]:
    """What of the span that is asked for the log knows."""
    head = (await log.head()).position
    rows = [*await log.read(0, 1), *await log.read(head - 1, 1)] if head else []
    begins, ends = (rows[0][1], rows[-1][1]) if rows else (0.0, 0.0)
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
