"""A recorded leaf-spine topology as a cluster file: hosts under access switches under pods.

The format is that of Alibaba's Lingjun dataset: CSV with the columns `host`, `ASW` (the access
switch, which is a leaf) and optionally `PSW` and `DSW` above it. The caller provides what the
record does not contain: the hardware of the hosts and the capacity of the uplinks.
"""

import csv
from collections.abc import Iterable, Mapping
from typing import Any

from simulator.config.parsing import BadCluster

# Labels of a node for the switches above its leaf, which jobs may name as topology levels.
LABELS = {"PSW": "topology.muster.dev/pod", "DSW": "topology.muster.dev/zone"}


def cluster_document(
    lines: Iterable[str], node: Mapping[str, Any], *, oversubscription: float = 1.0
) -> dict[str, Any]:
    """Return a document for `parse_cluster` with one rack for each access switch.

    `node` has the fields of every host, such as `server`, or `gpus`, `gpu_type` and `net`. Raise
    BadCluster for a line without a host or its ASW, for a repeated host, or if there are no hosts.
    """
    rows = list(csv.DictReader(lines))
    hosts: dict[str, dict[str, str]] = {}
    for number, row in enumerate(rows, 2):
        if not row.get("host") or not row.get("ASW"):
            raise BadCluster(f"line {number}", "needs a host and its ASW")
        name = _name("host", row["host"])
        if name in hosts:
            raise BadCluster(f"line {number}", f"names the host {row['host']} once more")
        hosts[name] = row
    if not hosts:
        raise BadCluster("hosts", "are none: the file needs a header with host and ASW, and lines")
    leaves: dict[str, int] = {}
    for row in hosts.values():
        leaves[row["ASW"]] = leaves.get(row["ASW"], 0) + 1
    nodes = [
        {
            "name": name,
            "rack": _name("leaf", row["ASW"]),
            "labels": {
                label: row[column].lower() for column, label in LABELS.items() if row.get(column)
            },
            **node,
        }
        for name, row in hosts.items()
    ]
    # The leaf size is that of the largest, so that no access switch is split.
    fabric = {"nodes_per_leaf": max(leaves.values()), "oversubscription": oversubscription}
    return {"nodes": nodes, "fabric": fabric}


def _name(kind: str, text: str) -> str:
    plain = text.strip().lower()
    return f"{kind}-{plain}" if plain.isdigit() else plain
