"""The cluster and the jobs of a server as the inputs of a study."""

import asyncio

import pytest

from api.studies.own_cluster import document, named, own_trace
from controlplane.log.codec import from_row
from controlplane.model.cluster import NodeInfo
from controlplane.model.errors import Rejected
from simulator.network.topology import parse_cluster
from tests.api.stand_in import Server, native

NODES = (
    NodeInfo("a.example", 8, "H100", 81_920, rack="Rack 1"),
    NodeInfo("b.example", 8, "H100", 81_920, rack="Rack 1"),
    NodeInfo("c.example", 4, "V100", 32_768, rack="Rack 2"),
)


def test_a_cluster_with_more_nodes_gets_more_of_the_usual_kind() -> None:
    model = parse_cluster(document(NODES, 2))
    assert [node.gpus for node in model.nodes] == [8, 8, 4, 8, 8]
    assert [named(0), named(1), named(20)] == [
        "this cluster", "this cluster + 1 node", "this cluster + 20 nodes",
    ]  # fmt: skip
    with pytest.raises(Rejected, match="no node"):
        document((), 2)


async def test_only_jobs_of_the_last_days_are_taken(server: Server) -> None:
    for name in ("one", "two"):
        _, job = await server.call("POST", "/v1/jobs", native(name))
        await server.settled()
        server.cluster.finish(job["job"]["id"])
        await server.settled()
        await asyncio.sleep(0.05)
    rows = await server.log.read(0, 1000)
    events = [from_row(row) for row in rows]
    assert own_trace(events, None).count("\n") == 3
    assert own_trace(events, 1.0).count("\n") == 3
    submitted = [row.at for row in rows if row.type == "JobSubmitted"]
    days = (rows[-1].at - submitted[1] + 0.01) / 86_400
    assert own_trace(events, days).count("\n") == 2
    with pytest.raises(Rejected, match="part of a log"):
        own_trace(events[3:], None)


async def test_a_study_of_this_cluster_and_its_findings(server: Server) -> None:
    _, choices = await server.call("GET", "/v1/studies/choices")
    assert (choices["nodes"], choices["gpus"]) == (2, 16)
    assert "easy" in [each["name"] for each in choices["disciplines"]]
    trace = "id,submit,gpus,duration\n1,0,8,60\n2,0,16,60\n3,1,16,60\n"
    asked = {"trace_csv": trace, "add_nodes": [0, 2]}
    status, study = await server.call("POST", "/v1/studies/whatif", asked)
    assert (status, study["title"]) == (202, "this cluster or this cluster + 2 nodes, fifo")
    path = f"/v1/studies/{study['id']}"
    async with asyncio.timeout(60):
        while (await server.call("GET", path))[1]["state"] in ("waiting", "running"):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    status, findings = await server.call("GET", f"{path}/findings")
    assert status == 200, findings
    assert "with this cluster + 2 nodes (base:" in findings["sentences"][0]
    assert "<" not in "".join(findings["sentences"])
