"""Jobs that could not start at all, through HTTP: refused with what there is, or set aside and shown."""

from typing import Any

import pytest

from tests.api.stand_in import Server, native


def asking(name: str, role: dict[str, Any] | None = None, **asks: Any) -> dict[str, Any]:
    manifest = native(name)
    manifest["spec"]["roles"][0] |= role or {}
    manifest["spec"]["scheduling"] = asks
    return manifest


@pytest.mark.parametrize(
    ("manifest", "code", "message"),
    [
        (asking("x", topology={"required": "row"}), "unknown_topology_level", "rack, node"),
        (asking("x", flavors=["B300"]), "unknown_flavor", "the flavours are: "),
        (asking("x", {"gpus": 1, "node": "node-0", "devices": [8]}), "no_such_device", "0 to 7"),
    ],
)
@pytest.mark.parametrize("query", ["", "?plan=true"])
async def test_what_cannot_be_right_is_refused_with_what_there_is(
    server: Server, manifest: dict[str, Any], code: str, message: str, query: str
) -> None:
    status, problem = await server.call("POST", f"/v1/jobs{query}", manifest)
    assert (status, problem["code"]) == (422, code), problem
    assert message in problem["detail"]


async def test_a_job_that_is_set_aside_is_shown_everywhere_and_stops_nothing(
    server: Server,
) -> None:
    hopeless = asking("hopeless", selector={"zone": "z"})
    _, planned = await server.call("POST", "/v1/jobs?plan=true", hopeless)
    assert [reason["code"] for reason in planned["reasons"]] == ["no_matching_node"]
    assert (planned["starts_now"], planned["place_in_queue"]) == (False, None)
    assert planned["forecast"] is None

    await server.call("POST", "/v1/jobs", hopeless)
    await server.call("POST", "/v1/jobs", native("next"))
    await server.settled()

    _, listed = await server.call("GET", "/v1/jobs?phase=Unschedulable")
    assert [job["name"] for job in listed["items"]] == ["hopeless"]
    assert listed["items"][0]["reason"] == "no_matching_node"
    _, detail = await server.call("GET", "/v1/jobs/default/hopeless")
    assert detail["obstacle"]["selector"] == [["zone", "z"]]
    _, why = await server.call("GET", "/v1/jobs/default/hopeless/why")
    assert (why["phase"], why["place_in_queue"]) == ("Unschedulable", None)
    assert "zone=z" in why["summary"]
    assert why["forecast"] is None
    _, after = await server.call("GET", "/v1/jobs/default/next")
    assert after["job"]["phase"] == "Running"
    _, queue = await server.call("GET", "/v1/queues/default")
    assert (queue["jobs_waiting"], queue["jobs_unschedulable"]) == (0, 1)


async def test_a_gang_that_needs_a_cordoned_node_is_back_when_that_takes_work(
    server: Server,
) -> None:
    await server.call("POST", "/v1/nodes/node-1/cordon")
    await server.call("POST", "/v1/jobs", native("whole", replicas=2, gpus=8))
    await server.settled()
    _, aside = await server.call("GET", "/v1/jobs/default/whole")
    assert aside["job"]["phase"] == "Unschedulable"
    assert aside["obstacle"]["remedy"] == "nodes"
    await server.call("POST", "/v1/nodes/node-1/uncordon")
    await server.settled()
    _, back = await server.call("GET", "/v1/jobs/default/whole")
    assert (back["job"]["phase"], back["obstacle"]) == ("Running", None)
    _, events = await server.call("GET", "/v1/jobs/default/whole/events")
    kinds = [event["type"] for event in events["items"]]
    assert kinds[:4] == ["JobSubmitted", "JobUnschedulable", "JobSchedulable", "GangPlaced"]
