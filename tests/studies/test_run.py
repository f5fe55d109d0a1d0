"""One run: awkward jobs, faults, checkpoints, determinism, and results of queueing theory."""

import subprocess
import sys
from dataclasses import replace
from heapq import heappop, heappush
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.audit.redecide import DecisionVerifier
from controlplane.disciplines.registry import DISCIPLINES
from controlplane.engine import COMMANDS_PER_APPEND_MAX
from controlplane.model.events import GangPlaced
from controlplane.model.policy import Queue
from controlplane.state.world import World
from simulator.faults import FaultModel
from simulator.network.topology import Delays
from studies.metrics.goodput import PARTS, goodput
from studies.simulation.run import run
from studies.whatif.clusters import equal_nodes, pool
from studies.whatif.comparison import interval
from studies.whatif.policies import policy_named
from studies.whatif.scenario_parts import Autoscale, Checkpoints
from studies.whatif.schedule_csv import fingerprint, schedule_lines
from studies.workloads.trace import make_trace
from tests.studies.counted import starts
from tests.studies.naive import schedule

HOUR = 3_600.0


def trace_of(rows, **more):
    submit, gpus, duration = zip(*rows, strict=True)
    return make_trace("test", [str(i) for i in range(len(rows))], submit, gpus, duration, **more)


rows = st.lists(
    st.tuples(st.integers(0, 30), st.integers(1, 8), st.integers(1, 20)), min_size=1, max_size=25
)


@settings(max_examples=40)
@given(rows, st.sampled_from(("fifo", "fit", "sjf", "sjffit", "easy")))
def test_any_small_trace_is_scheduled_by_the_plain_rules(rows, policy):
    trace = trace_of(rows)

    result = run(trace, pool(8), policy_named(policy))

    order = sorted(range(len(rows)), key=lambda i: (rows[i][0], i))
    expected = schedule(rows, 8, policy)
    got = {
        int(trace.ids[i]): (int(result.started[i]), int(result.finished[i]))
        for i in range(len(rows))
    }
    assert [trace.ids[i] for i in range(len(rows))] == [str(i) for i in order]
    assert got == expected


def test_a_job_without_length_starts_and_ends_at_once_and_leaves_its_gpus():
    result = run(
        trace_of([(0, 8, 0), (0, 8, 5), (5, 8, 0), (5, 8, 1)]), pool(8), policy_named("fifo")
    )

    assert list(schedule_lines(result)) == ["0,0,0\n", "1,0,5\n", "2,5,5\n", "3,5,6\n"]


def test_a_job_larger_than_the_cluster_is_refused_and_blocks_no_other():
    result = run(trace_of([(0, 9, 5), (0, 8, 5)]), pool(8), policy_named("fifo"))

    assert list(result.refused) == [0]
    assert "9 GPUs" in result.refused[0]
    assert list(schedule_lines(result)) == ["1,0,5\n"]


def test_of_any_number_that_come_at_once_the_shortest_goes_first():
    """They are decided in several steps, but who is next is asked when all of them are in."""
    count = 2 * COMMANDS_PER_APPEND_MAX + 500
    rows = [(7, 1, 5_000 - i) for i in range(count)]
    result = run(trace_of(rows), pool(10), policy_named("sjf"), keep_events=True)

    assert sorted(result.started.tolist()[-10:]) == [7.0] * 10
    assert result.started.tolist() == starts(rows, 10, "sjf")
    verifier = DecisionVerifier(World())
    verifier.take(result.log)
    verifier.finish()


def test_jobs_of_a_thousand_that_come_at_once_are_scheduled_in_the_order_of_ids():
    result = run(trace_of([(7, 1, 3)] * 1_000), pool(100), policy_named("fifo"))

    assert [int(line.split(",")[1]) for line in schedule_lines(result)] == [
        7 + 3 * (i // 100) for i in range(1_000)
    ]


def test_a_quota_holds_a_queue_back():
    trace = trace_of([(0, 4, 10)] * 4, labels={"queue": ["a", "a", "b", "b"]})

    result = run(trace, pool(16), policy_named("fifo"), queues=[Queue("a", 4)])

    assert result.started.tolist() == [0, 10, 0, 0]


def test_a_restart_begins_at_the_last_checkpoint():
    cluster = equal_nodes(1, 8, delays=Delays(start_s=0.0, stop_s=0.0))
    script = FaultModel(script=(_crash(at_s=35.0, repair_s=5.0),))
    cluster = cluster.with_model(replace(cluster.model, faults=script))
    trace = trace_of([(0, 8, 60)])

    lost = run(trace, cluster, policy_named("fifo"))
    kept = run(trace, cluster, policy_named("fifo"), checkpoints=Checkpoints(every_s=10.0))

    assert lost.finished[0] == 40 + 60
    # Thirty of the sixty seconds were safe.
    assert kept.finished[0] == 40 + 30
    assert goodput(lost)["gpu_seconds"]["lost"] == 35 * 8
    assert goodput(kept)["gpu_seconds"]["lost"] == 5 * 8
    assert goodput(kept)["gpu_seconds"]["down"] == 5 * 8


def _crash(*, at_s, repair_s):
    from simulator.faults import Fault

    return Fault(at_s, "node-0", repair_s)


@pytest.mark.parametrize("policy", DISCIPLINES.names)
def test_every_gpu_second_is_accounted_for_once(policy):
    dice = Random(5)
    trace = trace_of(
        sorted(
            (dice.randint(0, 900), dice.choice((1, 2, 8, 12)), dice.randint(0, 300))
            for _ in range(120)
        )
    )
    cluster = equal_nodes(3, 8, delays=Delays(start_s=3.0, stop_s=2.0))
    faults = FaultModel(node_mtbf_s=900.0, node_repair_s=60.0)
    cluster = cluster.with_model(replace(cluster.model, faults=faults, seed=4))

    result = run(
        trace, cluster, policy_named(policy), checkpoints=Checkpoints(every_s=30.0, write_s=1.0)
    )

    parts = goodput(result)["gpu_seconds"]
    assert sum(parts.values()) == pytest.approx(24 * (result.ended_at - trace.submit[0]))
    assert set(parts) == set(PARTS)
    # What was done once and kept is the work that was asked for.
    assert parts["productive"] == pytest.approx(trace.gpu_seconds)
    assert parts["lost"] > 0
    assert parts["start_up"] > 0


def test_an_autoscaled_cluster_rents_nodes_only_while_they_are_needed():
    trace = trace_of([(0, 8, 100), (2_000, 8, 600), (2_000, 8, 600), (9_000, 8, 100)])
    plan = Autoscale(nodes_min=1, boot_s=100.0, idle_s=300.0)

    result = run(trace, equal_nodes(4, 8), policy_named("fifo"), autoscale=plan)

    assert result.started[:2].tolist() == [0, 2_000]
    # The autoscaler looks once a minute, and a node takes a hundred seconds.
    assert 2_100 <= result.started[2] <= 2_200
    assert max(gpus for _, gpus in result.capacity[1:]) == 16
    assert result.capacity[-1][1] == 8


def arrivals(seed, servers, use, jobs):
    dice, at, rows = Random(f"erlang/{seed}"), 0.0, []
    for _ in range(jobs):
        at += dice.expovariate(servers * use / HOUR)
        rows.append((at, 1, dice.expovariate(1 / HOUR)))
    return rows


def waits_by_recursion(rows, servers):
    """Who comes takes the server that is free first: all there is to such a queue."""
    free, waits = [0.0] * servers, []
    for at, _, length in rows:
        start = max(at, heappop(free))
        heappush(free, start + length)
        waits.append(start - at)
    return waits


def test_waits_are_those_of_queueing_theory():
    """An M/M/16 queue at 90 %: Erlang's formula gives a mean wait of 1330.5 s."""
    rows = arrivals(0, 16, 0.9, 3_000)
    result = run(trace_of(rows), pool(16), policy_named("fifo"))
    means = []
    for seed in range(30):
        waits = waits_by_recursion(arrivals(seed, 16, 0.9, 20_000), 16)
        means.append(sum(waits[2_000:]) / 18_000)

    bounds = interval(means)

    # The engine agrees with the recursion wait for wait, and the recursion with the formula.
    ours = (result.started - result.trace.submit).tolist()
    assert ours == pytest.approx(waits_by_recursion(rows, 16), abs=1e-6)
    assert bounds["low"] < 1330.523 < bounds["high"]
    assert bounds["high"] - bounds["low"] < 400


PROGRAM = """
from tests.studies.test_run import noisy_run
from studies.whatif.schedule_csv import fingerprint
print(fingerprint(noisy_run()))
"""


def noisy_run():
    dice = Random(9)
    trace = trace_of(
        sorted(
            (dice.randint(0, 5_000), dice.choice((1, 4, 8, 16)), dice.randint(1, 900))
            for _ in range(200)
        ),
        labels={"queue": [dice.choice("abc") for _ in range(200)]},
    )
    cluster = equal_nodes(4, 8, delays=Delays(start_s=2.0, start_jitter_s=3.0, stop_s=1.0))
    faults = FaultModel(node_mtbf_s=2_000.0, node_repair_s=100.0)
    return run(
        trace,
        cluster.with_model(replace(cluster.model, faults=faults, seed=11)),
        policy_named("easy"),
        checkpoints=Checkpoints(every_s=60.0, write_s=2.0),
    )


def test_a_run_is_the_same_under_every_hash_seed():
    here = fingerprint(noisy_run())

    for seed in ("0", "4711"):
        ran = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={"PYTHONHASHSEED": seed, "PATH": ""},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert ran.stdout.strip() == here


def test_no_event_is_kept_unless_asked_for():
    trace = trace_of([(0, 1, 5)])

    assert run(trace, pool(1), policy_named("fifo")).log is None
    kept = run(trace, pool(1), policy_named("fifo"), keep_events=True).log
    assert [type(r.event).__name__ for r in kept][-3:] == [
        "JobSucceeded",
        "AttemptEnded",
        "JobRemoved",
    ]


def test_the_job_with_the_most_attained_service_is_preempted_at_the_next_level():
    """Eight GPUs make a GPU-hour in 450 s, and four of them in 1800; no job has to come or go then."""
    rows = [(0, 8, 10_000), (10, 8, 100), (20, 8, 460)]
    trace = trace_of(rows)
    result = run(trace, equal_nodes(1, 8), policy_named("tiresias"), keep_events=True)

    # The first had 3600 GPU seconds at 450 s. The last one comes to its step at 1000 and would go on,
    # since the first is at that step too, and came before it.
    placed = [(x.event.job, x.at) for x in result.log if isinstance(x.event, GangPlaced)]
    assert placed == [("0", 0.0), ("1", 450.0), ("2", 550.0), ("0", 1010.0)]
    assert result.restarts.tolist() == [1, 0, 0]
    verifier = DecisionVerifier(World())
    verifier.take(result.log)
    verifier.finish()


def test_without_preemption_the_same_jobs_wait():
    rows = [(0, 8, 10_000), (10, 8, 100), (20, 8, 460)]
    result = run(trace_of(rows), equal_nodes(1, 8), policy_named("las"))
    assert result.started.tolist() == [0.0, 10_000.0, 10_100.0]
