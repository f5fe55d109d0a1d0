"""GPU sharing in studies: parts of devices in traces, in logs that are used as traces, in answers."""

import pytest

from controlplane.log.codec import to_line, to_rows
from controlplane.model.rows import GENESIS
from simulator.machine.time_slicing import SWITCH_COST
from simulator.network.topology import ClusterModel, Delays, NodeModel
from studies.metrics.summary import summarise
from studies.simulation.run import run
from studies.whatif.clusters import equal_nodes, from_model, pool
from studies.whatif.policies import policy_named
from studies.workloads.formats import read_trace
from studies.workloads.shares import Demand, Part, demand, written
from tests.studies.test_traces import HEAD, SHARES, parsed

FIFO = policy_named("fifo")
KEPT = 1.0 - SWITCH_COST
# One node with two devices of 16 GB.
SMALL = from_model(
    "small", ClusterModel((NodeModel("n0", gpus=2, gpu_memory_mib=16_000),), Delays(0.0, 0.0, 0.0))
)


@pytest.mark.parametrize(
    ("gpus", "shares", "wanted"),
    [
        (4, "", Demand(4)),
        (0.25, "", Demand(0, (Part(1, 250),))),
        (2.5, "", Demand(2, (Part(1, 500),))),
        (0.5, "2x250", Demand(0, (Part(2, 250),))),
        (1, "4x250", Demand(0, (Part(4, 250),))),
        (1.35, "250+100", Demand(1, (Part(1, 250), Part(1, 100)))),
        (1, "2x8192Mi", Demand(1, (Part(2, memory_mib=8192),))),
    ],
)  # fmt: skip
def test_a_row_asks_for_whole_devices_and_for_parts(
    gpus: float, shares: str, wanted: Demand
) -> None:
    assert demand(gpus, shares) == wanted
    assert demand(gpus, written(wanted.parts)) == wanted


def test_jobs_that_share_a_gpu_run_at_the_same_time_in_a_study() -> None:
    rows = "a,0,0.5,100\nb,0,0.25,100\nc,0,0.25,100\nd,0,0.5,100\n"
    result = run(parsed(HEAD + rows), pool(1), FIFO)
    # The first three fill the device; the last one waits for the one GPU there is.
    assert result.started.tolist() == [0.0, 0.0, 0.0, pytest.approx(100.0 / KEPT)]
    assert result.finished.tolist()[3] == pytest.approx(100.0 / KEPT + 100.0)
    summary = summarise(result)
    assert summary["work_gpu_s"] == 150.0
    assert [group["name"] for group in summary["by_size"]] == ["<1"]
    assert summary["gantt"]["bars"][0][1] == 0.5


def test_a_share_counts_as_a_part_in_what_is_used() -> None:
    result = run(parsed(HEAD + "a,0,0.25,100\n"), equal_nodes(1, 4), FIFO)
    assert summarise(result)["goodput"]["share"]["productive"] == pytest.approx(0.25 / 4)


def test_memory_is_counted_in_gpus_of_the_studied_cluster() -> None:
    trace = parsed(SHARES + "a,0,0,100,2x4000Mi\nb,0,1,100,4000Mi\n")
    result = run(trace, SMALL, FIFO)
    # a: a quarter twice; b: a whole device and a quarter.
    assert result.trace.gpus.tolist() == [0.5, 1.25]
    assert result.started.tolist() == [0.0, 0.0]
    assert result.finished.tolist() == [pytest.approx(100.0 / KEPT)] * 2


def test_a_log_with_shares_is_a_trace_with_the_same_shares(tmp_path) -> None:
    rows = "0,0,0.5,95,2x250\n1,0,1.25,95,4000Mi+250\n2,5,2,95,\n"
    kept = run(parsed(SHARES + rows), SMALL, FIFO, keep_events=True).log
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"".join(to_line(row) + b"\n" for row in to_rows(kept, GENESIS)))
    again = read_trace(path)
    by_size = dict(zip(again.gpus.tolist(), again.labels["shares"], strict=True))
    assert by_size == {0.5: "2x250", 1.25: "4000Mi+250", 2.0: ""}
