"""Index of waiting jobs: the order of each queue, and in it the classes of jobs of equal shape.

A queue is a sorted list of `QueueKey`s. A key hardly ever changes while a job waits, so inserting keeps the
list sorted; only where the shortest job goes first does a new learned run length change keys, and then
`reorder` sorts anew. Priority ageing needs no new keys either: the priority of every waiting job grows at
the same rate, so the time of submission decides which of two jobs is ahead.

Where jobs may overtake each other (SKIP and BACKFILL), a queue is also divided into `ShapeClass`es: two
jobs of one shape fit in the same places, so if one does not fit now, the other does not either.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Mapping, Sequence
from math import inf
from typing import NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from controlplane.disciplines.discipline import Discipline, OnBlocked
from controlplane.lifecycle.job import Job
from controlplane.model.constraints import asks_of, pods_selector
from controlplane.model.node_affinity import affinity_of
from controlplane.model.phases import Phase
from controlplane.model.policy import Policy
from controlplane.model.reasons import WaitReason
from controlplane.model.resources import has_plain_pods, requests_of
from controlplane.model.spec import OUR_NAMES, PLAIN_SCHEDULING, JobSpec, Role, Scheduling
from controlplane.state.planning import RunLengthIndex
from controlplane.state.run_lengths import RunLengths, estimate
from controlplane.state.state import State


class QueueKey(NamedTuple):
    """A job's place in its queue: the smallest key goes first."""

    # Minus the priority, with ageing.
    priority_key: float
    # What the discipline orders by among equal priorities.
    discipline_key: float
    queue_position: int
    job: str


# Equal for gangs that fit in the same places.
Shape = tuple[object, ...]

_encode = msgspec.json.Encoder(order="deterministic").encode


def queue_key(job: Job, discipline: Discipline, policy: Policy, lengths: RunLengths) -> QueueKey:
    spec = job.spec
    priority_key = float(-spec.priority)
    if policy.ageing_per_hour:
        priority_key += policy.ageing_per_hour * job.submitted_at / 3_600.0
    planned_s = 0.0
    if discipline.orders_by_estimate:
        planned_s = estimate(job.namespace, spec, policy, lengths).planned_s
    return QueueKey(priority_key, discipline.key(job, planned_s), job.queue_position, job.id)


# Equal for jobs that could start, if nothing ran, on the same clusters.
Need = tuple[object, ...]


def need_of(spec: JobSpec) -> Need:
    """What the job needs of a cluster and of its queue's quotas, whatever its place in the queue."""
    roles, asks = spec.roles, spec.scheduling
    if len(roles) == 1 and spec.min_available is None and has_plain_pods(spec):
        role = roles[0]
        if not _is_special(role) and about_places(asks) is PLAIN_SCHEDULING:
            return spec.queue, role.replicas, role.gpus
    return spec.queue, shape_of(spec, by_request=True)


def shape_of(spec: JobSpec, *, by_request: bool = False) -> Shape:
    """`by_request` includes all that the pods request, for queues with a quota of that."""
    roles = spec.roles
    sizes: Shape = tuple((role.replicas, role.gpus) for role in roles)
    if by_request:
        sizes = (*sizes, *[_encode(_requests(role)) for role in roles])
    if not has_plain_pods(spec) and (requests := requests_of(spec)):
        sizes = (*sizes, *[tuple(amounts.items()) for amounts in requests])
    asks, selector = about_places(asks_of(spec)), pods_selector(spec)
    affinity = () if has_plain_pods(spec) else affinity_of(spec)
    pods_choose = bool(selector or affinity)
    plain = asks is PLAIN_SCHEDULING and not pods_choose and spec.min_available is None
    if plain and not any(map(_is_special, roles)):
        return sizes
    special = [
        (r.gpu_share, r.gpu_memory_mib, r.node, r.devices, r.min_replicas, r.max_replicas)
        for r in roles
    ]
    return (*sizes, spec.min_available, _encode((special, asks, selector, affinity)))


def _requests(role: Role) -> object:
    """The parts of a pod template that decide what the pod requests."""
    pod = role.template.get("spec") or {}
    containers = [*(pod.get("initContainers") or ()), *(pod.get("containers") or ())]
    return [(c.get("resources"), c.get("restartPolicy")) for c in containers], pod.get("overhead")


def about_places(asks: Scheduling) -> Scheduling:
    """The constraints without those about time; PLAIN_SCHEDULING if nothing is left."""
    if asks.estimate_s is not None or asks.checkpoint_every_s is not None:
        asks = replace(asks, estimate_s=None, checkpoint_every_s=None)
    return PLAIN_SCHEDULING if asks == PLAIN_SCHEDULING else asks


def _is_special(role: Role) -> bool:
    return bool(role.gpu_share or role.gpu_memory_mib or role.node or role.min_replicas is not None)


class ShapeClassView(Protocol):
    """A shape class as the scheduler reads it."""

    @property
    def gpus(self) -> int: ...
    @property
    def elastic(self) -> bool: ...
    @property
    def order(self) -> Sequence[QueueKey]: ...
    def without_reason(self, code: WaitReason) -> list[QueueKey]: ...
    def next(self, index: int, length_max: float) -> int | None: ...


class QueueIndexView(Protocol):
    """A queue's waiting jobs as the scheduler reads them: nothing here changes them."""

    @property
    def order(self) -> Sequence[QueueKey]: ...
    @property
    def by_shape(self) -> Mapping[Shape, ShapeClassView]: ...
    @property
    def skips(self) -> bool: ...
    @property
    def plans(self) -> bool: ...


class ShapeClass:
    """The waiting jobs of one shape in order; where starts are planned, also by planned length."""

    __slots__ = ("by_length", "by_wait_reason", "elastic", "gpus", "lengths", "order")

    def __init__(self, gpus: int, *, elastic: bool) -> None:
        # How many whole GPUs each job needs in total, and whether it may start with fewer.
        self.gpus = gpus
        self.elastic = elastic
        self.order: list[QueueKey] = []
        # The planned length of each job, in the same order; and the same sorted by length.
        self.lengths: list[float] = []
        self.by_length: list[tuple[float, QueueKey]] = []
        # Recorded wait reason -> the jobs that have it.
        self.by_wait_reason: dict[WaitReason | None, set[QueueKey]] = {}

    def add(self, key: QueueKey, length: float, wait_reason: WaitReason | None) -> None:
        index = len(self.order)
        if index and key < self.order[-1]:
            index = bisect_left(self.order, key)
        self.order.insert(index, key)
        self.lengths.insert(index, length)
        insort(self.by_length, (length, key))
        self.by_wait_reason.setdefault(wait_reason, set()).add(key)

    def remove(self, key: QueueKey, wait_reason: WaitReason | None) -> None:
        index = bisect_left(self.order, key)
        del self.order[index]
        length = self.lengths.pop(index)
        del self.by_length[bisect_left(self.by_length, (length, key))]
        self.by_wait_reason[wait_reason].remove(key)

    def without_reason(self, code: WaitReason) -> list[QueueKey]:
        """The jobs whose recorded wait reason is not `code`, in order."""
        others = [
            keys
            for wait_reason, keys in self.by_wait_reason.items()
            if wait_reason != code and keys
        ]
        return sorted(key for keys in others for key in keys)

    def next(self, index: int, length_max: float) -> int | None:
        """The index of the first job from `index` on whose planned length is at most `length_max`."""
        lengths = self.lengths
        if length_max == inf:
            return index if index < len(lengths) else None
        short = bisect_right(self.by_length, (length_max, _BEHIND_ALL))
        if short <= _FEW:
            # Fewer short jobs than it takes to scan the queue.
            after = self.order[index] if index < len(lengths) else None
            keys = [key for _, key in self.by_length[:short]]
            ahead = [key for key in keys if after is not None and key >= after]
            return bisect_left(self.order, min(ahead)) if ahead else None
        for i in range(index, len(lengths)):
            if lengths[i] <= length_max:
                return i
        return None


_FEW = 32
# Comes last among equal lengths.
_BEHIND_ALL = QueueKey(inf, inf, 0, "")


class QueueIndex:
    """One queue's waiting jobs in order, and by shape where jobs may overtake each other."""

    __slots__ = ("by_request", "by_shape", "order", "plans", "policy", "skips")

    def __init__(self, discipline: Discipline, policy: Policy, *, by_request: bool = False) -> None:
        self.order: list[QueueKey] = []
        self.by_request = by_request
        self.skips = discipline.on_blocked is OnBlocked.SKIP
        self.plans = discipline.on_blocked is OnBlocked.BACKFILL
        self.policy = policy
        self.by_shape: dict[Shape, ShapeClass] = {}

    def add(
        self, key: QueueKey, spec: JobSpec, wait_reason: WaitReason | None, planned_s: float
    ) -> None:
        _add(self.order, key)
        if self.plans:
            self._shape_class(spec).add(key, planned_s, wait_reason)
        elif self.skips:
            _add(self._shape_class(spec).order, key)

    def remove(self, key: QueueKey, spec: JobSpec, wait_reason: WaitReason | None) -> None:
        order = self.order
        # Most jobs that leave were first.
        del order[0 if order[0] == key else bisect_left(order, key)]
        if self.skips or self.plans:
            shape = shape_of(spec, by_request=self.by_request)
            same_shape = self.by_shape[shape]
            if self.plans:
                same_shape.remove(key, wait_reason)
            else:
                del same_shape.order[bisect_left(same_shape.order, key)]
            if not same_shape.order:
                del self.by_shape[shape]

    def set_reason(
        self, key: QueueKey, spec: JobSpec, before: WaitReason | None, after: WaitReason | None
    ) -> None:
        """The recorded wait reason of a job changed."""
        if self.plans:
            by_wait_reason = self._shape_class(spec).by_wait_reason
            by_wait_reason[before].remove(key)
            by_wait_reason.setdefault(after, set()).add(key)

    def _shape_class(self, spec: JobSpec) -> ShapeClass:
        shape = shape_of(spec, by_request=self.by_request)
        same_shape = self.by_shape.get(shape)
        if same_shape is None:
            gpus = sum(role.replicas * role.gpus for role in spec.roles if not role.node)
            elastic = spec.min_available is not None or any(
                role.min_replicas is not None for role in spec.roles
            )
            same_shape = self.by_shape[shape] = ShapeClass(gpus, elastic=elastic)
        return same_shape

    def classes(self) -> dict[Shape, object]:
        """The contents of every shape class, for comparison."""
        return {
            shape: (
                c.order,
                c.lengths,
                c.by_length,
                {k: v for k, v in c.by_wait_reason.items() if v},
            )
            for shape, c in self.by_shape.items()
        }


def _add(order: list[QueueKey], key: QueueKey) -> None:
    # Most jobs that come go to the end.
    if order and key < order[-1]:
        insort(order, key)
    else:
        order.append(key)


class WaitingIndex:
    """The queued jobs of every queue in order, and those that have a claim."""

    def __init__(self, state: State, lengths: RunLengthIndex) -> None:
        self._lengths = lengths
        self.rebuild(state)

    def rebuild(self, state: State) -> None:
        self._state = state
        # Whether some queue has a quota of what pods request in addition to GPUs.
        self.by_request = any(queue.resources for queue in state.queues.values())
        self.queues: dict[str, QueueIndex] = {}
        # The jobs that other gangs were preempted for.
        self.claimed: dict[str, None] = {}
        for job in state.jobs.values():
            self.update(None, job)

    def reorder(self) -> None:
        """Learned run lengths changed: sort every queue by them."""
        waiting = [self._state.jobs[key.job] for q in self.queues.values() for key in q.order]
        self.queues = {}
        for job in waiting:
            self._add(job)

    @property
    def is_empty(self) -> bool:
        return not any(queue.order for queue in self.queues.values())

    def keys(self, queue: str) -> Sequence[QueueKey]:
        """The queued jobs of a queue, in order."""
        index = self.queues.get(queue)
        return () if index is None else index.order

    def key_of(self, job: Job) -> QueueKey:
        """The job's place in its queue."""
        state = self._state
        discipline = state.discipline(job.spec.queue)
        return queue_key(job, discipline, state.policy, self._lengths.known)

    def update(self, before: Job | None, after: Job | None) -> None:
        was, now = (
            before is not None and is_waiting(before),
            after is not None and is_waiting(after),
        )
        if not (was or now):
            return
        if before is not None and after is not None and was and now and _same_place(before, after):
            if before.wait_reason != after.wait_reason:
                queue = self.queues[after.spec.queue]
                queue.set_reason(
                    self.key_of(after), after.spec, before.wait_reason, after.wait_reason
                )
        else:
            if before is not None and was:
                self.queues[before.spec.queue].remove(
                    self.key_of(before), before.spec, before.wait_reason
                )
            if after is not None and now:
                self._add(after)
        job = after or before
        assert job is not None
        if now and job.wait_reason is WaitReason.WAITING_FOR_VICTIMS:
            self.claimed[job.id] = None
        else:
            self.claimed.pop(job.id, None)

    def _add(self, job: Job) -> None:
        name, state = job.spec.queue, self._state
        queue = self.queues.get(name)
        if queue is None:
            queue = self.queues[name] = QueueIndex(
                state.discipline(name), state.policy, by_request=self.by_request
            )
        planned_s = self._lengths.estimate(job).planned_s if queue.plans else 0.0
        queue.add(self.key_of(job), job.spec, job.wait_reason, planned_s)

    def check(self, state: State) -> None:
        fresh = WaitingIndex(state, self._lengths)
        assert self.by_request == fresh.by_request
        assert self.claimed.keys() == fresh.claimed.keys()
        assert _contents(self) == _contents(fresh)


def _contents(index: WaitingIndex) -> dict[str, object]:
    return {name: (q.order, q.classes()) for name, q in index.queues.items() if q.order}


def is_waiting(job: Job) -> bool:
    """Whether the job is in its queue. A job that another controller manages never is."""
    return job.phase is Phase.QUEUED and job.spec.managed_by in OUR_NAMES and not job.awaits


def _same_place(before: Job, after: Job) -> bool:
    return before.spec is after.spec and before.queue_position == after.queue_position
