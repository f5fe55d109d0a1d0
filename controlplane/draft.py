"""Events that were decided together, and while they are: what they make of a job is known at once."""

from collections.abc import Iterator

from controlplane import events as e
from controlplane.job import Job
from controlplane.job_life import EVOLVE


class Decided:
    """Events in order; and the one job that they are about as they make it, if whoever decided them
    knows. Then nobody need fold them once more."""

    def __init__(self, events: list[e.Event]) -> None:
        self.events = events
        self.outcome: Job | None = None

    def __len__(self) -> int:
        return len(self.events)

    def __iter__(self) -> Iterator[e.Event]:
        return iter(self.events)


class Draft(Decided):
    """Events about a job that are being decided: each decision sees those before it.

    `position` is that of the last event, and at first of the last one before them.
    """

    def __init__(self, job: Job, now: float, position: int) -> None:
        super().__init__([])
        self.job = job
        self.now = now
        self.position = position

    def add(self, event: e.JobEvent) -> None:
        self.events.append(event)
        self.position += 1
        self.job = EVOLVE[type(event)](self.job, event, self.now, self.position)
        self.outcome = self.job

    def add_removal(self, reason: str) -> None:
        """The last event there is about a job, which leaves none."""
        self.events.append(e.JobRemoved(self.job.id, reason))
        self.outcome = None
