"""Where the GPUs are, over time. At every instant each GPU of the cluster is in exactly one part:

| part       | state of the GPU                                                                     |
| ---------- | ------------------------------------------------------------------------------------ |
| productive | held by a gang whose ranks are all up                                                |
| starting   | held by a gang of which ranks have not started yet                                   |
| held_idle  | held by a gang that stops, or of which a rank is lost or in back-off                 |
| down       | not held, on a node that does not respond, or unusable                               |
| cordoned   | not held, on a cordoned node                                                         |
| fragmented | free, while a job waits because what is free is in the wrong places                  |
| free       | free otherwise                                                                       |

`waiting_gpus` and `waiting_jobs` are what queued jobs ask for, and `unschedulable_gpus` what jobs
ask for that could not start on the empty cluster.

The index looks at the jobs and nodes that a batch of events was about, after the batch. All events
of a batch have the same time, so nothing between them lasts. What a job held before is remembered
here, so only the difference is applied.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Mapping
from typing import NamedTuple, Protocol

import numpy as np

from controlplane.lifecycle.attempt import Attempt
from controlplane.lifecycle.job import Job
from controlplane.model.phases import WITH_DEVICES, AttemptState, Phase, RankState
from controlplane.model.reasons import WaitReason
from controlplane.model.spec import JobSpec, goes_on_smaller
from controlplane.state.image import Node
from studies.history.levels import Levels, Numbers

PRODUCTIVE, STARTING, HELD_IDLE = "productive", "starting", "held_idle"
HELD = (PRODUCTIVE, STARTING, HELD_IDLE)
PARTS = (*HELD, "down", "cordoned", "fragmented", "free")
DEMAND = ("waiting_gpus", "waiting_jobs", "unschedulable_gpus")
QUEUE_LEVELS = ("used_gpus", "waiting_gpus")
QUEUES_MAX = 256
QUEUE_POINTS_MAX = 8_192
STARTS_MAX = 200_000
MILLI = 1_000

SCATTERED = frozenset(
    {
        WaitReason.FRAGMENTED,
        WaitReason.TOPOLOGY_UNSATISFIED,
        WaitReason.NO_EXCLUSIVE_DOMAIN,
    }
)


class StateView(Protocol):
    """What the index reads of a `State` or a `World`."""

    @property
    def jobs(self) -> Mapping[str, Job]: ...

    @property
    def nodes(self) -> Mapping[str, Node]: ...


class Share(NamedTuple):
    """What one job holds or waits for, in thousandths of a GPU."""

    queue: str
    # One of HELD; empty if it holds nothing.
    part: str = ""
    held: int = 0
    by_node: Mapping[str, int] = {}
    waiting: int = 0
    is_waiting: bool = False
    # Of what it waits for: blocked by fragmentation.
    scattered: int = 0
    unschedulable: int = 0


class Place(NamedTuple):
    """The GPUs of a node."""

    gpus: int = 0
    is_down: bool = False
    is_cordoned: bool = False
    unusable: int = 0


class WaitSummary(NamedTuple):
    """The gangs that started in a bin, and how long they had waited, in seconds."""

    starts: list[int]
    mean_s: list[float | None]
    max_s: list[float | None]


class UsageIndex:
    """The use of the GPUs and the demand over time, for the cluster and for each queue."""

    def __init__(self) -> None:
        self.levels = Levels((*PARTS, *DEMAND, "total"))
        self.queues: dict[str, Levels] = {}
        self._shares: dict[str, Share] = {}
        self._places: dict[str, Place] = {}
        self._total = 0
        self._held: Counter[str] = Counter()
        self._held_on: Counter[str] = Counter()
        self._out: set[str] = set()
        self._waiting = self._waiting_jobs = self._scattered = self._unschedulable = 0
        self._by_queue: dict[str, list[int]] = {}
        # First starts: when, and after how many seconds of waiting.
        self._start_at = array("d")
        self._start_wait = array("d")

    def observe(
        self, at: float, state: StateView, jobs: Collection[str], nodes: Collection[str]
    ) -> None:
        """Take in what `jobs` and `nodes` are in `state`, from the time `at` on."""
        changed = [self._update_job(at, job_id, state.jobs.get(job_id)) for job_id in jobs]
        moved = [self._update_node(name, state.nodes.get(name)) for name in nodes]
        if any(moved) or any(changed):
            self.levels.set(at, self._values())
        for queue in {name for names in changed for name in names}:
            self._set_queue(at, queue)

    def _update_job(self, at: float, job_id: str, job: Job | None) -> tuple[str, ...]:
        """Replace the share of a job; return the queues that changed."""
        before = self._shares.get(job_id)
        after = None if job is None else share_of(job)
        if before == after:
            return ()
        if job is not None and after is not None:
            self._note_start(at, job, before, after)
        queues: dict[str, None] = {}
        if before is not None:
            self._add(before, -1)
            queues[before.queue] = None
        if after is None or after == Share(after.queue):
            self._shares.pop(job_id, None)
        else:
            self._shares[job_id] = after
        if after is not None:
            self._add(after, 1)
            queues[after.queue] = None
        return tuple(queues)

    def _add(self, share: Share, sign: int) -> None:
        self._waiting += sign * share.waiting
        self._waiting_jobs += sign * share.is_waiting
        self._scattered += sign * share.scattered
        self._unschedulable += sign * share.unschedulable
        if share.part:
            self._held[share.part] += sign * share.held
            for node, milli in share.by_node.items():
                self._held_on[node] += sign * milli
        queue = self._by_queue.setdefault(share.queue, [0, 0])
        queue[0] += sign * share.held
        queue[1] += sign * share.waiting

    def _note_start(self, at: float, job: Job, before: Share | None, after: Share) -> None:
        attempt = job.attempt
        if attempt is None or attempt.number != 1 or not after.part:
            return
        if before is not None and before.part:
            return
        self._start_at.append(at)
        self._start_wait.append(attempt.placed_at - job.queued_at)
        if len(self._start_at) > STARTS_MAX:
            del self._start_at[: STARTS_MAX // 4]
            del self._start_wait[: STARTS_MAX // 4]

    def _update_node(self, name: str, node: Node | None) -> bool:
        before = self._places.get(name, Place())
        after = _place(node)
        if before == after:
            return False
        self._total += (after.gpus - before.gpus) * MILLI
        self._places[name] = after
        # Most nodes work, so what does not is summed up anew.
        if after.is_down or after.is_cordoned or after.unusable:
            self._out.add(name)
        else:
            self._out.discard(name)
        return True

    def _values(self) -> list[float]:
        down = cordoned = 0
        for name in self._out:
            place = self._places[name]
            idle = max(0, place.gpus * MILLI - self._held_on[name])
            if place.is_down:
                down += idle
            elif place.is_cordoned:
                cordoned += idle
            else:
                down += min(idle, place.unusable * MILLI)
        held = [self._held[part] for part in HELD]
        free = max(0, self._total - sum(held) - down - cordoned)
        fragmented = min(free, self._scattered)
        values = [*held, down, cordoned, fragmented, free - fragmented, self._waiting]
        return [
            *(value / MILLI for value in values),
            self._waiting_jobs,
            self._unschedulable / MILLI,
            self._total / MILLI,
        ]

    def _set_queue(self, at: float, name: str) -> None:
        levels = self.queues.get(name)
        if levels is None:
            if len(self.queues) >= QUEUES_MAX:
                return
            levels = self.queues[name] = Levels(QUEUE_LEVELS, QUEUE_POINTS_MAX)
        levels.set(at, [milli / MILLI for milli in self._by_queue[name]])

    def waits(self, cuts: Numbers) -> WaitSummary:
        """Return how long the gangs had waited that first started between neighbours of `cuts`."""
        first = bisect_left(self._start_at, float(cuts[0]))
        last = bisect_right(self._start_at, float(cuts[-1]))
        waits = np.array(self._start_wait[first:last])
        places = np.searchsorted(cuts, np.array(self._start_at[first:last]), side="right") - 1
        places = np.minimum(places, len(cuts) - 2)
        bins = len(cuts) - 1
        starts = np.bincount(places, minlength=bins)
        sums = np.bincount(places, weights=waits, minlength=bins)
        largest = np.zeros(bins)
        np.maximum.at(largest, places, waits)
        some = starts > 0
        return WaitSummary(
            starts.tolist(),
            [round(float(sums[i] / starts[i]), 3) if some[i] else None for i in range(bins)],
            [round(float(largest[i]), 3) if some[i] else None for i in range(bins)],
        )


def share_of(job: Job) -> Share:
    """Return what the job holds or waits for."""
    queue, attempt = job.spec.queue, job.attempt
    if attempt is not None and attempt.state is not AttemptState.OVER and attempt.with_devices:
        by_node = _by_node(attempt)
        return Share(queue, _part(job.spec, attempt), sum(by_node.values()), by_node)
    if job.phase is Phase.QUEUED and not job.awaits:
        milli = job.spec.gpu_milli
        scattered = milli if job.wait_reason in SCATTERED else 0
        return Share(queue, waiting=milli, is_waiting=True, scattered=scattered)
    if job.phase is Phase.UNSCHEDULABLE:
        return Share(queue, unschedulable=job.spec.gpu_milli)
    return Share(queue)


def _by_node(attempt: Attempt) -> dict[str, int]:
    milli_by_node: dict[str, int] = {}
    for index, rank in enumerate(attempt.ranks):
        if rank.state in WITH_DEVICES:
            node = attempt.placement[index].node
            milli_by_node[node] = milli_by_node.get(node, 0) + attempt.milli(index)
    return milli_by_node


def _part(spec: JobSpec, attempt: Attempt) -> str:
    if attempt.state is AttemptState.STARTING:
        return STARTING
    if attempt.state is AttemptState.STOPPING:
        return HELD_IDLE
    if attempt.up == len(attempt.ranks):
        return PRODUCTIVE
    states = {rank.state for rank in attempt.ranks if not rank.released}
    if states <= {RankState.RUNNING, RankState.EXITED, RankState.PENDING}:
        # Ranks that were added to a running gang come up while the others work.
        return PRODUCTIVE
    smaller = any(goes_on_smaller(role) for role in spec.roles)
    return PRODUCTIVE if smaller and RankState.BACKOFF not in states else HELD_IDLE


def _place(node: Node | None) -> Place:
    if node is None or node.removed:
        return Place()
    return Place(node.info.gpus, not node.ready, node.cordoned, len(set(node.info.unusable)))
