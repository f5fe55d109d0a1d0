"""Notes what a study wants to know while the engine runs: one row a job, one row an attempt.

Rows are numbers in flat arrays, so that a hundred thousand jobs take a few megabytes.
"""

from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from controlplane import events as e
from controlplane.devices import WHOLE
from controlplane.errors import Rejected
from controlplane.model import Remedy
from controlplane.obstacles import in_words
from controlplane.world import World

NEVER = float("nan")
# How an attempt ended.
GOING, DONE, FAILED, STOPPED = range(4)


class Recorder:
    """`on_recorded` of an engine. A job's id is the number of its row."""

    def __init__(self, jobs: int, all_ended: Callable[[], object], *, places: bool) -> None:
        # What it looks at once the study has begun; what was before is not noted.
        self._world: World | None = None
        self._all_ended = all_ended
        self._places = places
        self.started = array("d", [NEVER]) * jobs
        self.finished = array("d", [NEVER]) * jobs
        self.failed = bytearray(jobs)
        self.restarts = array("i", [0]) * jobs
        self.refused: dict[int, str] = {}
        # Rows that are set aside, and why, though every node of the study is there.
        self.unschedulable: dict[int, str] = {}
        # The last attempt of each job, as a row of what follows; -1 before the first.
        self._attempt = array("q", [-1]) * jobs
        # So many attempts there are; there is room for one a job, and for more when more come.
        self.attempts = 0
        self.attempt_job = array("q", [-1]) * jobs
        self.previous = array("q", [-1]) * jobs
        self.placed_at = array("d", [NEVER]) * jobs
        self.running_at = array("d", [NEVER]) * jobs
        self.stopped_at = array("d", [NEVER]) * jobs
        self.ended_at = array("d", [NEVER]) * jobs
        self.outcome = bytearray(jobs)
        # Where attempts were: attempt, ordinal of the node, GPUs there.
        self.place_attempt = array("q")
        self.place_node = array("q")
        self.place_gpus = array("d")
        # GPUs on nodes that take work, whenever that changes: (time, GPUs).
        self.capacity: list[tuple[float, int]] = []
        self.causes: Counter[str] = Counter()
        # Row -> seconds by reason, and the reason of the moment with its time.
        self.reasons: dict[int, dict[str, float]] = {}
        self._held: dict[int, tuple[str, float]] = {}
        self.left = jobs
        self.events = 0

    def begin(self, world: World, at: float) -> None:
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
        """A submission that was refused will never be heard of again."""
        if isinstance(answer, Rejected):
            self.refused[row] = str(answer)
            self._one_less()

    def ran_before_s(self, job: int) -> float:
        """How long the attempt before the last one ran."""
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
        """As many attempts again."""
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
        """Nodes of a study come back; nothing else that would help ever changes in it."""
        job = int(event.job)
        self._no_longer_held(job, at)
        self._held[job] = (event.obstacle.code, at)
        if event.obstacle.remedy is not Remedy.NODES and job not in self.unschedulable:
            self.unschedulable[job] = in_words(event.obstacle)
            self._one_less()

    def _taken_back(self, event: e.JobSchedulable, at: float) -> None:
        job = int(event.job)
        self._no_longer_held(job, at)
        if self.unschedulable.pop(job, None) is not None:
            self.left += 1

    def _is_held(self, event: e.GangHeld, at: float) -> None:
        job = int(event.job)
        self._no_longer_held(job, at)
        self._held[job] = (event.code, at)

    def _no_longer_held(self, job: int, at: float) -> None:
        code, since = self._held.pop(job, ("", at))
        if at > since:
            told = self.reasons.setdefault(job, {})
            told[code] = told.get(code, 0.0) + at - since

    def _node_changed(self, event: e.NodeEvent, at: float) -> None:
        self.note_capacity(at)


_NOTES: dict[type[e.Event], Callable[[Recorder, Any, float], None]] = {
    e.GangPlaced: Recorder._placed,
    e.GangStarted: Recorder._running,
    e.AttemptEnded: Recorder._ended,
    e.JobRestarting: Recorder._restarting,
    e.JobSucceeded: Recorder._succeeded,
    e.JobFailed: Recorder._gave_up,
    e.GangHeld: Recorder._is_held,
    e.JobUnschedulable: Recorder._set_aside,
    e.JobSchedulable: Recorder._taken_back,
    e.NodeReported: Recorder._node_changed,
    e.NodeLost: Recorder._node_changed,
    e.NodeRemoved: Recorder._node_changed,
    e.NodeCordoned: Recorder._node_changed,
    e.NodeUncordoned: Recorder._node_changed,
}
