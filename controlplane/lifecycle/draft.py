"""A decision: events that are recorded together, and a draft of one while it is being made."""

from collections.abc import Iterator

from controlplane.lifecycle.job import Job, evolve, require_removable
from controlplane.model import events as e
from controlplane.model.reasons import JobRemovalReason


class Decision:
    """Events in the order in which they are recorded.

    `outcome` is the one job that they are about, after them. It is None if they are about several
    jobs or none, or leave none; otherwise applying the decision need not fold the events again.
    """

    def __init__(self, events: list[e.Event]) -> None:
        self.events = events
        self.outcome: Job | None = None

    def __len__(self) -> int:
        return len(self.events)

    def __iter__(self) -> Iterator[e.Event]:
        return iter(self.events)


class Draft(Decision):
    """Events about one job in preparation: `job` is the job after those decided so far.

    `position` is the position of the last event: at first of the last one in the log, then of the
    last one in the draft.
    """

    def __init__(self, job: Job, now: float, position: int) -> None:
        super().__init__([])
        self.job = job
        self.now = now
        self.position = position

    def add(self, event: e.JobEvent) -> None:
        """Add an event and fold it. Raises ImpossibleEvent if it cannot happen to the job now."""
        self.events.append(event)
        self.position += 1
        self.job = evolve(self.job, e.Recorded(self.position, self.now, event))
        self.outcome = self.job

    def add_removal(self, reason: JobRemovalReason) -> None:
        """Add the last event of a job, after which there is no job."""
        event = e.JobRemoved(self.job.id, reason)
        require_removable(self.job, event)
        self.events.append(event)
        self.outcome = None
