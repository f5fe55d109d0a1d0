"""Cluster files: what they mean, and how wrong ones are refused."""

from typing import Any

import pytest

from simulator.faults import Fault, FaultKind
from simulator.hardware.hosts import find_server
from simulator.network.topology import NODES_MAX, BadCluster, Delays, NodeModel, grid, parse_cluster

RACK = {"name": "rack-a", "nodes": 2, "gpus": 4, "gpu_type": "V100", "gpu_memory_mib": 32768}


def test_a_rack_is_shorthand_for_its_nodes() -> None:
    cluster = parse_cluster({"racks": [RACK]})
    assert cluster.nodes == (
        NodeModel("rack-a-0", "rack-a", 4, "V100", 32768),
        NodeModel("rack-a-1", "rack-a", 4, "V100", 32768),
    )
    assert cluster.gpus == 8


def test_nodes_can_be_named_one_by_one() -> None:
    node = {"name": "n1", "rack": "r1", "gpus": 16, "labels": {"zone": "b"}}
    cluster = parse_cluster({"racks": [RACK], "nodes": [node, {"name": "n2"}]})
    assert cluster.nodes[2:] == (
        NodeModel("n1", "r1", 16, labels={"zone": "b"}),
        NodeModel("n2"),
    )


def test_delays_seed_and_faults_are_read() -> None:
    script = [
        {"at_s": 120, "node": "rack-a-0", "repair_s": 300},
        {"at_s": 240, "node": "rack-a-1", "kind": "spot_reclaim"},
    ]
    cluster = parse_cluster(
        {
            "racks": [RACK],
            "start_delay_s": 1,
            "start_jitter_s": 0.5,
            "stop_delay_s": 0,
            "seed": 7,
            "faults": {"node_mtbf_s": 86400, "node_repair_s": 60, "script": script},
        }
    )
    assert cluster.delays == Delays(start_s=1.0, start_jitter_s=0.5, stop_s=0.0)
    assert cluster.seed == 7
    assert cluster.faults.node_mtbf_s == 86400.0
    assert cluster.faults.node_repair_s == 60.0
    assert cluster.faults.script == (
        Fault(120.0, "rack-a-0", 300.0),
        Fault(240.0, "rack-a-1", None, FaultKind.SPOT_RECLAIM),
    )


def test_a_field_left_empty_counts_as_left_out() -> None:
    assert parse_cluster({"racks": [RACK], "nodes": None, "faults": None, "seed": None}).seed == 0


def test_a_grid_is_two_racks_of_four_nodes_of_eight_by_default() -> None:
    cluster = grid()
    assert [node.name for node in cluster.nodes][:5] == [
        "rack-0-0",
        "rack-0-1",
        "rack-0-2",
        "rack-0-3",
        "rack-1-0",
    ]
    assert cluster.gpus == 64


@pytest.mark.parametrize(
    ("document", "path"),
    [
        (None, ""),
        ([], ""),
        ({1: 2}, ""),
        ({}, "nodes"),
        ({"racks": {}}, "racks"),
        ({"racks": [3]}, "racks[0]"),
        ({"racks": [RACK], "links": []}, "links"),
        ({"racks": [{**RACK, "colour": "red"}]}, "racks[0].colour"),
        ({"racks": [{**RACK, "name": "Rack_A"}]}, "racks[0].name"),
        ({"racks": [{**RACK, "name": "a" * 62}]}, "racks[0].name"),
        ({"racks": [{**RACK, "nodes": 0}]}, "racks[0].nodes"),
        ({"racks": [{**RACK, "nodes": True}]}, "racks[0].nodes"),
        ({"racks": [{**RACK, "gpus": -1}]}, "racks[0].gpus"),
        ({"racks": [{**RACK, "gpus": 10**9}]}, "racks[0].gpus"),
        ({"racks": [{**RACK, "gpu_type": 100}]}, "racks[0].gpu_type"),
        ({"racks": [{**RACK, "labels": {"a": 1}}]}, "racks[0].labels.a"),
        ({"racks": [RACK, RACK]}, "nodes"),
        ({"racks": [RACK], "nodes": [{"name": "rack-a-1"}]}, "nodes"),
        ({"racks": [RACK], "nodes": [{}]}, "nodes[0].name"),
        ({"racks": [RACK], "nodes": [{"name": "-a"}]}, "nodes[0].name"),
        ({"racks": [RACK], "start_delay_s": -1}, "start_delay_s"),
        ({"racks": [RACK], "start_delay_s": "5"}, "start_delay_s"),
        ({"racks": [RACK], "start_delay_s": float("nan")}, "start_delay_s"),
        ({"racks": [RACK], "stop_delay_s": float("inf")}, "stop_delay_s"),
        ({"racks": [RACK], "stop_delay_s": 10**400}, "stop_delay_s"),
        ({"racks": [RACK], "seed": 1.5}, "seed"),
        ({"racks": [RACK], "faults": {"node_mtbf_s": 0}}, "faults.node_mtbf_s"),
        ({"racks": [RACK], "faults": {"mtbf": 9}}, "faults.mtbf"),
        (
            {"racks": [RACK], "faults": {"script": [{"node": "x", "at_s": 1}]}},
            "faults.script[0].node",
        ),
        ({"racks": [RACK], "faults": {"script": [{"node": "rack-a-0"}]}}, "faults.script[0].at_s"),
        (
            {"racks": [RACK], "faults": {"script": [{"node": "rack-a-0", "at_s": 1, "kind": "x"}]}},
            "faults.script[0].kind",
        ),
    ],
)
def test_a_wrong_field_is_refused_by_its_path(document: Any, path: str) -> None:
    with pytest.raises(BadCluster) as refusal:
        parse_cluster(document)
    assert refusal.value.path == path


def test_many_large_racks_are_refused_before_they_are_built() -> None:
    racks = [{"name": f"r{i}", "nodes": NODES_MAX} for i in range(1000)]
    with pytest.raises(BadCluster, match="too many"):
        parse_cluster({"racks": racks})


def test_ranks_may_request_the_stated_resources_of_a_host() -> None:
    stated = {**RACK, "name": "stated", "cpus": 16, "memory_gb": 128}
    some = {**RACK, "name": "some", "cpus": 16}
    bought = {"name": "bought", "server": "DGX-A100", "memory_gb": 256}
    nodes = parse_cluster({"racks": [RACK, stated, some, bought]}).nodes
    by_rack = {node.rack: node.resources for node in nodes}
    assert by_rack == {
        "rack-a": {},
        "stated": {"cpu": 16_000, "memory": 128 << 30},
        "some": {"cpu": 16_000},
        "bought": {"cpu": find_server("DGX-A100").host.cpus * 1_000, "memory": 256 << 30},
    }
