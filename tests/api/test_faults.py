"""Faults of nodes for demonstrations."""

import asyncio
from pathlib import Path

from cli.log.sources import parse_source
from cli.server.assembly import Wanted, assembled, running
from cli.server.simulated import simulated_cluster
from simulator.network.topology import documented, grid
from tests.api.http_calls import call
from tests.api.stand_in import Server


async def test_another_cluster_refuses_with_a_reason(server: Server) -> None:
    status, problem = await server.call("POST", "/v1/nodes/node-0/faults", {"kind": "crash"})
    assert (status, problem["code"]) == (409, "faults_not_possible")
    assert "simulated" in problem["detail"]


async def until(url: str, node: str, ready: bool) -> dict:
    async with asyncio.timeout(20):
        while True:
            _, view = await call(url, "GET", f"/v1/nodes/{node}")
            if view.get("ready") is ready:
                return view
            await asyncio.sleep(0.02)


async def test_a_node_fails_and_comes_back_and_the_log_says_who_asked(tmp_path: Path) -> None:
    model = documented(grid(1, 2), seed=1)
    source = parse_source(str(tmp_path / "log.db"))
    wanted = Wanted(source=source, cluster=simulated_cluster(model, speed=50.0))
    async with assembled(wanted) as parts, running(parts, "127.0.0.1", 0) as (url, _):
        await until(url, "rack-0-0", ready=True)
        body = {"kind": "crash", "duration_s": 200}
        status, accepted = await call(url, "POST", "/v1/nodes/rack-0-0/faults", body)
        assert status == 202, accepted
        assert accepted["message"] == "it crashes, for 200 s"
        await until(url, "rack-0-0", ready=False)
        await until(url, "rack-0-0", ready=True)
        _, marks = await call(
            url, "GET", "/v1/history/marks?kind=fault&kind=node_lost&kind=node_back"
        )
        assert [mark["kind"] for mark in marks["items"]] == ["fault", "node_lost", "node_back"]
        assert marks["items"][0]["node"] == "rack-0-0"
        lost, back = marks["items"][1]["at"], marks["items"][2]["at"]
        assert abs(back - lost - 200) < 100
        for wrong in ({"kind": "meteor"}, {"kind": "slow", "factor": 2}, {"duration_s": -1}):
            status, problem = await call(url, "POST", "/v1/nodes/rack-0-0/faults", wrong)
            assert (status, problem["code"]) == (422, "invalid_body")
        status, problem = await call(url, "POST", "/v1/nodes/none-such/faults", {})
        assert (status, problem["code"]) == (404, "no_such_node")
        _, cluster = await call(url, "GET", "/v1/cluster")
        assert (cluster["kind"], cluster["speed"]) == ("simulated", 50.0)
