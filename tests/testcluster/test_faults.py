"""The faults that the proxy makes, as decided from a seed."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from deploy.testcluster.faults import BY_METHOD, STREAM, Fault, Judge, Settings

SEEDS = st.integers(0, 2**32)


def verdicts(judge: Judge, paths: list[str]) -> dict[str, list[Fault | None]]:
    by_path: dict[str, list[Fault | None]] = {}
    for path in paths:
        verdict = judge.request("POST", path, is_listing=False)
        by_path.setdefault(path, []).append(verdict.fault)
    return by_path


@given(SEEDS, st.lists(st.sampled_from("abc"), max_size=40), st.randoms())
def test_the_order_of_arrival_changes_no_verdict(
    seed: int, paths: list[str], shuffle: object
) -> None:
    other = list(paths)
    shuffle.shuffle(other)  # type: ignore[attr-defined]
    settings = Settings(seed=seed, rate=0.5)
    assert verdicts(Judge(settings), paths) == verdicts(Judge(settings), other)


@given(SEEDS)
def test_without_a_rate_nothing_goes_wrong(seed: int) -> None:
    judge = Judge(Settings(seed=seed))
    assert all(judge.request("GET", str(i), is_listing=True).fault is None for i in range(50))
    assert not judge.faults


def test_the_rate_is_kept_and_every_fault_happens() -> None:
    judge = Judge(Settings(seed=7, rate=0.3))
    for index in range(3000):
        judge.request("PATCH", str(index), is_listing=False)
        judge.change(str(index))
    assert 0.27 < sum(judge.faults.values()) / 6000 < 0.33
    assert set(judge.faults) == set(BY_METHOD["PATCH"]) | set(STREAM)


def test_gone_is_answered_only_to_requests_with_a_version() -> None:
    judge = Judge(Settings(seed=1, rate=1.0))
    seen = Counter(judge.request("GET", str(i), is_listing=False).fault for i in range(500))
    assert Fault.GONE not in seen
    seen = Counter(judge.request("GET", str(i), is_listing=True).fault for i in range(500))
    assert Fault.GONE in seen


def test_only_the_faults_that_were_asked_for_happen() -> None:
    judge = Judge(Settings(seed=1, rate=1.0, only=(Fault.TOO_MANY,)))
    for index in range(20):
        assert judge.request("POST", str(index), is_listing=False).fault is Fault.TOO_MANY
        assert judge.change(str(index)).fault is None
