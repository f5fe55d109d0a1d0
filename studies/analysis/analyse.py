"""From a log to what it teaches."""

from controlplane.codec import check_chain, from_row
from controlplane.ports import LogReader
from controlplane.replay import PAGE_ROWS, beginning
from studies.analysis.values import Analysis
from studies.analysis.witness import Witness


async def analyse(
    log: LogReader, *, since: float | None = None, until: float | None = None
) -> Analysis:
    """Reads a whole log, or a bundle, and says what it teaches about a span of it."""
    world, digest, _ = await beginning(log)
    position, witness = world.position, Witness(world)
    while rows := await log.read(position, PAGE_ROWS):
        for row in check_chain(rows, after=position, previous=digest):
            if until is not None and row[1] > until:
                return witness.analysis(since, until)
            witness.hear(from_row(row))
        position, digest = rows[-1][0], rows[-1][8]
    return witness.analysis(since, until)
