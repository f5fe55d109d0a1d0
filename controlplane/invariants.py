"""What holds of every world: its indexes are those of its state, and no device has two owners."""

from typing import Any

from controlplane.attempt import AttemptState
from controlplane.attempt_life import count_holding, count_up
from controlplane.job import WAITING, Job, Phase
from controlplane.tenancy import Tenancy

_SAME = (
    "ids", "by_phase", "live", "growing", "endings", "tenants", "nodes_by_size", "_due_at",
    "run_lengths")  # fmt: skip
_SAME_KEYS = ("claimed", "quarantined", "stopping", "shrinking", "exclusive", "crippled")
_SAME_UNLESS_EMPTY = (
    "groups",
    "by_need",
    "waiting",
    "used",
    "used_parts",
    "used_flavors",
    "holders",
)


def check_indexes(world: Tenancy, twin: Tenancy) -> None:
    """Asserts that a world's indexes equal those of a twin, made anew of the same state."""
    for name in _SAME:
        assert getattr(world, name) == getattr(twin, name), name
    for name in _SAME_KEYS:
        assert getattr(world, name).keys() == getattr(twin, name).keys(), name
    for name in _SAME_UNLESS_EMPTY:
        assert _filled(getattr(world, name)) == _filled(getattr(twin, name)), name
    for name in ("masks", "open", "shared", "by_count", "counts", "held", "offers"):
        assert getattr(world.free, name) == getattr(twin.free, name), name
    assert world.free.counts == sorted(world.free.by_count)


def _filled(index: dict[Any, Any]) -> dict[Any, Any]:
    return {key: value for key, value in index.items() if value}


def check_job(job: Job) -> None:
    attempt = job.attempt
    assert job.finished == (job.finished_at is not None), job
    assert job.failures == sum(restart.spends_budget for restart in job.restarts), job
    limit = job.spec.restart.limit
    # Restarts in place are counted after they have happened, so the last ones may be too many.
    in_place = attempt is not None and any(rank.restarted for rank in attempt.ranks)
    assert limit is None or job.failures <= limit or in_place, job
    if job.phase in (Phase.STARTING, Phase.RUNNING):
        assert attempt is not None, job
        assert attempt.state.value == job.phase.value, job
    if job.phase in WAITING:
        assert job.live_attempt is None, job
    assert (job.phase is Phase.UNSCHEDULABLE) == (job.obstacle is not None), job
    assert (job.obstacle is None) == (job.set_aside_at is None), job
    if attempt is not None:
        assert attempt.up == count_up(attempt), job
        assert attempt.holding == count_holding(attempt), job
        # Every rank or none: a placement covers the whole gang, on distinct devices.
        assert len(attempt.placement) == len(attempt.ranks), job
        if attempt.state is AttemptState.OVER:
            assert attempt.holding == 0, job
