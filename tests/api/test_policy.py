"""Queues with quotas, and the policy, over HTTP; what decided is in the log."""

from controlplane.audit.redecide import DecisionVerifier
from controlplane.log.codec import from_row
from controlplane.model import commands as c
from controlplane.state.world import World
from tests.api.stand_in import Server, native


async def test_a_policy_is_set_shown_and_kept_as_an_event(server: Server) -> None:
    status, answer = await server.call("GET", "/v1/policy")
    assert (status, answer["discipline"]) == (200, "fifo")

    wanted = {"discipline": "easy", "levels": ["block", "rack"]}
    status, answer = await server.call("PUT", "/v1/policy", wanted)
    assert (status, answer["discipline"], answer["levels"]) == (
        200,
        "easy",
        ["block", "rack"],
    )

    _, page = await server.call("GET", "/v1/events?after=0")
    kinds = [event["type"] for event in page["items"]]
    assert "PolicySet" in kinds


async def test_a_policy_that_makes_no_sense_is_refused(server: Server) -> None:
    status, problem = await server.call("PUT", "/v1/policy", {"packing": "sideways"})
    assert (status, problem["code"]) == (422, "invalid_policy")
    status, problem = await server.call("PUT", "/v1/policy", {"disciplin": "fifo"})
    assert (status, problem["code"]) == (422, "invalid_body")


async def test_a_limit_on_starts_delays_gangs_with_that_reason(server: Server) -> None:
    limit = {"starts_per_cycle_max": 1, "cycle_s": 3600.0}
    status, answer = await server.call("PUT", "/v1/policy", limit)
    assert (status, answer["starts_per_cycle_max"], answer["cycle_s"]) == (200, 1, 3600.0)
    for name in ("one", "two"):
        await server.call("POST", "/v1/jobs", native(name, gpus=1))

    _, answer = await server.call("GET", "/v1/jobs/default/two/why")
    reason = answer["reasons"][0]
    assert (reason["code"], reason["limit"]) == ("starts_limited", 1)
    assert reason["until"] > 0
    status, answer = await server.call("PUT", "/v1/policy", {"starts_per_cycle_max": 0})
    assert (status, answer["code"]) == (422, "invalid_policy")

    await server.call("PUT", "/v1/policy", {})
    _, answer = await server.call("GET", "/v1/jobs/default/two")
    assert answer["job"]["phase"] != "Queued"


async def test_a_large_gang_waits_for_the_nodes_of_an_autoscaler(server: Server) -> None:
    large = native("large", replicas=100, gpus=8)
    assert (await server.call("POST", "/v1/jobs", large))[1]["code"] == "can_never_fit"
    await server.call("PUT", "/v1/policy", {"autoscaled": True})
    assert (await server.call("POST", "/v1/jobs", large))[0] == 201
    _, shown = await server.call("GET", "/v1/jobs/default/large")
    assert shown["job"]["phase"] == "Unschedulable"
    assert shown["obstacle"]["remedy"] == "nodes"


async def test_a_queue_has_quota_and_a_parent(server: Server) -> None:
    await server.call("PUT", "/v1/queues/lab", {})
    body = {"nominal": 4, "parent": "lab", "borrow_max": 2, "preempt": {"reclaim": "any"}}
    status, answer = await server.call("PUT", "/v1/queues/research", body)
    assert status == 200
    assert (answer["nominal"], answer["parent"], answer["borrow_max"]) == (4, "lab", 2)
    assert answer["preempt"] == {"reclaim": "any"}

    status, answer = await server.call("PUT", "/v1/queues/lab", {"parent": "research"})
    assert (status, answer["code"]) == (422, "invalid_queue")
    status, answer = await server.call("PUT", "/v1/queues/other", {"parent": "nowhere"})
    assert (status, answer["code"]) == (422, "invalid_queue")


async def test_a_queue_in_use_cannot_be_removed(server: Server) -> None:
    await server.call("PUT", "/v1/queues/lab", {})
    await server.call("PUT", "/v1/queues/research", {"parent": "lab"})
    assert (await server.call("DELETE", "/v1/queues/lab"))[1]["code"] == "queue_in_use"
    assert (await server.call("DELETE", "/v1/queues/research"))[0] == 204
    assert (await server.call("DELETE", "/v1/queues/lab"))[0] == 204
    assert (await server.call("DELETE", "/v1/queues/default"))[1]["code"] == "invalid_queue"


async def test_names_of_other_namespaces_are_not_shown(server: Server) -> None:
    secret = native("secret-project", replicas=2, gpus=8)
    secret["metadata"]["namespace"] = "other"
    await server.call("POST", "/v1/jobs", native("holder", gpus=8))
    await server.call("POST", "/v1/jobs", secret)
    await server.call("POST", "/v1/jobs", native("mine", gpus=1))
    _, answer = await server.call("GET", "/v1/jobs/default/mine/why")
    assert answer["ahead"] == ["(another namespace)"]
    assert "secret-project" not in str(answer)


async def test_a_drained_node_lets_its_gangs_go(server: Server) -> None:
    await server.call("POST", "/v1/jobs", native("train", gpus=8))
    _, job = await server.call("GET", "/v1/jobs/default/train")
    node = job["attempt"]["ranks"][0]["node"]
    status, answer = await server.call("POST", f"/v1/nodes/{node}/drain")
    assert (status, answer["cordoned"]) == (200, True)
    _, job = await server.call("GET", "/v1/jobs/default/train")
    assert job["restarts"][0]["cause"] == "preemption"
    assert "drained" in job["restarts"][0]["message"]


async def test_a_node_is_forgotten_only_when_it_does_not_answer(server: Server) -> None:
    await server.call("POST", "/v1/jobs", native("train", gpus=8))
    _, job = await server.call("GET", "/v1/jobs/default/train")
    node = job["attempt"]["ranks"][0]["node"]
    path, key = f"/v1/nodes/{node}/forget", {"Idempotency-Key": "once"}
    status, problem = await server.call("POST", path)
    assert (status, problem["code"]) == (409, "node_is_up")

    server.engine_client.engine.submit(c.ReportNodeLost(node=node, detail="silent"))
    await server.settled()
    for _ in range(2):
        status, _ = await server.call("POST", path, headers=key)
        assert status == 200
    _, job = await server.call("GET", "/v1/jobs/default/train")
    assert job["restarts"][0]["cause"] == "node_lost"
    status, problem = await server.call("POST", path)
    assert (status, problem["code"]) == (404, "no_such_node")
    # Decision again, the log comes out the same.
    verifier = DecisionVerifier(World())
    verifier.take([from_row(row) for row in await server.log.read(0, 10_000)])
    verifier.finish()
