"""Bars for a timeline (Gantt chart): which job held which devices of which node, and when.

A *piece* is what one attempt holds on one node. It is opened when ranks of the attempt get devices
there, and closed when the last of them has released its devices; so ranks that are replaced or added
while the gang runs have pieces of their own. Besides pieces there are the spans in which jobs waited
in their queue or outside it, and those in which nodes were down or cordoned.

As in `usage.py`, a batch of events is looked at by what its jobs and nodes are after it.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from controlplane.lifecycle.attempt import Attempt
from controlplane.lifecycle.job import Job
from controlplane.model.phases import WITH_DEVICES, AttemptState, Phase
from controlplane.model.spec import JobSpec
from controlplane.model.values import in_gpus
from controlplane.state.image import Node
from studies.history.spans import Spans
from studies.history.usage import StateView

PIECES_MAX = 200_000
WAITS_MAX = 200_000
OUTAGES_MAX = 50_000
JOBS_MAX = 500_000
NEVER = float("nan")
# The devices of a piece are bits of a number that JavaScript can hold.
DEVICES_MAX = 53
QUEUED, UNSCHEDULABLE = range(2)
DOWN, CORDONED = range(2)

# How a piece ended; 0 while it has not. A restart adds its cause to the table.
GOING = 0
_ENDS = ["", "succeeded", "failed", "cancelled", "suspended", "released"]
_VERDICTS = {
    Phase.SUCCEEDED: "succeeded",
    Phase.FAILED: "failed",
    Phase.CANCELLED: "cancelled",
    Phase.SUSPENDED: "suspended",
}


class TimelineJob(Struct, frozen=True, gc=False, kw_only=True):
    """A job, in as far as bars show it."""

    # NAMESPACE/NAME.
    name: str
    queue: str
    user: str
    kind: str
    gpus: float
    priority: int
    # The array that it belongs to, NAMESPACE/NAME; empty if to none.
    owner: str = ""


class TimelineNode(Struct, frozen=True, kw_only=True):
    """A lane."""

    name: str
    rack: str
    gpus: int


class Piece(NamedTuple):
    """What an attempt holds on one node: bits of devices, and thousandths of GPUs."""

    devices: int
    milli: int


class _Live(Struct):
    """The open spans of one job."""

    attempt: int = 0
    # Node -> number of the open piece, and what it holds.
    pieces: dict[str, tuple[int, Piece]] = {}
    running: bool = False
    spec: JobSpec | None = None
    wait: int | None = None
    wait_kind: int = QUEUED


class TimelineIndex:
    """All bars of a log, as far as they fit into the tables."""

    def __init__(self) -> None:
        self.pieces = Spans(
            {"job": "l", "attempt": "l", "node": "l", "devices": "Q", "milli": "l",
             "running": "d", "how": "h"},
            PIECES_MAX,
        )  # fmt: skip
        self.waits = Spans({"job": "l", "kind": "b"}, WAITS_MAX)
        self.outages = Spans({"node": "l", "kind": "b"}, OUTAGES_MAX)
        self.jobs: list[TimelineJob] = []
        self.nodes: list[TimelineNode] = []
        self.ends: list[str] = list(_ENDS)
        self._rows: dict[str, int] = {}
        self._node_rows: dict[str, int] = {}
        self._live: dict[str, _Live] = {}
        self._out: dict[str, dict[int, int]] = {}

    def observe(
        self,
        at: float,
        state: StateView,
        jobs: Collection[str],
        nodes: Collection[str],
        actors: Mapping[str, str],
    ) -> None:
        """Take in what `jobs` and `nodes` are in `state` from the time `at` on.

        `actors` has the people who submitted the jobs among them that are new.
        """
        for name in nodes:
            node = state.nodes.get(name)
            if node is not None:
                self._update_node(at, node)
        for job_id in jobs:
            job = state.jobs.get(job_id)
            if job is None:
                self._close_job(at, job_id)
            else:
                self._update_job(at, job, actors.get(job_id, ""))

    # -- jobs --------------------------------------------------------------------------------

    def _row(self, job: Job, actor: str) -> int:
        row = self._rows.get(job.id)
        if row is None:
            if len(self.jobs) >= JOBS_MAX:
                self._forget_jobs()
            row = self._rows[job.id] = len(self.jobs)
            self.jobs.append(timeline_job(job, actor))
        return row

    def _forget_jobs(self) -> None:
        """Drop the jobs of which no span is left."""
        live = [self._rows[job_id] for job_id in self._live]
        columns = (self.pieces.column("job"), self.waits.column("job"), live)
        used = np.unique(np.concatenate(columns)).astype(int)
        renumbered = np.zeros(len(self.jobs), dtype=np.int32)
        renumbered[used] = np.arange(len(used))
        self.jobs = [self.jobs[row] for row in used.tolist()]
        kept = set(used.tolist())
        self._rows = {i: int(renumbered[row]) for i, row in self._rows.items() if row in kept}
        for spans in (self.pieces, self.waits):
            spans.replace("job", renumbered[spans.column("job")])

    def _update_job(self, at: float, job: Job, actor: str) -> None:
        row = self._row(job, actor)
        live = self._live.get(job.id)
        if live is None:
            live = self._live[job.id] = _Live(pieces={}, spec=job.spec)
        elif live.spec is not job.spec:
            live.spec = job.spec
            self.jobs[row] = timeline_job(job, self.jobs[row].user)
        attempt = job.attempt
        number = 0 if attempt is None else attempt.number
        if number != live.attempt:
            self._close_pieces(at, live, self._how(job, live.attempt))
            live.attempt, live.running = number, False
        if attempt is not None:
            self._update_pieces(at, row, job, attempt, live)
        self._update_wait(at, row, job, live)
        if not live.pieces and live.wait is None and job.finished:
            del self._live[job.id]

    def _update_pieces(self, at: float, row: int, job: Job, attempt: Attempt, live: _Live) -> None:
        held = pieces_of(attempt) if attempt.state is not AttemptState.OVER else {}
        for name in [name for name in live.pieces if name not in held]:
            number, _ = live.pieces.pop(name)
            self.pieces.set(number, end=at, how=self._how(job, attempt.number))
        is_running = attempt.running_at is not None
        running = NEVER if attempt.running_at is None else attempt.running_at
        for name, piece in held.items():
            known = live.pieces.get(name)
            if known is None:
                number = self.pieces.open(
                    at, job=row, attempt=attempt.number, node=self._node_row(name),
                    devices=piece.devices, milli=piece.milli, running=running, how=GOING,
                )  # fmt: skip
                live.pieces[name] = (number, piece)
            elif known[1] != piece and piece.milli > known[1].milli:
                # Ranks that end early shorten nothing: a bar shows the most that the piece held.
                self.pieces.set(known[0], devices=piece.devices, milli=piece.milli)
                live.pieces[name] = (known[0], piece)
        if is_running and not live.running:
            live.running = True
            for number, _ in live.pieces.values():
                self.pieces.set(number, running=running)

    def _close_pieces(self, at: float, live: _Live, how: int) -> None:
        for number, _ in live.pieces.values():
            self.pieces.set(number, end=at, how=how)
        live.pieces.clear()

    def _how(self, job: Job, attempt: int) -> int:
        """Return how an attempt of the job ended, as a number of the table `ends`."""
        for restart in reversed(job.restarts):
            if restart.attempt == attempt:
                return self._end(restart.cause.value)
        return self._end(_VERDICTS.get(job.phase, "released"))

    def _end(self, name: str) -> int:
        if name not in self.ends:
            self.ends.append(name)
        return self.ends.index(name)

    def _update_wait(self, at: float, row: int, job: Job, live: _Live) -> None:
        kind = None
        if job.phase is Phase.UNSCHEDULABLE:
            kind = UNSCHEDULABLE
        elif job.phase is Phase.QUEUED and not job.awaits:
            kind = QUEUED
        if live.wait is not None and kind == live.wait_kind:
            return
        if live.wait is not None:
            self.waits.set(live.wait, end=at)
            live.wait = None
        if kind is not None:
            live.wait, live.wait_kind = self.waits.open(at, job=row, kind=kind), kind

    def _close_job(self, at: float, job_id: str) -> None:
        live = self._live.pop(job_id, None)
        if live is not None:
            self._close_pieces(at, live, self._end("released"))
            if live.wait is not None:
                self.waits.set(live.wait, end=at)

    # -- nodes -------------------------------------------------------------------------------

    def _node_row(self, name: str) -> int:
        row = self._node_rows.get(name)
        if row is None:
            row = self._node_rows[name] = len(self.nodes)
            self.nodes.append(TimelineNode(name=name, rack="", gpus=0))
        return row

    def _update_node(self, at: float, node: Node) -> None:
        row = self._node_row(node.name)
        info = node.info
        self.nodes[row] = TimelineNode(name=info.name, rack=info.rack, gpus=info.gpus)
        known = self._out.setdefault(node.name, {})
        is_out = {DOWN: node.removed or not node.ready, CORDONED: node.cordoned}
        for kind, out in is_out.items():
            if out and kind not in known:
                known[kind] = self.outages.open(at, node=row, kind=kind)
            elif not out and kind in known:
                self.outages.set(known.pop(kind), end=at)


def timeline_job(job: Job, actor: str = "") -> TimelineJob:
    """Return the job as bars show it; the label `user` wins over the person who submitted it."""
    return TimelineJob(
        name=f"{job.namespace}/{job.name}",
        queue=job.spec.queue,
        user=job.spec.labels.get("user", actor),
        kind=job.spec.kind,
        gpus=in_gpus(job.spec.gpu_milli),
        priority=job.spec.priority,
        owner="" if job.owner is None else job.owner.name,
    )


def pieces_of(attempt: Attempt) -> dict[str, Piece]:
    """Return what the ranks of the attempt hold now, by node."""
    by_node: dict[str, tuple[int, int]] = {}
    for index, rank in enumerate(attempt.ranks):
        if rank.state in WITH_DEVICES:
            slot = attempt.placement[index]
            devices, milli = by_node.get(slot.node, (0, 0))
            for device in slot.devices:
                if device < DEVICES_MAX:
                    devices |= 1 << device
            by_node[slot.node] = (devices, milli + attempt.milli(index))
    return {node: Piece(*held) for node, held in by_node.items()}
