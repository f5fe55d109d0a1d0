"""What holds of every job in every state."""

from controlplane.lifecycle.attempt import count_up, count_with_devices
from controlplane.lifecycle.job import Job
from controlplane.model.phases import WAITING, AttemptState, Phase


def check_job(job: Job) -> None:
    """Assert that phase, attempt, counters and obstacle agree with each other."""
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
        assert attempt.with_devices == count_with_devices(attempt), job
        # Every rank or none: a placement covers the whole gang, on distinct devices.
        assert len(attempt.placement) == len(attempt.ranks), job
        if attempt.state is AttemptState.OVER:
            assert attempt.with_devices == 0, job
