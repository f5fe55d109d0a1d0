"""Looking back over HTTP."""

import json

from controlplane.audit.bundle import MAGIC
from tests.api.stand_in import START, Server, native


async def busy(server: Server) -> None:
    for number in range(3):
        await server.call("POST", "/v1/jobs", native(f"train-{number}"))
    await server.settled()


async def test_the_log_is_verified(server: Server) -> None:
    await busy(server)
    status, verified = await server.call("GET", "/v1/log/verify")
    assert (status, verified["decided_alike"], verified["difference"]) == (200, True, None)
    assert verified["position"] == (await server.log.head()).position


async def test_a_bundle_is_handed_out(server: Server) -> None:
    await busy(server)
    head = (await server.log.head()).position
    path = f"{server.url}/v1/log/bundle?first=3&redact=true"
    async with server.session.get(path) as response:
        body = await response.read()
    assert response.status == 200
    assert body.startswith(MAGIC)
    assert b"train-" not in body
    lines = body.splitlines()
    assert json.loads(lines[0])["last"] == json.loads(lines[-1])["position"] == head
    status, problem = await server.call("GET", "/v1/log/bundle?first=9999")
    assert (status, problem["code"]) == (404, "no_such_position")


async def test_an_analysis_is_given(server: Server) -> None:
    await busy(server)
    status, analysis = await server.call("GET", "/v1/analysis")
    assert (status, analysis["jobs"]) == (200, 3)
    for span in ("since=9e9", "until=1", "since=2026-11-16T00:00:00Z&until=1"):
        status, problem = await server.call("GET", f"/v1/analysis?{span}")
        assert (status, problem["code"]) == (404, "no_such_position")


async def test_a_fork_is_made(server: Server) -> None:
    await busy(server)
    at = START + 60
    wanted = {"at": at, "until": at + 300, "cordon": ["node-0"]}
    status, fork = await server.call("POST", "/v1/studies/fork", wanted)
    assert status == 200, fork
    assert fork["changes"] == ["node node-0 takes no new work"]
    for wrong in ({"at": 1.0}, {"at": at, "until": at + 9, "set": {"colour": "blue"}}):
        status, problem = await server.call("POST", "/v1/studies/fork", wrong)
        assert (status, problem["code"]) == (422, "invalid_fork")
