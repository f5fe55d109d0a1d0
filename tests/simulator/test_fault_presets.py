"""Published fault conditions: counts, shares, repeat offenders, and what checkpoints save."""

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import takewhile
from statistics import fmean, median

import pytest

from simulator.faults import PRESETS, Fault, FaultKind, FaultModel, Spot, Window, node_faults
from simulator.faults.chance import rate_factor
from simulator.faults.job_failures import job_failure
from simulator.training.checkpoints import Checkpointing
from tests.simulator.interruptions import faults_of, interruptions

HOUR, DAY = 3600.0, 86400.0


def _racks(racks: int, nodes: int) -> dict[str, tuple[str, ...]]:
    return {f"r{r}": tuple(f"r{r}-{n}" for n in range(nodes)) for r in range(racks)}


def test_llama_3_is_interrupted_as_often_as_it_was() -> None:
    """419 times in 54 days on 16,384 GPUs; the issue's band holds in 95 % of seeds."""
    model = FaultModel(preset=PRESETS["llama3"])
    counts = [
        interruptions(_racks(128, 16), model, seed, for_s=54 * DAY, restart_s=900).interruptions
        for seed in range(24)
    ]
    assert sum(379 <= count <= 459 for count in counts) >= 23
    assert fmean(counts) == pytest.approx(419, rel=0.03)


def test_llama_3_fails_of_what_it_failed_of() -> None:
    model = FaultModel(preset=PRESETS["llama3"])
    causes = Counter[str]()
    for seed in range(6):
        run = interruptions(_racks(128, 16), model, seed, for_s=54 * DAY, restart_s=900)
        causes.update(run.causes)
        # "More than 90 % effective", with checkpoints of 30 s every 20 minutes.
        saved = interruptions(
            _racks(128, 16),
            model,
            seed,
            for_s=54 * DAY,
            restart_s=300,
            how=Checkpointing(20 * 60.0, 5.0),
        )
        assert 0.85 < saved.effective < 0.97
    whole = causes.total()
    for cause in PRESETS["llama3"].causes:
        assert causes[cause.name] / whole == pytest.approx(cause.count / 419, abs=0.03)


@pytest.mark.parametrize(("name", "per_1000"), [("rsc1", 6.5), ("rsc2", 2.34)])
def test_research_clusters_fail_at_their_rates(name: str, per_1000: float) -> None:
    model = FaultModel(preset=PRESETS[name])
    seeds = range(4)
    racks = _racks(40, 25)
    instants = [len({f.at_s for f in _until(racks, model, 60 * DAY, seed)}) for seed in seeds]
    assert fmean(instants) / 60.0 == pytest.approx(per_1000, rel=0.12)


def _until(
    racks: dict[str, tuple[str, ...]], model: FaultModel, end_s: float, seed: int = 1
) -> Iterator[Fault]:
    return takewhile(lambda fault: fault.at_s <= end_s, faults_of(racks, model, seed))


def test_stepfun_has_repeat_offenders_long_repairs_and_simultaneous_faults() -> None:
    model = FaultModel(preset=PRESETS["stepfun"])
    faults = list(_until(_racks(25, 16), model, 348 * DAY))
    by_node = Counter(fault.node for fault in faults)
    assert 450 < len(faults) < 800
    # The trace: 231 of 400 nodes hit, one in seven of them five times or more.
    assert 190 < len(by_node) < 290
    assert sum(n >= 5 for n in by_node.values()) > 10
    repairs = sorted((fault.repair_s or 0) / DAY for fault in faults if (fault.repair_s or 0) > 700)
    assert median(repairs) == pytest.approx(0.85, rel=0.35)
    assert fmean(repairs) > 3 * median(repairs)
    instants = Counter(fault.at_s for fault in faults)
    assert 5 < sum(n > 1 for n in instants.values()) < 60


def test_lemons_leave_the_mean_rate_as_it_is() -> None:
    for preset in PRESETS.values():
        factors = [rate_factor(f"n{i}", preset, 3) for i in range(20_000)]
        assert fmean(factors) == pytest.approx(1.0, rel=0.05)


def test_acme_jobs_fail_for_the_published_reasons() -> None:
    preset = PRESETS["acme"]
    drawn = [job_failure(preset, f"job-{i}", 1, 9) for i in range(30_000)]
    failed = [failure for failure in drawn if failure is not None]
    assert len(failed) / len(drawn) == pytest.approx(0.413, abs=0.01)
    categories = Counter(failure.reason.category for failure in failed)
    for category, share in (("Infrastructure", 281), ("Framework", 404), ("Script", 1890)):
        assert categories[category] / len(failed) == pytest.approx(share / 2575, abs=0.03)
    reasons = Counter(failure.reason.name for failure in failed)
    for reason in preset.reasons:
        assert reasons[reason.name] / len(failed) == pytest.approx(reason.count / 2575, abs=0.03)


def test_a_mistake_comes_again_and_an_accident_does_not() -> None:
    preset = PRESETS["acme"]
    for i in range(2000):
        first, second = (job_failure(preset, f"job-{i}", attempt, 9) for attempt in (1, 2))
        if first is None:
            assert second is None
        elif first.reason.repeats:
            assert second is not None
            assert second.reason is first.reason
        else:
            assert second is None


def test_philly_runs_out_of_memory_most() -> None:
    preset = PRESETS["philly"]
    drawn = [job_failure(preset, f"job-{i}", 1, 2) for i in range(20_000)]
    failed = [failure for failure in drawn if failure is not None]
    memory = sum(failure.reason.out_of_memory for failure in failed)
    assert memory / len(failed) == pytest.approx((12076 + 487) / 38894, abs=0.03)


def test_spot_nodes_are_reclaimed_with_notice_and_come_back() -> None:
    model = FaultModel(spot=Spot(mean_s=DAY, notice_s=120.0, gone_s=HOUR, racks=("cloud",)))
    assert list(node_faults("a", "own", model, 1)) == []
    stream = node_faults("b", "cloud", model, 1)
    faults = [next(stream) for _ in range(500)]
    assert {fault.kind for fault in faults} == {FaultKind.SPOT_RECLAIM}
    assert {fault.notice_s for fault in faults} == {120.0}
    assert faults[-1].at_s / 500 == pytest.approx(DAY + HOUR, rel=0.15)


def test_maintenance_comes_when_it_was_planned() -> None:
    model = FaultModel(windows=(Window(100.0, 50.0, every_s=1000.0),))
    stream = node_faults("a", "r", model, 0)
    assert [next(stream).at_s for _ in range(3)] == [100.0, 1100.0, 2100.0]


def test_the_same_seed_gives_the_same_faults_under_another_hash_seed() -> None:
    program = (
        "from simulator.faults import *; from tests.simulator.interruptions import faults_of;"
        "import itertools;"
        "m = FaultModel(preset=PRESETS['rsc1'], spot=Spot(9e4));"
        "r = {f'r{i}': tuple(f'r{i}-{j}' for j in range(4)) for i in range(3)};"
        "print(list(itertools.islice(faults_of(r, m, 7), 200)))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": "."},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
