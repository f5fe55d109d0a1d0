"""Changes to many jobs at once, and running a job once more."""

import pytest

from tests.api.stand_in import Server, native


async def three(server: Server) -> None:
    for number in range(3):
        await server.call("POST", "/v1/jobs", native(f"train-{number}", gpus=8))
    await server.settled()


async def test_every_job_has_its_own_result(server: Server) -> None:
    await three(server)
    body = {"action": "cancel", "jobs": ["default/train-0", "default/none", "train-2", "train-2"]}
    status, results = await server.call("POST", "/v1/jobs/bulk", body)
    assert status == 200, results
    assert (results["done"], results["refused"]) == (2, 1)
    assert [(item["job"], item["done"], item["code"]) for item in results["items"]] == [
        ("default/train-0", True, ""), ("default/none", False, "no_such_job"), ("train-2", True, ""),
    ]  # fmt: skip
    _, jobs = await server.call("GET", "/v1/jobs?phase=Cancelled")
    assert {job["name"] for job in jobs["items"]} == {"train-0", "train-2"}


async def test_the_same_key_does_it_once(server: Server) -> None:
    await three(server)
    body = {"action": "suspend", "jobs": ["default/train-0"]}
    headers = {"Idempotency-Key": "one"}
    for _ in range(2):
        _, results = await server.call("POST", "/v1/jobs/bulk", body, headers=headers)
        assert results["done"] == 1
    _, events = await server.call("GET", "/v1/jobs/default/train-0/events")
    assert [event["type"] for event in events["items"]].count("JobSuspended") == 1


async def test_many_waiting_jobs_get_another_priority(server: Server) -> None:
    await three(server)
    body = {"action": "amend", "jobs": ["default/train-2", "default/train-0"], "priority": 7}
    _, results = await server.call("POST", "/v1/jobs/bulk", body)
    assert [item["code"] for item in results["items"]] == ["", "cannot_change"]
    assert "only while it waits" in results["items"][1]["message"]


@pytest.mark.parametrize(
    "body",
    [
        {"action": "explode", "jobs": ["a/b"]},
        {"action": "cancel", "jobs": []},
        {"action": "amend", "jobs": ["a/b"]},
        {"action": "cancel", "jobs": ["a/b"] * 1_001},
    ],
)
async def test_what_makes_no_sense_is_refused(server: Server, body: dict) -> None:
    status, problem = await server.call("POST", "/v1/jobs/bulk", body)
    assert (status, problem["code"]) == (422, "invalid_body")


async def test_a_job_runs_once_more_under_another_name(server: Server) -> None:
    await three(server)
    await server.call("POST", "/v1/jobs/default/train-0/cancel")
    await server.settled()
    for name in ("train-0-rerun-1", "train-0-rerun-2"):
        status, detail = await server.call("POST", "/v1/jobs/default/train-0/rerun", {})
        assert (status, detail["job"]["name"]) == (201, name)
    status, detail = await server.call("POST", "/v1/jobs/default/train-0-rerun-1/rerun", {})
    assert detail["job"]["name"] == "train-0-rerun-3"
    _, first = await server.call("GET", "/v1/jobs/default/train-0")
    assert detail["spec"] == first["spec"]
    status, detail = await server.call("POST", "/v1/jobs/default/train-0/rerun", {"name": "again"})
    assert (status, detail["job"]["name"]) == (201, "again")
    status, problem = await server.call("POST", "/v1/jobs/default/train-0/rerun", {"name": "again"})
    assert (status, problem["code"]) == (409, "name_taken")
    status, problem = await server.call("POST", "/v1/jobs/default/none/rerun", {})
    assert (status, problem["code"]) == (404, "no_such_job")
