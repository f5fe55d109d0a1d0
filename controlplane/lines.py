"""How waiting jobs stand in line: the key that orders them, and the shape that tells equals.

A key never changes while a job waits, so a line is sorted once and stays sorted. Ageing fits in:
a job's priority plus so much for every hour of waiting grows equally for all who wait, so who is
ahead of whom can be told from when they came.
"""

from bisect import bisect_left, insort

import msgspec

from controlplane.job import Job
from controlplane.model import PLAIN_SCHEDULING, Discipline, JobSpec, Policy, Role

# Minus its priority, then what its discipline looks at, then the position at which it was queued,
# then its id: the smallest goes first.
Waiting = tuple[float, float, int, str]
# What two gangs have in common that fit in the same places.
Shape = tuple[object, ...]

SHORTEST_FIRST = frozenset({Discipline.STRICT_SHORTEST, Discipline.SHORTEST_FIT})
PLANS_AHEAD = frozenset({Discipline.EASY_BACKFILL, Discipline.CONSERVATIVE_BACKFILL})
# In these lines whoever fits goes past whoever does not.
SKIPS = frozenset({Discipline.FIFO_FIT, Discipline.SHORTEST_FIT, Discipline.LEAST_ATTAINED_FIT})

# Attained service is told in steps, so that jobs of one step run one after the other instead of
# all a little: 1, 4, 16, ... GPU-hours, as Tiresias does it.
_FIRST_STEP_GPU_S = 3_600.0

_encode = msgspec.json.Encoder(order="deterministic").encode


def place_in_line(job: Job, discipline: Discipline, policy: Policy) -> Waiting:
    spec = job.spec
    first: float = -spec.priority
    if policy.ageing_per_hour:
        first += policy.ageing_per_hour * job.submitted_at / 3_600.0
    if discipline in SHORTEST_FIRST:
        return first, expected_s(spec, policy), job.queued_as, job.id
    if discipline is Discipline.LEAST_ATTAINED_FIT:
        return first, attained_step(attained_gpu_s(job)), job.queued_as, job.id
    return first, 0, job.queued_as, job.id


def attained_gpu_s(job: Job) -> float:
    """GPUs times seconds that a job has had in the attempts that have ended."""
    attempt = job.attempt
    if attempt is None or attempt.ended_at is None:
        return job.gpu_s
    return job.gpu_s + attempt.gpus * (attempt.ended_at - attempt.placed_at)


def attained_step(gpu_s: float) -> int:
    step, limit = 0, _FIRST_STEP_GPU_S
    while gpu_s >= limit and step < 12:
        step, limit = step + 1, limit * 4
    return step


def expected_s(spec: JobSpec, policy: Policy) -> float:
    """How long an attempt is planned to run: its estimate, else its deadline, else a default."""
    if spec.scheduling.estimate_s is not None:
        return spec.scheduling.estimate_s
    if spec.active_deadline_s is not None:
        return spec.active_deadline_s
    return policy.estimate_s_default


def shape_of(spec: JobSpec) -> Shape:
    asks, roles = spec.scheduling, spec.roles
    sizes = tuple([(role.replicas, role.gpus) for role in roles])
    if (
        (asks is PLAIN_SCHEDULING or asks == PLAIN_SCHEDULING)
        and spec.min_available is None
        and not any(map(_is_special, roles))
    ):
        return sizes
    special = [
        (r.gpu_share, r.gpu_memory_mib, r.node, r.devices, r.min_replicas, r.max_replicas)
        for r in roles
    ]
    asks = msgspec.structs.replace(asks, estimate_s=None, checkpoint_every_s=None)
    return (*sizes, spec.min_available, _encode((special, asks)))


def _is_special(role: Role) -> bool:
    return bool(role.gpu_share or role.gpu_memory_mib or role.node or role.min_replicas is not None)


class Line:
    """One queue's waiting jobs in order; where whoever fits may go ahead, also by shape."""

    __slots__ = ("by_shape", "order")

    def __init__(self, *, by_shape: bool) -> None:
        self.order: list[Waiting] = []
        self.by_shape: dict[Shape, list[Waiting]] | None = {} if by_shape else None

    def join(self, place: Waiting, spec: JobSpec) -> None:
        _add(self.order, place)
        if self.by_shape is not None:
            _add(self.by_shape.setdefault(shape_of(spec), []), place)

    def leave(self, place: Waiting, spec: JobSpec) -> None:
        order = self.order
        # Most who leave stood first.
        del order[0 if order[0] == place else bisect_left(order, place)]
        if self.by_shape is not None:
            shape = shape_of(spec)
            same = self.by_shape[shape]
            del same[bisect_left(same, place)]
            if not same:
                del self.by_shape[shape]


def _add(line: list[Waiting], place: Waiting) -> None:
    # Most who come go to the end.
    if line and place < line[-1]:
        insort(line, place)
    else:
        line.append(place)
