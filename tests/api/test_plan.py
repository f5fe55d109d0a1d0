"""What would become of a job, and that asking stores nothing."""

from typing import Any

import pytest

from adapters.simulated_cluster.workload import workload_of
from controlplane.model.errors import Rejected
from controlplane.model.spec import JobSpec
from tests.api.stand_in import Server, native


async def plan(server: Server, manifest: dict[str, Any]) -> Any:
    before = await server.log.head()
    status, answer = await server.call("POST", "/v1/jobs?plan=true", manifest)
    assert status == 200, answer
    assert await server.log.head() == before
    return answer


async def test_a_job_that_fits_would_start_now_and_here(server: Server) -> None:
    planned = await plan(server, native("train", replicas=2, gpus=4))
    assert planned["starts_now"]
    assert [rank["node"] for rank in planned["ranks"]] == ["node-0", "node-0"]
    assert [rank["devices"] for rank in planned["ranks"]] == [[0, 1, 2, 3], [4, 5, 6, 7]]


async def test_the_spec_is_shown_with_every_default(server: Server) -> None:
    planned = await plan(server, native("train"))
    assert planned["spec"]["restart"]["limit"] == 6
    assert planned["spec"]["roles"][0]["restart"] == "OnFailure"
    assert planned["spec"]["queue"] == "default"


async def test_a_job_without_room_would_wait(server: Server) -> None:
    await server.call("POST", "/v1/jobs", native("first", gpus=8))
    planned = await plan(server, native("train", replicas=2, gpus=8))
    assert not planned["starts_now"]
    assert planned["place_in_queue"] == 1
    assert planned["reasons"] == [
        {
            "code": "insufficient_capacity",
            "message": "it needs 16 GPUs; 8 are free",
            "tier": "shape",
            "needed": 16,
            "available": 8,
            "by_domain": {},
            "helps": "8 more GPUs become free",
            "limit": None,
            "until": None,
        }
    ]


async def test_a_job_behind_others_would_wait_for_them(server: Server) -> None:
    await server.call("POST", "/v1/jobs", native("first", gpus=8))
    await server.call("POST", "/v1/jobs", native("second", replicas=2, gpus=8))
    planned = await plan(server, native("train", gpus=1))
    assert (planned["place_in_queue"], planned["ahead"]) == (2, ["default/second"])
    assert planned["reasons"][0]["code"] == "blocked_by_head"


async def test_a_more_urgent_job_would_go_first(server: Server) -> None:
    await server.call("POST", "/v1/jobs", native("first", gpus=8))
    await server.call("POST", "/v1/jobs", native("second", replicas=2, gpus=8))
    assert (await plan(server, native("train", gpus=1, priority=10)))["starts_now"]


async def test_a_full_queue_is_a_reason_too(server: Server) -> None:
    await server.call("PUT", "/v1/queues/small", {"gpus_max": 4})
    await server.call("POST", "/v1/jobs", native("first", gpus=3, queue="small"))
    planned = await plan(server, native("train", gpus=2, queue="small"))
    assert planned["reasons"][0]["code"] == "queue_limit"
    assert planned["reasons"][0]["available"] == 1


async def test_scattered_gpus_are_distinguished_from_too_few(server: Server) -> None:
    await server.call("POST", "/v1/jobs", native("first", gpus=4))
    await server.call("POST", "/v1/jobs", native("second", gpus=5))
    planned = await plan(server, native("train", gpus=6))
    assert "not 6 on one node for every rank" in planned["reasons"][0]["message"]


async def test_a_suspended_job_would_stay_so(server: Server) -> None:
    planned = await plan(server, native("train", suspend=True))
    assert not planned["starts_now"]
    assert "suspended" in planned["summary"]


async def test_a_plan_is_refused_for_what_a_submission_is_refused(server: Server) -> None:
    status, problem = await server.call("POST", "/v1/jobs?plan=true", native("train", gpus=9))
    assert (status, problem["code"]) == (422, "can_never_fit")


async def test_what_the_cluster_cannot_run_is_refused_before_it_is_submitted(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cluster's own knowledge, asked for a plan and for a submission alike."""

    def vet(spec: JobSpec) -> Rejected | None:
        if workload_of(spec).training is None:
            return None
        return Rejected("invalid_job", "no such model", field="spec.workload.training.model")

    monkeypatch.setattr(server.cluster, "vet", vet, raising=False)
    manifest = native("train")
    assert (await plan(server, manifest))["starts_now"]
    manifest["spec"]["workload"] = {"training": {"model": "nonesuch"}}
    before = await server.log.head()
    for path in ("/v1/jobs?plan=true", "/v1/jobs", "/v1/studies/forecast"):
        status, problem = await server.call("POST", path, manifest)
        assert (status, problem["code"]) == (422, "invalid_job"), path
    assert await server.log.head() == before
