"""All indexes of the history together, fed with batches of events in the order of the log."""

from collections.abc import Sequence

from controlplane.model import events as e
from controlplane.state.state import State
from controlplane.state.world import World
from studies.history.checkpoints import StateCheckpoints
from studies.history.marks import MarkIndex
from studies.history.timeline import TimelineIndex
from studies.history.usage import UsageIndex


class HistoryIndex:
    """Marks, usage and timeline up to `position`."""

    def __init__(self) -> None:
        self.position = 0
        self.at = 0.0
        self.marks = MarkIndex()
        self.usage = UsageIndex()
        self.timeline = TimelineIndex()
        self.checkpoints = StateCheckpoints()

    def begin(self, state: State | World, at: float) -> None:
        """Begin with a state in place of an empty log, as it is at the time `at`."""
        self.position, self.at = state.position, at
        self.usage.observe(at, state, state.jobs, state.nodes)
        self.timeline.observe(at, state, state.jobs, state.nodes, {})

    def observe(self, batch: Sequence[e.Recorded], state: State | World) -> None:
        """Take in the events of one instant, and what `state` is after the last of them.

        The first must follow `position`.
        """
        assert batch[0].position == self.position + 1, (batch[0].position, self.position)
        jobs: dict[str, None] = {}
        nodes: dict[str, None] = {}
        actors: dict[str, str] = {}
        for recorded in batch:
            event = recorded.event
            if isinstance(event, e.JobEvent):
                jobs[event.job] = None
                if isinstance(event, e.JobSubmitted):
                    actors[event.job] = recorded.actor
            elif isinstance(event, e.NodeEvent):
                nodes[event.node] = None
            self.marks.record(recorded, state.jobs)
        self.at = batch[-1].at
        self.usage.observe(self.at, state, jobs, nodes)
        self.timeline.observe(self.at, state, jobs, nodes, actors)
        self.position = batch[-1].position
        self.checkpoints.offer(state)
