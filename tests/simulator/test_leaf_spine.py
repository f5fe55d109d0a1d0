"""Recorded topologies as cluster files."""

from gzip import decompress

import pytest

from simulator.config.parsing import BadCluster
from simulator.network.leaf_spine import cluster_document
from simulator.network.links import leaves
from simulator.network.topology import parse_cluster
from tests.shared_data import shared

LINES = ["host,DSW,PSW,ASW", "0,G6,P10,S14", "1,G6,P12,S2", "2,G6,P10,S14"]


def test_an_access_switch_is_a_rack_and_a_leaf() -> None:
    model = parse_cluster(cluster_document(LINES, {"server": "dgx-a100"}, oversubscription=2.0))
    assert [(n.name, n.rack, n.gpus) for n in model.nodes] == [
        ("host-0", "s14", 8),
        ("host-1", "s2", 8),
        ("host-2", "s14", 8),
    ]
    assert dict(model.nodes[1].labels)["topology.muster.dev/pod"] == "p12"
    assert (model.fabric.nodes_per_leaf, model.fabric.oversubscription) == (2, 2.0)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "none"),
        (["host,ASW"], "none"),
        (["host,PSW", "0,P1"], "line 2"),
        (["host,ASW", "0,S1", "0,S2"], "once more"),
    ],
)
def test_what_is_no_topology_is_refused(lines: list[str], message: str) -> None:
    with pytest.raises(BadCluster, match=message):
        cluster_document(lines, {})


def test_the_real_topology_keeps_its_leaves() -> None:
    text = decompress(shared("traces", "lingjun_topology.csv.gz").read_bytes()).decode()
    model = parse_cluster(cluster_document(text.splitlines(), {"server": "dgx-h100"}))
    assert len(model.nodes) == 847
    assert len(set(leaves(model).values())) == 48
    assert {dict(n.labels)["topology.muster.dev/pod"] for n in model.nodes} == {"p8", "p10", "p12"}
