"""Jobs over HTTP: every route when all goes well."""

import json

import pytest
import yaml

from tests.api.stand_in import START, Server, native, pytorch, serving


async def test_a_submitted_job_is_there_and_running(server: Server) -> None:
    status, detail = await server.call("POST", "/v1/jobs", native("train", gpus=4))
    assert status == 201
    assert detail["job"]["id"].startswith("j")
    assert detail["job"]["submitted_at"] >= START
    await server.settled()
    status, detail = await server.call("GET", "/v1/jobs/default/train")
    assert status == 200
    assert detail["job"]["phase"] == "Running"
    assert detail["attempt"]["ranks"][0]["state"] == "Running"


async def test_the_answer_to_a_submission_has_the_address_of_the_job(server: Server) -> None:
    async with server.session.post(f"{server.url}/v1/jobs", json=pytorch("train")) as answer:
        assert answer.status == 201
        assert answer.headers["Location"] == "/v1/jobs/team-a/train"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
    status, _ = await server.call("GET", answer.headers["Location"])
    assert status == 200


@pytest.mark.parametrize("media", ["application/yaml", "application/x-yaml", "text/yaml"])
async def test_a_manifest_may_be_yaml(server: Server, media: str) -> None:
    body = yaml.safe_dump(json.loads(json.dumps(pytorch("train", workers=2))))
    status, detail = await server.call(
        "POST", "/v1/jobs", data=body, headers={"Content-Type": f"{media}; charset=utf-8"}
    )
    assert status == 201
    assert detail["job"]["kind"] == "PyTorchJob"
    assert detail["job"]["ranks"] == 3


async def test_a_large_yaml_manifest_is_taken_too(server: Server) -> None:
    manifest = native("train")
    manifest["metadata"]["annotations"] = {f"note-{i}": "x" * 100 for i in range(1_000)}
    body = yaml.safe_dump(manifest)
    assert len(body) > 100_000
    status, _ = await server.call(
        "POST", "/v1/jobs", data=body, headers={"Content-Type": "application/yaml"}
    )
    assert status == 201


async def test_a_suspended_manifest_waits_to_be_resumed(server: Server) -> None:
    status, detail = await server.call("POST", "/v1/jobs", native("train", suspend=True))
    assert (status, detail["job"]["phase"]) == (201, "Suspended")
    status, detail = await server.call("POST", "/v1/jobs/default/train/resume")
    assert status == 200
    assert detail["job"]["phase"] in ("Queued", "Starting")


async def test_limits_change_while_the_rest_stays(server: Server) -> None:
    job = "/v1/jobs/default/train"
    await server.call("POST", "/v1/jobs", native("train", ttl_s=60, clean="All"))
    status, detail = await server.call("PATCH", job, {"active_deadline_s": 90, "restart_limit": 2})
    assert status == 200
    kept = detail["spec"]
    assert (kept["ttl_s"], kept["clean"], kept["active_deadline_s"]) == (60, "All", 90)
    assert kept["restart"]["limit"] == 2
    _, detail = await server.call("PATCH", job, {"ttl_s": None})
    assert detail["spec"].get("ttl_s") is None
    status, problem = await server.call("PATCH", job, {"suspend": True})
    assert (status, problem["code"], problem["field"]) == (409, "cannot_change", "suspend")
    assert ".../suspend" in problem["detail"]


async def test_suspend_scale_cancel_and_delete(server: Server) -> None:
    await server.call("POST", "/v1/jobs", native("train", replicas=2))
    await server.settled()
    job = "/v1/jobs/default/train"
    status, detail = await server.call("POST", f"{job}/suspend")
    assert (status, detail["job"]["phase"]) == (200, "Suspended")
    status, detail = await server.call("POST", f"{job}/scale", {"role": "worker", "replicas": 3})
    assert (status, detail["job"]["ranks"]) == (200, 3)
    status, detail = await server.call("POST", f"{job}/cancel")
    assert (status, detail["job"]["phase"]) == (200, "Cancelled")
    await server.settled()
    status, nothing = await server.call("DELETE", job)
    assert (status, nothing) == (204, "")
    status, problem = await server.call("GET", job)
    assert (status, problem["code"]) == (404, "no_such_job")


async def test_deleting_a_running_job_reports_that_it_is_under_way(server: Server) -> None:
    await server.call("POST", "/v1/jobs", native("train"))
    await server.settled()
    status, detail = await server.call("DELETE", "/v1/jobs/default/train")
    assert (status, detail["job"]["deleting"]) == (202, True)
    await server.settled()
    status, _ = await server.call("GET", "/v1/jobs/default/train")
    assert status == 404


async def test_why_shows_what_a_job_waits_for(server: Server) -> None:
    await server.call("POST", "/v1/jobs", native("first", replicas=2, gpus=8))
    await server.call("POST", "/v1/jobs", native("second", gpus=8))
    await server.call("POST", "/v1/jobs", native("third", gpus=1))
    _, why = await server.call("GET", "/v1/jobs/default/third/why")
    assert why["place_in_queue"] == 2
    assert why["ahead"] == ["default/second"]
    assert [reason["code"] for reason in why["reasons"]] == [
        "blocked_by_head",
        "insufficient_capacity",
    ]


async def test_logs_are_the_last_lines_of_a_rank(server: Server) -> None:
    await server.call("POST", "/v1/jobs", native("train", replicas=2))
    status, logs = await server.call("GET", "/v1/jobs/default/train/logs?rank=1&tail=2")
    assert status == 200
    assert logs["lines"] == ["train rank 1 line 198", "train rank 1 line 199"]
    assert (logs["rank"], logs["attempt"]) == (1, 1)


async def test_a_job_that_never_ran_has_no_lines(server: Server) -> None:
    await server.call("POST", "/v1/jobs", native("train", suspend=True))
    _, logs = await server.call("GET", "/v1/jobs/default/train/logs")
    assert (logs["lines"], logs["attempt"]) == ([], 0)


async def test_nodes_are_cordoned_and_uncordoned(server: Server) -> None:
    status, node = await server.call("POST", "/v1/nodes/node-0/cordon")
    assert (status, node["cordoned"]) == (200, True)
    status, again = await server.call("POST", "/v1/nodes/node-0/cordon")
    assert (status, again) == (200, node)
    status, node = await server.call("POST", "/v1/nodes/node-0/uncordon")
    assert (status, node["cordoned"]) == (200, False)
    assert (await server.call("GET", "/v1/nodes/node-0"))[1] == node


async def test_queues_are_defined_and_changed(server: Server) -> None:
    status, queue = await server.call("PUT", "/v1/queues/research", {"gpus_max": 4})
    assert status == 200
    wanted = {"name": "research", "gpus_max": 4, "gpus_used": 0, "jobs_waiting": 0}
    assert queue.items() >= wanted.items()
    await server.call("POST", "/v1/jobs", native("train", gpus=4, queue="research"))
    await server.call("PUT", "/v1/queues/research", {"gpus_max": None})
    _, queue = await server.call("GET", "/v1/queues/research")
    assert (queue["gpus_max"], queue["gpus_used"]) == (None, 4)
    _, page = await server.call("GET", "/v1/queues")
    assert [each["name"] for each in page["items"]] == ["default", "research"]


async def test_the_actor_of_a_command_is_in_the_log(server: Server) -> None:
    await server.call("POST", "/v1/jobs", native("train"))
    _, page = await server.call("GET", "/v1/jobs/default/train/events")
    assert page["items"][0]["actor"] == "local"


async def test_an_event_has_a_sentence(server: Server) -> None:
    await server.call("POST", "/v1/jobs", native("train", gpus=2))
    _, page = await server.call("GET", "/v1/jobs/default/train/events")
    assert page["items"][0]["text"] == "submitted to queue default: 1 rank, 2 GPUs"


async def test_without_an_engine_every_answer_reports_it() -> None:
    async with serving(leads=False) as server:
        for method, path in (
            ("GET", "/v1/jobs"),
            ("POST", "/v1/nodes/node-0/cordon"),
            ("GET", "/readyz"),
        ):
            async with server.session.request(method, server.url + path) as answer:
                assert answer.status == 503
                assert answer.headers["Retry-After"] == "1"
                assert (await answer.json(content_type=None))["code"] == "unavailable"
        assert (await server.call("GET", "/healthz"))[0] == 200
        await server.lead()
        assert (await server.call("GET", "/readyz"))[0] == 200


async def test_a_new_engine_takes_over_where_the_old_one_stopped(server: Server) -> None:
    await server.call("POST", "/v1/jobs", native("train"))
    await server.settled()
    await server.stop_engine()
    assert (await server.call("GET", "/v1/jobs/default/train"))[0] == 503
    await server.lead()
    _, detail = await server.call("GET", "/v1/jobs/default/train")
    assert detail["job"]["phase"] == "Running"


async def test_head_is_answered_like_get_without_a_body(server: Server) -> None:
    async with server.session.head(f"{server.url}/v1/jobs") as answer:
        assert (answer.status, await answer.read()) == (200, b"")
    headers = {"Accept": "text/event-stream"}
    async with server.session.head(f"{server.url}/v1/events", headers=headers) as answer:
        assert (answer.status, await answer.read()) == (200, b"")
