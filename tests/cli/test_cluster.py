"""Nodes and queues from the command line."""

from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from cli.output.cluster_tables import nodes_table
from controlplane.queries.views import NodeView
from tests.cli.conftest import Muster

pytestmark = pytest.mark.usefixtures("server")


def test_top_shows_gpus_by_node_and_by_job(muster: Muster, manifest: Callable[..., Path]) -> None:
    assert muster("top", "job").out == "no job holds GPUs\n"
    muster("submit", manifest("holder", replicas=2, gpus=8, duration_s=1_000_000))
    shown = muster("top", "node").out
    assert "8/8" in shown
    assert "default/holder" in shown
    assert shown.endswith("16 of 64 GPUs in use (25%)\n")
    row = muster("top", "job").out.splitlines()[1].split()
    assert row[0] == "default/holder"
    assert row[2:4] == ["16", "16"]
    assert len(muster("top", "node", "-o", "json").json["items"]) == 8


def test_top_of_an_unknown_job_or_node_reports_that_it_does_not_exist(muster: Muster) -> None:
    ran = muster("top", "job", "missing")
    assert (ran.code, ran.out) == (102, "")
    assert "there is no job default/missing" in ran.err
    ran = muster("top", "node", "nowhere")
    assert (ran.code, ran.out) == (1, "")
    assert "there is no node" in ran.err


def test_a_node_is_cordoned_and_uncordoned(muster: Muster) -> None:
    assert muster("node", "cordon", "rack-0-0").out == "rack-0-0 cordoned\n"
    assert "Cordoned" in muster("node", "get", "rack-0-0").out
    assert muster("node", "uncordon", "rack-0-0").code == 0
    assert muster("node", "get", "rack-0-0", "-o", "json").json["cordoned"] is False
    assert len(muster("node", "list", "-o", "name").out.split()) == 8
    assert "CPUS FREE" in muster("node", "list", "-o", "wide").out
    ran = muster("node", "cordon", "rack-9")
    assert ran.code == 1
    assert "muster node list" in ran.err


def test_a_queue_gets_a_ceiling(muster: Muster, manifest: Callable[..., Path]) -> None:
    ran = muster("queue", "set", "nlp", "--gpus-max", 8)
    assert ran.out == "nlp set: no quota, ceiling 8 GPUs, discipline fifo\n"
    header, *rows = muster("queue", "list").out.splitlines()
    assert header.replace("GPUS USED", "USED").split() == [
        "QUEUE", "WAITING", "USED", "QUOTA", "BORROWED", "LENT", "CEILING", "DISCIPLINE",
    ]  # fmt: skip
    assert next(row for row in rows if "nlp" in row).split() == [
        "nlp", "0", "0", "none", "0", "0", "8", "fifo",
    ]  # fmt: skip
    path = manifest("waits", replicas=2, gpus=4, duration_s=1_000_000)
    text = path.read_text().replace('"spec":{', '"spec":{"queue":"nlp",')
    muster("submit", "-", stdin=text)
    muster("submit", "-", stdin=text.replace("waits", "second"))
    shown = muster("queue", "get", "nlp").out
    assert "default/second" in shown
    assert muster("queue", "get", "nlp", "-o", "json").json["jobs_waiting"] == 1
    assert (
        muster("queue", "set", "nlp", "--no-ceiling").out
        == "nlp set: no quota, no ceiling, discipline fifo\n"
    )
    assert muster("queue", "set", "nlp").code == 2
    assert muster("queue", "get", "none").code == 1
    assert muster("queue", "set", "Bad_Name", "--no-ceiling").code == 2


def test_queues_and_the_policy_are_set_by_key_and_value(muster: Muster) -> None:
    assert "lab set" in muster("queue", "set", "lab").out
    assert "discipline: fifo" in muster("policy", "get").out
    ran = muster("queue", "set", "research", "parent=lab", "nominal=24", "preempt.reclaim=any")
    assert "quota 24 GPUs" in ran.out
    muster("queue", "set", "research", "borrow_max=8")
    shown = muster("queue", "get", "research", "-o", "json").json
    assert (shown["nominal"], shown["borrow_max"], shown["parent"]) == (24, 8, "lab")
    assert shown["preempt"]["reclaim"] == "any"

    muster("queue", "set", "research", "flavors.h100.nominal=8", "flavors.a100.nominal=16")
    muster("queue", "set", "research", "flavors.h100.borrow_max=2", "weight=2")
    flavors = muster("queue", "get", "research", "-o", "json").json["flavors"]
    assert [(f["name"], f["nominal"], f.get("borrow_max")) for f in flavors] == [
        ("h100", 8, 2), ("a100", 16, None),
    ]  # fmt: skip
    muster("queue", "set", "research", "flavors.h100=")
    flavors = muster("queue", "get", "research", "-o", "json").json["flavors"]
    assert [f["name"] for f in flavors] == ["a100"]
    assert muster("queue", "set", "research", "flavors.h100=8").code == 2
    muster("queue", "set", "research", "resources.cpu.nominal=64", "resources.memory.nominal=2Gi")
    shown = muster("queue", "get", "research", "-o", "json").json["resources"]
    assert [(r["name"], r["nominal"]) for r in shown] == [("cpu", 64), ("memory", 2 * 2**30)]
    assert muster("queue", "set", "research", "resources.cpu.nominal=many").code == 2

    muster("policy", "set", "discipline=easy", "levels=block,rack")
    shown = muster("policy", "get", "-o", "json").json
    assert (shown["discipline"], shown["levels"]) == ("easy", ["block", "rack"])
    muster("policy", "set", "discipline=", "levels=rack")
    shown = muster("policy", "get", "-o", "json").json
    assert (shown["discipline"], shown["levels"]) == ("fifo", ["rack"])

    muster("policy", "set", "starts_per_cycle_max=5", "cycle_s=2.5", "autoscaled=true")
    shown = muster("policy", "get", "-o", "json").json
    settings = (shown["starts_per_cycle_max"], shown["cycle_s"], shown["autoscaled"])
    assert settings == (5, 2.5, True)
    refused = muster("policy", "set", "starts_per_cycle_max=0")
    assert refused.code == 2
    assert "nothing would ever start" in refused.err
    muster("policy", "set", "starts_per_cycle_max=", "cycle_s=", "autoscaled=")
    shown = muster("policy", "get", "-o", "json").json
    settings = (shown["starts_per_cycle_max"], shown["cycle_s"], shown["autoscaled"])
    assert settings == (None, 1.0, False)

    assert "research deleted" in muster("queue", "delete", "research").out


def test_a_wide_list_of_nodes_shows_the_free_resources_besides_gpus() -> None:
    facts = {"rack": "", "gpu_type": "", "gpu_memory_mib": 0, "gpus": 8, "gpus_free": 8}
    facts |= {"ready": True, "cordoned": False, "message": "", "jobs": []}
    has = {"cpu": "32", "memory": "256Gi"}
    left = {"cpu": "1500m", "memory": "131072Mi"}
    counted = NodeView(name="n1", resources=has, resources_free=left, **facts)
    shown = Console(width=120, file=StringIO())
    shown.print(nodes_table([counted, NodeView(name="n2", **facts)], wide=True))
    _, first, second = shown.file.getvalue().splitlines()
    assert "1.5 of 32  128 GiB of 256 GiB" in first
    assert second.split()[-3:] == ["-", "-", "-"]
