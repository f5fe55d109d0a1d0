"""What a study's cluster cost: pools, priced nodes and plain GPU-hours, none of them twice."""

import json
from pathlib import Path
from typing import Any

import pytest

from simulator.network.topology import parse_cluster
from studies.metrics.summary import summarise
from studies.simulation.run import Run, run
from studies.whatif.clusters import StudyCluster, from_model, pool
from studies.whatif.executors import executor_for
from studies.whatif.policies import policy_named
from studies.whatif.whatif import ClusterFile, WhatIf, ask
from studies.workloads.trace import make_trace

HOUR = 3_600.0
KIND = {"gpus": 8, "gpu_type": "H100"}


def _cluster(*racks: dict[str, Any], **more: Any) -> StudyCluster:
    document = {"racks": [KIND | rack for rack in racks], "start_delay_s": 0, **more}
    return from_model("ours", parse_cluster(document))


def _run(cluster: StudyCluster, *jobs: tuple[float, int, float]) -> Run:
    submit, gpus, duration = zip(*jobs, strict=True)
    names = [str(i) for i in range(len(jobs))]
    return run(make_trace("bill", names, submit, gpus, duration), cluster, policy_named("fifo"))


def test_gpu_hours_are_paid_at_the_price_of_the_study() -> None:
    summary = summarise(_run(pool(8), (0, 8, HOUR)), price_gpu_hour=2.5)
    assert summary["bill"] == {"gpu_hours": 20.0, "nodes": 0.0, "pools": {}, "total": 20.0}
    assert summary["cost"] == 20.0


def test_a_node_with_a_price_is_paid_by_its_own() -> None:
    cluster = _cluster({"name": "ours", "nodes": 2, "price_h": 30.0})
    summary = summarise(_run(cluster, (0, 8, 2 * HOUR)), price_gpu_hour=2.5)
    assert summary["bill"] == {"gpu_hours": 0.0, "nodes": 120.0, "pools": {}, "total": 120.0}


def test_a_pool_is_paid_while_its_nodes_are_rented() -> None:
    elastic = {"rack": "cloud", "least": 0, "most": 2, "delay_s": 65, "delay_spread": 0}
    cluster = _cluster(
        {"name": "ours", "nodes": 1},
        {"name": "cloud", "nodes": 2},
        pools=[elastic | {"price_h": 40.0, "idle_s": 600}],
    )
    # The second job waits, so that one node is rented from then until both are done.
    result = _run(cluster, (0, 8, 3 * HOUR), (0, 8, HOUR))
    bill = summarise(result, price_gpu_hour=1.0)["bill"]
    # Asked for at the first look after 15 s, there 65 s later; idle for ten minutes after an
    # hour of work, and given back at the next look.
    rented_s = 65.0 + HOUR + 600.0
    assert bill["pools"]["cloud"] == pytest.approx(40.0 * rented_s / HOUR, abs=0.4)
    assert result.pooled_gpu_s["cloud"] == pytest.approx(8 * (rented_s - 65.0), rel=0.01)
    # Our own node is paid by the GPU-hour for the three hours that the study took.
    assert bill["gpu_hours"] == pytest.approx(8 * 3.0, abs=0.01)
    assert bill["total"] == pytest.approx(bill["gpu_hours"] + bill["pools"]["cloud"])


def test_a_cluster_file_can_be_asked_about(tmp_path: Path) -> None:
    """From the question to the report, in which the pool has a line of its own."""
    trace = tmp_path / "jobs.csv"
    trace.write_text("id,submit,gpus,duration\na,0,8,7200\nb,10,8,3600\n", "utf-8")
    racks = [KIND | {"name": "ours", "nodes": 1}, KIND | {"name": "cloud", "nodes": 2}]
    document = {"racks": racks, "pools": [{"rack": "cloud", "most": 2, "price_h": 40}]}
    file = ClusterFile("ours.yaml", json.dumps(document))
    question = WhatIf(trace=str(trace), clusters=(file,), policies=("fifo", "sjf"))
    result = ask(question, tmp_path / "study", executor=executor_for("local", 1))
    first = result["scenarios"][0]["replication_0"]
    assert first["cost"] == first["bill"]["pools"]["cloud"] > 40.0
    assert "of it for pool cloud" in (tmp_path / "study" / "report.html").read_text("utf-8")
