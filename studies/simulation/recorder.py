"""Observations of a running study: one row for each job and one row for each attempt.

Rows are numbers in flat arrays, so that a hundred thousand jobs take a few megabytes.
"""

from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from controlplane.messages import obstacle_text
from controlplane.model import events as e
from controlplane.model.errors import Rejected
from controlplane.model.obstacle import Remedy
from controlplane.state.devices import WHOLE
from controlplane.state.world import World

NEVER = float("nan")
# The outcomes of an attempt.
GOING, DONE, FAILED, STOPPED = range(4)


class Recorder:
    """The `on_recorded` callback of an engine. A job's id is the number of its row."""

    def __init__(self, jobs: int, all_ended: Callable[[], object], *, places: bool) -> None:
        # Set when the study begins; events before that are not counted.
        self._world: World | None = None
        self._all_ended = all_ended
        self._places = places
        self.started = array("d", [NEVER]) * jobs
        self.finished = array("d", [NEVER]) * jobs
        self.failed = bytearray(jobs)
        self.restarts = array("i", [0]) * jobs
        self.refused: dict[int, str] = {}
        # Rows that are unschedulable, and why, although all nodes of the study are present.
        self.unschedulable: dict[int, str] = {}
        # The row of each job's last attempt in the arrays below; -1 before the first.
        self._attempt = array("q", [-1]) * jobs
        # The number of attempts. The arrays begin with space for one per job, and grow.
        self.attempts = 0
        self.attempt_job = array("q", [-1]) * jobs
        self.previous = array("q", [-1]) * jobs
        self.placed_at = array("d", [NEVER]) * jobs
        self.running_at = array("d", [NEVER]) * jobs
        self.stopped_at = array("d", [NEVER]) * jobs
        self.ended_at = array("d", [NEVER]) * jobs
        self.outcome = bytearray(jobs)
        # The places of attempts: the attempt, the ordinal of the node, and the GPUs on it.
        self.place_attempt = array("q")
        self.place_node = array("q")
        self.place_gpus = array("d")
        # The GPUs on nodes that accept work, as (time, GPUs) at every change.
        self.capacity: list[tuple[float, int]] = []
        self.causes: Counter[str] = Counter()
        # By row, the seconds waited for each reason; and the current reason with its begin.
        self.reasons: dict[int, dict[str, float]] = {}
        self._held: dict[int, tuple[str, float]] = {}
        self.left = jobs
        self.events = 0

    def begin(self, world: World, at: float) -> None:
        """Start to record, with the state of `world` at the time `at`."""
        self._world = world
        self.note_capacity(at)

    def __call__(self, batch: Sequence[e.Recorded]) -> None:
        if self._world is None:
            return
        self.events += len(batch)
        for recorded in batch:
            note = _NOTES.get(type(recorded.event))
            if note is not None:
                note(self, recorded.event, recorded.at)

    def answered(self, row: int, answer: object) -> None:
        """Count a refused submission as finished: no event will follow for it."""
        if isinstance(answer, Rejected):
            self.refused[row] = str(answer)
            self._one_less()

    def ran_before_s(self, job: int) -> float:
        """Return how many seconds the attempt before the last one ran; 0 if it did not."""
        row = self.previous[self._attempt[job]]
        if row < 0 or self.running_at[row] != self.running_at[row]:
            return 0.0
        return self.stopped_at[row] - self.running_at[row]

    def note_capacity(self, at: float) -> None:
        assert self._world is not None
        nodes = self._world.nodes.values()
        gpus = sum(node.info.gpus for node in nodes if node.takes_work)
        if self.capacity and self.capacity[-1][0] == at:
            self.capacity.pop()
        if not self.capacity or self.capacity[-1][1] != gpus:
            self.capacity.append((at, gpus))

    def _placed(self, event: e.GangPlaced, at: float) -> None:
        job = int(event.job)
        row = self.attempts
        if row == len(self.placed_at):
            self._make_room()
        self.attempts += 1
        self.previous[row] = self._attempt[job]
        self._attempt[job] = row
        self.attempt_job[row] = job
        self.placed_at[row] = at
        if event.attempt == 1:
            self.started[job] = at
        if self._held:
            self._no_longer_held(job, at)
        if self._places:
            assert self._world is not None
            nodes = self._world.nodes
            shares = event.shares
            for rank, slot in enumerate(event.placement):
                if slot.devices:
                    share = shares[rank] if rank < len(shares) else 0
                    self.place_attempt.append(row)
                    self.place_node.append(nodes[slot.node].ordinal)
                    self.place_gpus.append(share / WHOLE if share else len(slot.devices))

    def _make_room(self) -> None:
        """Double the space for attempts."""
        more = len(self.placed_at)
        for numbers in (self.attempt_job, self.previous):
            numbers.extend(array("q", [-1]) * more)
        for times in (self.placed_at, self.running_at, self.stopped_at, self.ended_at):
            times.extend(array("d", [NEVER]) * more)
        self.outcome.extend(bytes(more))

    def _running(self, event: e.GangStarted, at: float) -> None:
        self.running_at[self._attempt[int(event.job)]] = at

    def _ended(self, event: e.AttemptEnded, at: float) -> None:
        self.ended_at[self._attempt[int(event.job)]] = at

    def _restarting(self, event: e.JobRestarting, at: float) -> None:
        job = int(event.job)
        self.restarts[job] += 1
        self.causes[event.restart.cause.value] += 1
        self._stop(self._attempt[job], STOPPED, at)

    def _succeeded(self, event: e.JobSucceeded, at: float) -> None:
        job = int(event.job)
        self.finished[job] = at
        self._one_less()
        self._stop(self._attempt[job], DONE, at)

    def _gave_up(self, event: e.JobFailed, at: float) -> None:
        job = int(event.job)
        self.finished[job] = at
        self.failed[job] = 1
        self._one_less()
        self._stop(self._attempt[job], FAILED, at)

    def _one_less(self) -> None:
        self.left -= 1
        if not self.left:
            self._all_ended()

    def _stop(self, row: int, outcome: int, at: float) -> None:
        if row >= 0 and self.outcome[row] == GOING:
            self.stopped_at[row] = at
            self.outcome[row] = outcome

    def _set_aside(self, event: e.JobUnschedulable, at: float) -> None:
        """Count an unschedulable job as finished unless nodes can help it.

        Nodes of a study come back; nothing else that could help changes during a study.
        """
        job = int(event.job)
        self._no_longer_held(job, at)
        self._held[job] = (event.obstacle.code, at)
        if event.obstacle.remedy is not Remedy.NODES and job not in self.unschedulable:
            self.unschedulable[job] = obstacle_text(event.obstacle)
            self._one_less()

    def _taken_back(self, event: e.JobSchedulable, at: float) -> None:
        job = int(event.job)
        self._no_longer_held(job, at)
        if self.unschedulable.pop(job, None) is not None:
            self.left += 1

    def _is_held(self, event: e.GangWaiting, at: float) -> None:
        job = int(event.job)
        self._no_longer_held(job, at)
        self._held[job] = (event.code, at)

    def _no_longer_held(self, job: int, at: float) -> None:
        code, since = self._held.pop(job, ("", at))
        if at > since:
            seconds = self.reasons.setdefault(job, {})
            seconds[code] = seconds.get(code, 0.0) + at - since

    def _node_changed(self, event: e.NodeEvent, at: float) -> None:
        self.note_capacity(at)


_NOTES: dict[type[e.Event], Callable[[Recorder, Any, float], None]] = {
    e.GangPlaced: Recorder._placed,
    e.GangStarted: Recorder._running,
    e.AttemptEnded: Recorder._ended,
    e.JobRestarting: Recorder._restarting,
    e.JobSucceeded: Recorder._succeeded,
    e.JobFailed: Recorder._gave_up,
    e.GangWaiting: Recorder._is_held,
    e.JobUnschedulable: Recorder._set_aside,
    e.JobSchedulable: Recorder._taken_back,
    e.NodeReported: Recorder._node_changed,
    e.NodeLost: Recorder._node_changed,
    e.NodeRemoved: Recorder._node_changed,
    e.NodeCordoned: Recorder._node_changed,
    e.NodeUncordoned: Recorder._node_changed,
}
