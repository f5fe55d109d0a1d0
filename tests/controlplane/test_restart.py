"""How long to wait before the next try."""

from hypothesis import given
from hypothesis import strategies as st

from controlplane.lifecycle.restart import JITTER_SHARE, retry_after
from controlplane.model.spec import RestartPolicy


@given(st.integers(1, 10_000), st.text(max_size=20))
def test_back_off_is_positive_capped_and_the_same_every_time(streak, key):
    policy = RestartPolicy()

    wait = retry_after(policy, streak, key)

    assert 0 < wait <= policy.backoff_s_max
    assert wait == retry_after(policy, streak, key)


def test_back_off_doubles_up_to_the_cap():
    policy = RestartPolicy(backoff_s_first=10, backoff_s_max=300)
    waits = [retry_after(policy, streak, "j1") for streak in range(1, 10)]

    for streak, wait in enumerate(waits):
        full = min(10 * 2**streak, 300)
        assert full * (1 - JITTER_SHARE) <= wait <= full


def test_jitter_spreads_jobs_that_failed_together():
    waits = {retry_after(RestartPolicy(), 3, f"job-{n}") for n in range(100)}

    assert len(waits) == 100
    assert max(waits) - min(waits) > 4
