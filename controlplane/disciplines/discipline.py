"""What a queue discipline is.

A queue is sorted by priority, then by the discipline's `key`, then by arrival. The scheduler tries the head of the
queue. If the head cannot start, `on_blocked` decides what happens to the jobs behind it:

    STOP      they wait
    SKIP      any job that fits starts
    BACKFILL  the head gets a planned start, and a job that fits starts if it does not delay that

A discipline is a subclass of `Discipline` with other values, and one instance of it in the registry
(`registry.py`). Its methods must be pure: the same arguments give the same result, since a log is decided again by
them. `docs/adding-a-policy.md` adds one.
"""

from enum import Enum
from typing import ClassVar

from controlplane.lifecycle.job import Job


class OnBlocked(Enum):
    """What happens to the jobs behind a head that cannot start."""

    STOP = "stop"
    SKIP = "skip"
    BACKFILL = "backfill"


class Discipline:
    """Base of all disciplines: first in, first out."""

    # Under this name policies, queues and studies refer to it. It is recorded in events: never change it.
    name: ClassVar[str]
    # One line for reports and help texts, in lower case and without a full stop.
    description: ClassVar[str]
    on_blocked: ClassVar[OnBlocked]
    # BACKFILL: whether all waiting jobs get a planned start, up to the policy's `planned_max`, or only the head.
    plans_all: ClassVar[bool] = False
    # Whether `key` uses `planned_s`. The queue is then sorted again when learned run lengths change.
    orders_by_estimate: ClassVar[bool] = False
    # Whether `key` uses the GPU time that the job has had. That is then recorded when a job starts again.
    orders_by_attained: ClassVar[bool] = False
    # Whether a waiting job may preempt running jobs of its own queue that have a larger `running_key` than its own
    # key. A pass is then run when a running job enters its next tier of attained service, and jobs that were
    # preempted get no second chance (`Policy.second_chance_s_max`): they alternate by the discipline's own rule.
    preempts: ClassVar[bool] = False

    @property
    def uses_estimates(self) -> bool:
        return self.orders_by_estimate or self.on_blocked is OnBlocked.BACKFILL

    def key(self, job: Job, planned_s: float) -> float:
        """The smallest key goes first among equal priorities.

        `planned_s` is how long the job is planned to run; 0 unless `orders_by_estimate`. The key of a waiting job may
        depend on nothing else that changes while it waits.
        """
        return 0.0

    def running_key(self, job: Job, now: float) -> float:
        """The key that a running job would have if it were stopped now; used if the discipline `preempts`.

        It must not shrink as the job runs: else two jobs could preempt each other in turns without an end.
        """
        return 0.0
