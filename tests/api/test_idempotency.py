"""The same key again: done once, and the first answer."""

import asyncio
from typing import Any

import pytest

from tests.api.stand_in import Server, native


def key(value: str) -> dict[str, Any]:
    return {"headers": {"Idempotency-Key": value}}


async def test_a_repeated_submission_makes_one_job(server: Server) -> None:
    status, first = await server.call("POST", "/v1/jobs", native("train"), **key("k1"))
    assert status == 201
    status, again = await server.call("POST", "/v1/jobs", native("train"), **key("k1"))
    assert (status, again["job"]["id"]) == (200, first["job"]["id"])
    _, page = await server.call("GET", "/v1/jobs")
    assert len(page["items"]) == 1


async def test_many_at_once_with_one_key_make_one_job(server: Server) -> None:
    calls = [server.call("POST", "/v1/jobs", native("train"), **key("k")) for _ in range(20)]
    answers = await asyncio.gather(*calls)
    assert sorted({status for status, _ in answers}) == [200, 201]
    assert [status for status, _ in answers].count(201) == 1
    assert len({detail["job"]["id"] for _, detail in answers}) == 1


async def test_without_a_key_the_same_name_is_refused(server: Server) -> None:
    await server.call("POST", "/v1/jobs", native("train"))
    status, problem = await server.call("POST", "/v1/jobs", native("train"))
    assert (status, problem["code"]) == (409, "name_taken")


async def test_the_first_answer_comes_even_when_the_job_is_gone(server: Server) -> None:
    _, first = await server.call("POST", "/v1/jobs", native("train", suspend=True), **key("k"))
    await server.call("DELETE", "/v1/jobs/default/train")
    await server.settled()
    assert (await server.call("GET", "/v1/jobs/default/train"))[0] == 404
    status, again = await server.call("POST", "/v1/jobs", native("train", suspend=True), **key("k"))
    assert status == 200
    assert again["job"]["id"] == first["job"]["id"]
    assert again["job"]["phase"] == "Suspended"


async def test_a_key_outlives_the_engine(server: Server) -> None:
    await server.call("POST", "/v1/jobs", native("train"), **key("k"))
    await server.stop_engine()
    await server.lead()
    assert (await server.call("POST", "/v1/jobs", native("train"), **key("k")))[0] == 200


async def test_a_refusal_does_not_use_a_key_up(server: Server) -> None:
    status, _ = await server.call("POST", "/v1/jobs", native("train", gpus=99), **key("k"))
    assert status == 422
    assert (await server.call("POST", "/v1/jobs", native("train"), **key("k")))[0] == 201


JOB = "/v1/jobs/default/train"
OTHER = [
    ("POST", "/v1/jobs", native("other")),
    ("POST", "/v1/jobs", native("train", gpus=2)),
    ("POST", "/v1/jobs", native("train", suspend=True)),
    ("POST", f"{JOB}/cancel", None),
    ("POST", f"{JOB}/suspend", None),
    ("POST", f"{JOB}/scale", {"role": "worker", "replicas": 2}),
    ("PATCH", JOB, {"ttl_s": 60}),
    ("DELETE", JOB, None),
    ("POST", "/v1/nodes/node-0/cordon", None),
    ("PUT", "/v1/queues/new", {"gpus_max": 1}),
]


@pytest.mark.parametrize(("method", "path", "body"), OTHER)
async def test_a_key_of_another_request_is_refused(
    server: Server, method: str, path: str, body: Any
) -> None:
    await server.call("POST", "/v1/jobs", native("train"), **key("k"))
    await server.settled()
    before = await server.log.head()
    status, problem = await server.call(method, path, body, **key("k"))
    assert (status, problem["code"]) == (409, "idempotency_key_reused")
    await server.settled()
    assert await server.log.head() == before


CHANGES = [
    ("POST", f"{JOB}/cancel", None, 200),
    ("POST", f"{JOB}/suspend", None, 200),
    ("POST", f"{JOB}/scale", {"role": "worker", "replicas": 2}, 200),
    ("PATCH", JOB, {"ttl_s": 60}, 200),
    ("DELETE", JOB, None, 202),
    ("POST", "/v1/nodes/node-0/cordon", None, 200),
    ("PUT", "/v1/queues/new", {"gpus_max": 1}, 200),
]


@pytest.mark.parametrize(("method", "path", "body", "expected"), CHANGES)
async def test_a_repeated_change_changes_nothing_more(
    server: Server, method: str, path: str, body: Any, expected: int
) -> None:
    await server.call("POST", "/v1/jobs", native("train"))
    await server.settled()
    assert (await server.call(method, path, body, **key("k")))[0] == expected
    before = await server.log.head()
    status, _ = await server.call(method, path, body, **key("k"))
    assert status in (expected, 204)
    # The cluster goes on reporting, but no second command is recorded.
    await server.settled()
    rows = await server.log.read(before.position, 100)
    assert [row for row in rows if row.cause] == []


async def test_a_key_of_one_job_is_refused_for_another_job(server: Server) -> None:
    for name in ("train", "other"):
        await server.call("POST", "/v1/jobs", native(name))
    assert (await server.call("POST", f"{JOB}/cancel", **key("k")))[0] == 200
    status, problem = await server.call("POST", "/v1/jobs/default/other/cancel", **key("k"))
    assert (status, problem["code"]) == (409, "idempotency_key_reused")
    _, detail = await server.call("GET", "/v1/jobs/default/other")
    assert detail["job"]["phase"] != "Cancelled"


async def test_a_repeated_deletion_spares_a_new_job_of_that_name(server: Server) -> None:
    await server.call("POST", "/v1/jobs", native("train"))
    await server.settled()
    assert (await server.call("DELETE", JOB, **key("k")))[0] == 202
    await server.settled()
    await server.call("POST", "/v1/jobs", native("train"))
    assert (await server.call("DELETE", JOB, **key("k")))[0] == 204
    assert (await server.call("GET", JOB))[0] == 200


async def test_a_key_of_a_change_is_refused_for_another_change(server: Server) -> None:
    await server.call("POST", "/v1/jobs", native("train"))
    scale = {"role": "worker", "replicas": 2}
    assert (await server.call("POST", f"{JOB}/scale", scale, **key("k")))[0] == 200
    scale["replicas"] = 3
    status, problem = await server.call("POST", f"{JOB}/scale", scale, **key("k"))
    assert (status, problem["code"]) == (409, "idempotency_key_reused")
    status, problem = await server.call("POST", f"{JOB}/cancel", **key("k"))
    assert (status, problem["code"]) == (409, "idempotency_key_reused")
    assert (await server.call("PATCH", JOB, {"ttl_s": 60}, **key("l")))[0] == 200
    assert (await server.call("PATCH", JOB, {"ttl_s": 60}, **key("l")))[0] == 200
    status, problem = await server.call("PATCH", JOB, {"ttl_s": 61}, **key("l"))
    assert (status, problem["code"]) == (409, "idempotency_key_reused")
