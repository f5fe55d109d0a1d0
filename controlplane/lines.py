"""How waiting jobs stand in line: the key that orders them, and the shape that tells equals.

A key hardly ever changes while a job waits, so a line is sorted once and stays sorted; only where the
shortest goes first, what is learned of run lengths changes it, and the world sorts the line anew. Ageing fits in:
a job's priority plus so much for every hour of waiting grows equally for all who wait, so who is
ahead of whom can be told from when they came.
"""

from bisect import bisect_left, bisect_right, insort
from math import inf
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from controlplane.asks import asks_of, pods_selector
from controlplane.attained import attained_step
from controlplane.job import Job
from controlplane.job_life import attained_gpu_s
from controlplane.model import PLAIN_SCHEDULING, JobSpec, Role, Scheduling
from controlplane.node_affinity import affinity_of
from controlplane.requests import requests_of, says_nothing
from controlplane.run_lengths import RunLengths, estimate
from controlplane.sharing import Discipline, Policy


class Waiting(NamedTuple):
    """A job's place in its line: the smallest goes first."""

    # Minus its priority, then what its discipline looks at.
    before_all: float
    before_equals: float
    queued_as: int
    job: str


# What two gangs have in common that fit in the same places.
Shape = tuple[object, ...]

SHORTEST_FIRST = frozenset({Discipline.STRICT_SHORTEST, Discipline.SHORTEST_FIT})
PLANS_AHEAD = frozenset({Discipline.EASY_BACKFILL, Discipline.CONSERVATIVE_BACKFILL})
# In these lines whoever fits goes past whoever does not.
BY_ATTAINED = frozenset({Discipline.LEAST_ATTAINED_FIT, Discipline.LEAST_ATTAINED})
SKIPS = BY_ATTAINED | {Discipline.FIFO_FIT, Discipline.SHORTEST_FIT}

_encode = msgspec.json.Encoder(order="deterministic").encode


def place_in_line(job: Job, discipline: Discipline, policy: Policy, lengths: RunLengths) -> Waiting:
    spec = job.spec
    first = float(-spec.priority)
    if policy.ageing_per_hour:
        first += policy.ageing_per_hour * job.submitted_at / 3_600.0
    if discipline in SHORTEST_FIRST:
        planned_s = estimate(job.namespace, spec, policy, lengths).planned_s
        return Waiting(first, planned_s, job.queued_as, job.id)
    if discipline in BY_ATTAINED:
        return Waiting(first, attained_step(attained_gpu_s(job)), job.queued_as, job.id)
    return Waiting(first, 0, job.queued_as, job.id)


def attained_by(job: Job, now: float) -> float:
    """The same with what it has had by now in the attempt that runs."""
    attempt = job.live_attempt
    running = 0.0 if attempt is None else attempt.gpus * max(0.0, now - attempt.placed_at)
    return attained_gpu_s(job) + running


# What two jobs have in common that could start, if nothing ran, on the same clusters.
Need = tuple[object, ...]


def need_of(spec: JobSpec) -> Need:
    """What the job needs of a cluster and of its queue's quotas, wherever it stands in line."""
    roles, asks = spec.roles, spec.scheduling
    if len(roles) == 1 and spec.min_available is None and says_nothing(spec):
        role = roles[0]
        if not _is_special(role) and about_places(asks) is PLAIN_SCHEDULING:
            return spec.queue, role.replicas, role.gpus
    return spec.queue, shape_of(spec, by_request=True)


def shape_of(spec: JobSpec, *, by_request: bool = False) -> Shape:
    """With `by_request` also by all that their pods request, for where that has a quota."""
    roles = spec.roles
    sizes: Shape = tuple([(role.replicas, role.gpus) for role in roles])
    if by_request:
        sizes = (*sizes, *[_encode(_requests(role)) for role in roles])
    if not says_nothing(spec) and (requests := requests_of(spec)):
        sizes = (*sizes, *[tuple(amounts.items()) for amounts in requests])
    asks, selector = about_places(asks_of(spec)), pods_selector(spec)
    affinity = () if says_nothing(spec) else affinity_of(spec)
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
    """What decides how much a pod requests, as it was written."""
    pod = role.template.get("spec") or {}
    containers = [*(pod.get("initContainers") or ()), *(pod.get("containers") or ())]
    return [(c.get("resources"), c.get("restartPolicy")) for c in containers], pod.get("overhead")


def about_places(asks: Scheduling) -> Scheduling:
    """What a job asks for without what is only about time; the plain value if nothing is left."""
    if asks.estimate_s is not None or asks.checkpoint_every_s is not None:
        asks = replace(asks, estimate_s=None, checkpoint_every_s=None)
    return PLAIN_SCHEDULING if asks == PLAIN_SCHEDULING else asks


def _is_special(role: Role) -> bool:
    return bool(role.gpu_share or role.gpu_memory_mib or role.node or role.min_replicas is not None)


class Alike:
    """The waiting jobs of one shape in order; where starts are planned, also by how long they run."""

    __slots__ = ("by_held", "by_length", "elastic", "gpus", "lengths", "order")

    def __init__(self, gpus: int, *, elastic: bool) -> None:
        # How many whole GPUs each of them needs, wherever they are; and whether fewer might do.
        self.gpus = gpus
        self.elastic = elastic
        self.order: list[Waiting] = []
        # How long each is expected to run, in the same order; and the same from the shortest up.
        self.lengths: list[float] = []
        self.by_length: list[tuple[float, Waiting]] = []
        # Why they wait, as far as they were told.
        self.by_held: dict[str, set[Waiting]] = {}

    def join(self, place: Waiting, length: float, held: str) -> None:
        index = len(self.order)
        if index and place < self.order[-1]:
            index = bisect_left(self.order, place)
        self.order.insert(index, place)
        self.lengths.insert(index, length)
        insort(self.by_length, (length, place))
        self.by_held.setdefault(held, set()).add(place)

    def leave(self, place: Waiting, held: str) -> None:
        index = bisect_left(self.order, place)
        del self.order[index]
        length = self.lengths.pop(index)
        del self.by_length[bisect_left(self.by_length, (length, place))]
        self.by_held[held].remove(place)

    def untold(self, code: str) -> list[Waiting]:
        """Those who were told something else."""
        others = [places for held, places in self.by_held.items() if held != code and places]
        return sorted(place for places in others for place in places)

    def next(self, index: int, length_max: float) -> int | None:
        """The index of the first from here on that is expected to run no longer than that."""
        lengths = self.lengths
        if length_max == inf:
            return index if index < len(lengths) else None
        short = bisect_right(self.by_length, (length_max, _BEHIND_ALL))
        if short <= _FEW:
            # So few that they are looked through instead of the line.
            after = self.order[index] if index < len(lengths) else None
            places = [place for _, place in self.by_length[:short]]
            ahead = [place for place in places if after is not None and place >= after]
            return bisect_left(self.order, min(ahead)) if ahead else None
        for i in range(index, len(lengths)):
            if lengths[i] <= length_max:
                return i
        return None


_FEW = 32
# Of equal lengths this place comes last.
_BEHIND_ALL = Waiting(inf, inf, 0, "")


class Line:
    """One queue's waiting jobs in order, and by shape where somebody may go past somebody else."""

    __slots__ = ("by_request", "by_shape", "order", "plans", "policy", "skips")

    def __init__(self, discipline: Discipline, policy: Policy, *, by_request: bool = False) -> None:
        self.order: list[Waiting] = []
        self.by_request = by_request
        self.skips = discipline in SKIPS
        self.plans = discipline in PLANS_AHEAD
        self.policy = policy
        self.by_shape: dict[Shape, Alike] = {}

    def join(self, place: Waiting, spec: JobSpec, held: str, planned_s: float) -> None:
        _add(self.order, place)
        if self.plans:
            alike = self._alike(spec)
            alike.join(place, planned_s, held)
        elif self.skips:
            _add(self._alike(spec).order, place)

    def leave(self, place: Waiting, spec: JobSpec, held: str) -> None:
        order = self.order
        # Most who leave stood first.
        del order[0 if order[0] == place else bisect_left(order, place)]
        if self.skips or self.plans:
            shape = shape_of(spec, by_request=self.by_request)
            alike = self.by_shape[shape]
            if self.plans:
                alike.leave(place, held)
            else:
                del alike.order[bisect_left(alike.order, place)]
            if not alike.order:
                del self.by_shape[shape]

    def told(self, place: Waiting, spec: JobSpec, before: str, now: str) -> None:
        """Somebody who waits was told why."""
        if self.plans:
            by_held = self._alike(spec).by_held
            by_held[before].remove(place)
            by_held.setdefault(now, set()).add(place)

    def _alike(self, spec: JobSpec) -> Alike:
        shape = shape_of(spec, by_request=self.by_request)
        alike = self.by_shape.get(shape)
        if alike is None:
            gpus = sum([role.replicas * role.gpus for role in spec.roles if not role.node])
            elastic = spec.min_available is not None or any(
                role.min_replicas is not None for role in spec.roles
            )
            alike = self.by_shape[shape] = Alike(gpus, elastic=elastic)
        return alike

    def alike(self) -> dict[Shape, object]:
        """What is known by shape, to be compared."""
        return {
            shape: (a.order, a.lengths, a.by_length, {k: v for k, v in a.by_held.items() if v})
            for shape, a in self.by_shape.items()
        }


def _add(line: list[Waiting], place: Waiting) -> None:
    # Most who come go to the end.
    if line and place < line[-1]:
        insort(line, place)
    else:
        line.append(place)
