"""A process that appends to a log file until it is killed, and prints what was acknowledged.

python -m tests.adapters.doomed_writer FILE SEED
"""

import asyncio
import random
import sys
from pathlib import Path

from adapters.database.event_log import DatabaseLog
from controlplane.model.events import NodeLost, Recorded


async def append_until_killed(path: str, dice: random.Random) -> None:
    log = await DatabaseLog.open(Path(path))
    position, _, epoch = await log.lead()
    while True:
        last = position + dice.choice([1, 2, 10, 130])
        batch = [event_at(n, epoch) for n in range(position + 1, last + 1)]
        print("trying", last, flush=True)
        await log.append(batch, epoch=epoch)
        print("acknowledged", last, flush=True)
        position = last


def event_at(position: int, epoch: int) -> Recorded:
    """What the writer of this epoch puts at this position."""
    return Recorded(
        position, position / 8, NodeLost(f"n{position % 7}", detail=f"{epoch}:{position}")
    )


if __name__ == "__main__":
    asyncio.run(append_until_killed(sys.argv[1], random.Random(sys.argv[2])))
