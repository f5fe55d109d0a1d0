"""Schedules through the real engine, against published ones that other programs agree on."""

import json

import pytest

from studies.metrics.summary import summarise
from studies.simulation.run import run
from studies.whatif.clusters import equal_nodes, pool
from studies.whatif.policies import policy_named
from studies.whatif.schedule_csv import fingerprint
from studies.workloads.csv_trace import read_csv
from studies.workloads.formats import read_trace
from tests.shared_data import shared
from tests.studies.counted import starts

POLICIES = ("fifo", "fit", "sjf", "sjffit", "easy", "fifo+consolidate", "sjf+consolidate")


@pytest.fixture(scope="module")
def trace():
    return read_csv(shared("traces", "bench_b1_lingjun.csv"))


@pytest.fixture(scope="module")
def reference():
    document = json.loads(shared("traces", "reference_results.json").read_text())
    return {entry["policy"]: entry for entry in document["results"]}


@pytest.mark.parametrize("policy", POLICIES)
def test_a_schedule_is_exactly_the_published_one(trace, reference, policy):
    expected = reference[policy]
    pooled = "gpus" in expected
    cluster = pool(expected["gpus"]) if pooled else equal_nodes(expected["nodes"], 8)

    result = run(trace, cluster, policy_named(policy))

    assert fingerprint(result) == expected["schedule_sha256"]
    summary = summarise(result, detail=False)
    for ours, theirs in (("jct_s", "jct"), ("wait_s", "queue")):
        assert summary[ours] == pytest.approx(expected[theirs], abs=1e-4)
    assert summary["makespan_s"] == expected["makespan"]
    assert summary["utilisation"] == pytest.approx(expected["utilisation"], abs=1e-6)


# The first thousands of the larger trace on so few GPUs that many wait at all times.
CROWDED = {"easy": 160, "fit": 160, "sjf": 160, "sjffit": 160, "fifo": 256}


@pytest.mark.parametrize("policy", CROWDED)
def test_a_crowded_part_of_the_larger_trace_is_scheduled_as_by_counting(policy):
    part = read_trace(shared("traces", "bench_b2_philly.csv.gz")).rows(slice(0, 2_000))
    rows = list(zip(part.submit.tolist(), part.gpus.tolist(), part.duration.tolist(), strict=True))

    result = run(part, pool(CROWDED[policy]), policy_named(policy), places=False)

    assert result.started.tolist() == starts(rows, CROWDED[policy], policy)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("policy", CROWDED)
def test_the_whole_larger_trace_is_scheduled_as_by_counting(policy):
    whole = read_trace(shared("traces", "bench_b2_philly.csv.gz"))
    rows = list(
        zip(whole.submit.tolist(), whole.gpus.tolist(), whole.duration.tolist(), strict=True)
    )

    result = run(whole, pool(2048), policy_named(policy), places=False)

    assert result.started.tolist() == starts(rows, 2048, policy)
