"""Arrays and dependencies over HTTP."""

import pytest

from tests.api.stand_in import Server, native

SWEEP = "/v1/jobs/default/sweep"


def array(text: str = "0-3%2", **spec: object) -> dict:
    manifest = native("sweep", gpus=1)
    manifest["spec"] |= {"array": text, **spec}
    return manifest


def waiting(*after: object, name: str = "train") -> dict:
    manifest = native(name, gpus=1)
    manifest["spec"]["after"] = list(after)
    return manifest


async def test_an_array_is_one_row_with_counts(server: Server) -> None:
    status, detail = await server.call("POST", "/v1/jobs", array())
    assert status == 201
    assert detail["job"]["array"]["total"] == 4
    await server.settled()
    status, page = await server.call("GET", "/v1/jobs")
    assert [job["name"] for job in page["items"]] == ["sweep"]
    row = page["items"][0]
    assert (row["phase"], row["array"]["running"], row["array"]["pending"]) == ("Running", 2, 2)
    status, page = await server.call("GET", "/v1/jobs?array=sweep")
    assert [job["name"] for job in page["items"]] == ["sweep-0", "sweep-1"]
    status, page = await server.call("GET", "/v1/jobs?members=true&phase=Running")
    assert [job["name"] for job in page["items"]] == ["sweep", "sweep-0", "sweep-1"]


async def test_an_index_is_addressed_in_two_ways(server: Server) -> None:
    await server.call("POST", "/v1/jobs", array())
    for name in ("sweep-1", "sweep%5B1%5D"):
        status, detail = await server.call("GET", f"/v1/jobs/default/{name}")
        assert (status, detail["job"]["index"]) == (200, 1)
        assert detail["job"]["owner"] == "default/sweep"
    status, rank = await server.call("GET", "/v1/jobs/default/sweep-1/ranks/0")
    assert rank["environment"]["env"]["MUSTER_ARRAY_INDEX"] == "1"
    status, detail = await server.call("GET", SWEEP)
    assert detail["indices"]["pending"] == "2-3"
    assert detail["spec"]["array"] == "0-3%2"


async def test_requests_reach_the_whole_array(server: Server) -> None:
    await server.call("POST", "/v1/jobs", array())
    await server.settled()
    status, detail = await server.call("POST", f"{SWEEP}/suspend")
    assert (status, detail["job"]["phase"]) == (200, "Suspended")
    assert detail["job"]["array"]["suspended"] == 2
    status, detail = await server.call("POST", f"{SWEEP}/resume")
    assert status == 200
    status, detail = await server.call("POST", f"{SWEEP}/cancel")
    assert (status, detail["job"]["phase"]) == (200, "Cancelled")
    status, why = await server.call("GET", f"{SWEEP}/why")
    assert "4 indices" in why["summary"]
    status, _ = await server.call("GET", f"{SWEEP}/events")
    assert status == 200


async def test_failed_indices_are_retried(server: Server) -> None:
    await server.call("POST", "/v1/jobs", array())
    await server.settled()
    await server.call("POST", "/v1/jobs/default/sweep-0/cancel")
    status, _ = await server.call("POST", f"{SWEEP}/retry", {"indices": "0"})
    assert status == 200
    status, problem = await server.call("POST", f"{SWEEP}/retry", {"indices": "0"})
    assert (status, problem["code"]) == (409, "nothing_to_retry")
    status, problem = await server.call("POST", f"{SWEEP}/retry", {"indices": "x"})
    assert (status, problem["code"]) == (422, "invalid_body")


async def test_a_job_waits_for_another_with_that_reason(server: Server) -> None:
    await server.call("POST", "/v1/jobs", native("prep", gpus=1))
    status, detail = await server.call("POST", "/v1/jobs", waiting("prep"))
    assert (status, detail["job"]["waits_for"]) == (201, ["default/prep"])
    status, why = await server.call("GET", "/v1/jobs/default/train/why?forecast=false")
    assert [reason["code"] for reason in why["reasons"]] == ["waiting_for_dependency"]
    assert "default/prep" in why["summary"]


async def test_a_plan_knows_dependencies_and_arrays(server: Server) -> None:
    status, plan = await server.call("POST", "/v1/jobs?plan=true&forecast=false", array())
    assert (status, plan["name"]) == (200, "sweep")
    assert "array of 4 jobs, at most 2 at a time" in plan["summary"]
    path = "/v1/jobs?plan=true&forecast=false"
    status, problem = await server.call("POST", path, waiting("prep"))
    assert (status, problem["code"]) == (422, "unknown_dependency")
    status, plan = await server.call("POST", f"{path}&before=default/prep", waiting("prep"))
    assert status == 200


@pytest.mark.parametrize(
    ("manifest", "code"),
    [
        (waiting("nothing"), "unknown_dependency"),
        (waiting("train"), "dependency_cycle"),
        (waiting({"job": "x", "condition": "later"}), "invalid_manifest"),
        (array("9-1"), "invalid_manifest"),
        (array("0-10000"), "invalid_manifest"),
    ],
)
async def test_refusals_have_codes(server: Server, manifest: dict, code: str) -> None:
    status, problem = await server.call("POST", "/v1/jobs", manifest)
    assert (status, problem["code"]) == (422, code)


async def test_what_is_asked_of_jobs_is_refused_for_arrays_and_members(server: Server) -> None:
    await server.call("POST", "/v1/jobs", array())
    for method, path, body, code in (
        ("GET", f"{SWEEP}/logs", None, "is_array"),
        ("PATCH", SWEEP, {"ttl_s": 5}, "not_for_arrays"),
        ("POST", f"{SWEEP}/scale", {"role": "Worker", "replicas": 2}, "not_for_arrays"),
        ("DELETE", "/v1/jobs/default/sweep-0", None, "owned_job"),
        ("POST", "/v1/jobs/default/sweep-0/retry", {}, "not_an_array"),
    ):
        status, problem = await server.call(method, path, body)
        assert (status, problem["code"]) == (409, code), path
    status, problem = await server.call("GET", "/v1/jobs/default/sweep-3")
    assert (status, problem["code"]) == (404, "no_such_job")
    assert "not submitted yet" in problem["detail"]


async def test_a_deleted_array_takes_its_jobs_with_it(server: Server) -> None:
    await server.call("POST", "/v1/jobs", array(suspend=True))
    status, _ = await server.call("DELETE", SWEEP)
    assert status in (202, 204)
    await server.settled()
    status, page = await server.call("GET", "/v1/jobs?members=true")
    assert page["items"] == []
