"""Run lengths, learned from similar jobs that have succeeded.

The scheduler plans with them where a job has no estimate, and forecasts sample from them. They are a function of the
state, so a log that is decided again plans with the same numbers.

Each job that succeeded is a sample of four groups, from narrow to wide:

    alike     namespace, queue, kind, image of its first role, ranks and GPUs
    size      namespace, kind, ranks and GPUs
    kind      namespace, kind
    all       every job

A job's length is learned from the first of its groups that has ENOUGH samples. A group keeps the
SAMPLES_MAX samples that finished last. Jobs that were removed stay samples, in at most GROUPS_MAX
groups: beyond that the groups that were added to longest ago are forgotten, many at once.

A job is planned to run for the 90th percentile of its group plus the median time to start, rounded up to one of four
steps between powers of two. A small change then changes no estimate, and queues that are ordered by estimates need not
be sorted again with every job that ends.
"""

from bisect import bisect_right, insort
from collections.abc import Iterable, Mapping
from math import frexp, ldexp
from statistics import median
from typing import NamedTuple

from controlplane.disciplines.registry import DISCIPLINES
from controlplane.lifecycle.job import Job
from controlplane.model.phases import Phase
from controlplane.model.policy import Policy, Queue
from controlplane.model.spec import JobSpec

# A group with fewer samples is not used.
ENOUGH = 5
SAMPLES_MAX = 64
GROUPS_MAX = 1_024
GROUPS_FORGOTTEN = 256
# The part of a group's runs that ended within the length that its jobs are planned with.
PLANNED_PART = 0.9

# The name of a group's level, and what its jobs have in common.
Key = tuple[str, ...]
LEVELS = {
    "alike": "same namespace, queue, kind, image and size",
    "size": "same namespace, kind and size",
    "kind": "same namespace and kind",
    "all": "all jobs",
}


class Sample(NamedTuple):
    """One job that succeeded: when, how long its last attempt ran, and took to start before that."""

    finished_at: float
    ran_s: float
    start_s: float


class Learned(NamedTuple):
    """What is learned from a group: half of its jobs ran at most `median_s`, nine tenths `p90_s`."""

    level: str
    jobs: int
    median_s: float
    p90_s: float
    planned_s: float


class RunLengths:
    """The samples of each group, the last to finish last. Equal sets of samples are equal."""

    __slots__ = ("_learned", "groups")

    def __init__(self, groups: Mapping[Key, Iterable[Sample]] | None = None) -> None:
        self.groups: dict[Key, list[Sample]] = {
            key: sorted(samples)[-SAMPLES_MAX:] for key, samples in (groups or {}).items()
        }
        self._learned: dict[Key, Learned | None] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RunLengths) and self.groups == other.groups

    __hash__ = None  # type: ignore[assignment]

    def copy(self) -> "RunLengths":
        return RunLengths(self.groups)

    def add(self, namespace: str, spec: JobSpec, sample: Sample) -> bool:
        """Add a sample; return whether the planned length of some job may have changed."""
        changed = False
        for key in _keys(namespace, spec):
            before = self._of(key)
            group = self.groups.setdefault(key, [])
            insort(group, sample)
            del group[:-SAMPLES_MAX]
            self._learned.pop(key, None)
            after = self._of(key)
            changed |= (before and before.planned_s) != (after and after.planned_s)
        return changed

    def add_job(self, job: Job) -> bool:
        """Add a job's sample, if it has one; return whether a planned length may have changed."""
        sample = sample_of(job)
        return sample is not None and self.add(job.namespace, job.spec, sample)

    def forget(self) -> bool:
        """Drop the groups without a sample for longest, if there are too many; return whether any was dropped."""
        if len(self.groups) <= GROUPS_MAX:
            return False
        oldest = sorted(self.groups, key=lambda key: (self.groups[key][-1], key))
        for key in oldest[:GROUPS_FORGOTTEN]:
            del self.groups[key]
        self._learned.clear()
        return True

    def learned(self, namespace: str, spec: JobSpec) -> Learned | None:
        """What the narrowest group with enough samples says about such a job, or None."""
        return next((known for key in _keys(namespace, spec) if (known := self._of(key))), None)

    def samples(self, namespace: str, spec: JobSpec) -> list[Sample]:
        """The samples behind `learned`; empty without enough of them."""
        for key in _keys(namespace, spec):
            if self._of(key) is not None:
                return self.groups[key]
        return []

    def nearest(self, namespace: str, spec: JobSpec) -> list[Sample]:
        """The samples of the narrowest group that has any."""
        groups = (self.groups[key] for key in _keys(namespace, spec) if key in self.groups)
        return next(groups, [])

    @property
    def start_s(self) -> float:
        """The median time from placement to running; 0 if nothing is known."""
        samples = self.groups.get(("all",))
        return median(sample.start_s for sample in samples) if samples else 0.0

    def _of(self, key: Key) -> Learned | None:
        if key not in self._learned:
            samples = self.groups.get(key, ())
            self._learned[key] = _learn(key[0], samples) if len(samples) >= ENOUGH else None
        return self._learned[key]


def _learn(level: str, samples: Iterable[Sample]) -> Learned:
    ran = sorted(sample.ran_s for sample in samples)
    p90 = ran[min(len(ran) - 1, int(PLANNED_PART * len(ran)))]
    start_s = median(sample.start_s for sample in samples)
    return Learned(level, len(ran), median(ran), p90, _rounded_up(p90 + start_s))


def _rounded_up(seconds: float) -> float:
    """The next of four steps between powers of two; exact, so the same on every machine."""
    if seconds <= 1.0:
        return 1.0
    part, power = frexp(seconds)
    step = next(step for step in (0.5, 0.625, 0.75, 0.875, 1.0) if part <= step)
    return ldexp(step, power)


def _keys(namespace: str, spec: JobSpec) -> tuple[Key, ...]:
    """A job's groups, from narrow to wide."""
    kind, size = spec.kind, f"{spec.size}x{spec.gpus}"
    image = spec.roles[0].image if spec.roles else ""
    return (
        ("alike", namespace, spec.queue, kind, image, size),
        ("size", namespace, kind, size),
        ("kind", namespace, kind),
        ("all",),
    )


def sample_of(job: Job) -> Sample | None:
    """The sample of a job that has succeeded; None for any other."""
    attempt = job.attempt
    if job.phase is not Phase.SUCCEEDED or attempt is None or job.finished_at is None:
        return None
    if attempt.running_at is None:
        return None
    ran_s = max(0.0, job.finished_at - attempt.running_at)
    return Sample(job.finished_at, ran_s, max(0.0, attempt.running_at - attempt.placed_at))


def learns(policy: Policy, queues: Iterable[Queue]) -> bool:
    """Whether some queue's discipline uses run lengths, and the policy allows learned ones."""
    if not policy.learned_estimates:
        return False
    names = {queue.discipline or policy.discipline for queue in queues}
    return any(DISCIPLINES[name].uses_estimates for name in names)


# ---------------------------------------------------------------- one job


class Estimate(NamedTuple):
    """How long a job is planned to run, and where that comes from."""

    planned_s: float
    # "estimate", "limit", "learned" or "default".
    source: str
    learned: Learned | None = None


def estimate(namespace: str, spec: JobSpec, policy: Policy, lengths: RunLengths) -> Estimate:
    """Its own estimate, else its limit, else what jobs like it took, else the policy's default."""
    if spec.scheduling.estimate_s is not None:
        return Estimate(spec.scheduling.estimate_s, "estimate")
    if spec.active_deadline_s is not None:
        return Estimate(spec.active_deadline_s, "limit")
    learned = lengths.learned(namespace, spec) if policy.learned_estimates else None
    if learned is not None:
        return Estimate(learned.planned_s, "learned", learned)
    return Estimate(policy.estimate_s_default, "default")


def ends_when_overdue(job: Job, planned_s: float, now: float) -> float:
    """When an overdue job is planned to end.

    Its length is doubled until its end lies in the future, up to the job's own limit. So the planned end stays the
    same until it has passed, instead of moving with the clock.
    """
    attempt = job.attempt
    assert attempt is not None, job
    length = max(1.0, planned_s)
    while attempt.placed_at + length <= now:
        length *= 2.0
    ends_at = attempt.placed_at + length
    limit = job.spec.active_deadline_s
    if limit is not None and job.active_at is not None:
        ends_at = max(now, min(ends_at, job.active_at + limit))
    return ends_at


def longer_than(ordered: list[float], ran_s: float) -> list[float]:
    """The lengths, of a sorted list, that are longer than what a job has run already."""
    return ordered[bisect_right(ordered, ran_s) :]
