"""Events while they are being decided: what they make of their job is known at once."""

from collections.abc import Sequence

from controlplane import events as e
from controlplane.job import Job
from controlplane.job_life import EVOLVE


class Draft(list[e.Event]):
    """Events decided about a job, in order, and the job as they make it.

    Each decision sees those before it, and nobody need fold the events once more. `position` is
    that of the last event, and at first of the last one before them.
    """

    __slots__ = ("job", "now", "position", "removes")

    def __init__(self, job: Job, now: float, position: int) -> None:
        self.job = job
        self.now = now
        self.position = position
        # The last event leaves no job.
        self.removes = False

    def add(self, event: e.JobEvent) -> None:
        self.append(event)
        self.position += 1
        self.job = EVOLVE[type(event)](self.job, event, self.now, self.position)

    def add_removal(self, reason: str) -> None:
        """The last event there is about a job."""
        self.append(e.JobRemoved(self.job.id, reason))
        self.removes = True


def outcome(events: Sequence[e.Event]) -> Job | None:
    """What events make of the one job that they are about, if whoever decided them knows."""
    return events.job if isinstance(events, Draft) and not events.removes else None
