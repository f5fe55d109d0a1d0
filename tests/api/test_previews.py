"""Previews: what a change would do, without doing it."""

from typing import Any

import pytest

from controlplane.log.snapshots import state_hash
from tests.api.stand_in import Server, native


async def crowded(server: Server) -> None:
    await server.call("PUT", "/v1/queues/urgent", {"rank": 5})
    for number in range(3):
        await server.call("POST", "/v1/jobs", native(f"train-{number}", gpus=8))
    await server.settled()


def names(jobs: list[dict[str, Any]]) -> list[str]:
    return [job["job"] for job in jobs]


@pytest.fixture
async def busy(server: Server) -> Server:
    await crowded(server)
    return server


async def unchanged(server: Server, method: str, path: str, body: Any = None) -> dict[str, Any]:
    """The preview of a request, which must leave the state as it is."""
    engine = server.engine_client.engine
    assert engine is not None
    before = state_hash(engine.world)
    status, preview = await server.call(method, path, body)
    assert status == 200, preview
    await server.settled()
    assert state_hash(engine.world) == before
    assert preview["position"] == engine.world.position
    return preview


async def test_a_drain_names_the_jobs_that_would_stop(busy: Server) -> None:
    preview = await unchanged(busy, "POST", "/v1/nodes/node-0/drain?dry_run=true")
    _, node = await busy.call("GET", "/v1/nodes/node-0")
    assert node["cordoned"] is False
    assert names(preview["stops"]) == node["jobs"]
    assert preview["starts"] == preview["ends"] == []
    assert "would stop and wait" in preview["summary"][0]


async def test_a_cordon_of_a_busy_node_stops_nothing(busy: Server) -> None:
    preview = await unchanged(busy, "POST", "/v1/nodes/node-0/cordon?dry_run=true")
    assert preview["summary"] == ["Nothing would start or stop because of it."]


async def test_cancelling_a_job_starts_the_next(busy: Server) -> None:
    preview = await unchanged(busy, "POST", "/v1/jobs/default/train-0/cancel?dry_run=true")
    assert names(preview["ends"]) == ["default/train-0"]
    assert names(preview["starts"]) == ["default/train-2"]
    (start,) = preview["starts"]
    assert start["nodes"]
    await busy.call("POST", "/v1/jobs/default/train-0/cancel")
    await busy.settled()
    _, jobs = await busy.call("GET", "/v1/jobs?phase=Running")
    assert {f"default/{job['name']}" for job in jobs["items"]} == {
        "default/train-1",
        "default/train-2",
    }


async def test_a_scale_and_an_amendment_and_a_deletion_are_previewed(busy: Server) -> None:
    body = {"role": "worker", "replicas": 2}
    preview = await unchanged(busy, "POST", "/v1/jobs/default/train-0/scale?dry_run=true", body)
    assert names(preview["stops"]) == ["default/train-0"]
    path = "/v1/jobs/default/train-2?dry_run=true"
    preview = await unchanged(busy, "PATCH", path, {"queue": "urgent"})
    assert preview["starts"] == preview["stops"] == []
    preview = await unchanged(busy, "DELETE", "/v1/jobs/default/train-1?dry_run=true")
    assert names(preview["ends"]) == ["default/train-1"]


async def test_a_ceiling_that_is_lifted_lets_jobs_start(server: Server) -> None:
    await server.call("PUT", "/v1/queues/small", {"gpus_max": 8})
    for number in range(2):
        await server.call("POST", "/v1/jobs", native(f"train-{number}", gpus=8, queue="small"))
    await server.settled()
    preview = await unchanged(server, "PUT", "/v1/queues/small?dry_run=true", {"gpus_max": 16})
    assert names(preview["starts"]) == ["default/train-1"]
    preview = await unchanged(server, "PUT", "/v1/policy?dry_run=true", {})
    assert preview["starts"] == []


async def test_a_plan_says_which_jobs_the_new_one_would_displace(server: Server) -> None:
    await server.call("PUT", "/v1/policy", {"preempt": {"within_queue": "lower"}})
    for number in range(2):
        await server.call("POST", "/v1/jobs", native(f"train-{number}", gpus=8))
    await server.settled()
    path = "/v1/jobs?plan=true&preview=true&forecast=false"
    preview = (await unchanged_plan(server, path, native("vip", gpus=8, priority=10)))["preview"]
    assert names(preview["starts"]) == ["default/vip"]
    assert len(preview["stops"]) == 1
    plain = await unchanged_plan(server, "/v1/jobs?plan=true", native("vip", gpus=8))
    assert plain["preview"] is None


async def unchanged_plan(server: Server, path: str, body: Any) -> dict[str, Any]:
    status, plan = await server.call("POST", path, body)
    assert status == 200, plan
    return plan


async def test_what_would_be_refused_is_refused(busy: Server) -> None:
    for method, path, body, code in (
        ("POST", "/v1/nodes/none-such/drain?dry_run=true", None, "no_such_node"),
        ("POST", "/v1/jobs/default/none-such/cancel?dry_run=true", None, "no_such_job"),
        ("DELETE", "/v1/queues/default?dry_run=true", None, "invalid_queue"),
        ("PUT", "/v1/queues/odd?dry_run=true", {"nominal": 4, "parent": "none"}, "invalid_queue"),
    ):
        status, problem = await busy.call(method, path, body)
        assert (problem.get("code"), status >= 400) == (code, True), problem
