"""Schedules through the real engine, against published ones that other programs agree on."""

import json

import pytest

from studies.answers.summary import summarise
from studies.clusters import equal_nodes, pool
from studies.policies import policy_named
from studies.run import run
from studies.schedule_lines import fingerprint
from studies.workloads.csv_trace import read_csv
from tests.shared_data import shared

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

    found = run(trace, cluster, policy_named(policy))

    assert fingerprint(found) == expected["schedule_sha256"]
    told = summarise(found, detail=False)
    for ours, theirs in (("jct_s", "jct"), ("wait_s", "queue")):
        assert told[ours] == pytest.approx(expected[theirs], abs=1e-4)
    assert told["makespan_s"] == expected["makespan"]
    assert told["utilisation"] == pytest.approx(expected["utilisation"], abs=1e-6)
