"""A recorded leaf-spine topology as a cluster file: hosts under access switches under pods.

The form is that of Alibaba's Lingjun dataset: CSV with the columns `host`, `ASW` (the access switch,
which is a leaf) and, where they are given, `PSW` and `DSW` above it. What the record does not say,
the hardware of the hosts and how much the uplinks carry, is for the caller to say.
"""

import csv
from collections.abc import Iterable, Mapping
from typing import Any

from simulator.fields import BadCluster

# Labels of a node for the switches above its leaf, by which jobs may ask to be kept together.
LABELS = {"PSW": "topology.muster.dev/pod", "DSW": "topology.muster.dev/zone"}


def cluster_document(
    lines: Iterable[str], node: Mapping[str, Any], *, oversubscription: float = 1.0
) -> dict[str, Any]:
    """A document for `parse_cluster`: one rack for each access switch, with its hosts by name.

    `node` is what every host has, such as `server`, or `gpus`, `gpu_type` and `net`.
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
    # A leaf is as large as the largest, so that each access switch stays one.
    fabric = {"nodes_per_leaf": max(leaves.values()), "oversubscription": oversubscription}
    return {"nodes": nodes, "fabric": fabric}


def _name(kind: str, text: str) -> str:
    plain = text.strip().lower()
    return f"{kind}-{plain}" if plain.isdigit() else plain
