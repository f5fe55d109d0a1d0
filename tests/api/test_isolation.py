"""What raises for one job must not hide the others from people."""

from typing import Any

import pytest

from api import job_list
from controlplane.job import Job
from tests.api.stand_in import Server, native


async def test_a_job_that_cannot_be_shown_does_not_hide_the_others(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("good", "odd", "fine"):
        await server.call("POST", "/v1/jobs", native(name))
    view = job_list.job_view

    def planted(job: Job) -> Any:
        if job.name == "odd":
            raise IndexError("which rank?")
        return view(job)

    monkeypatch.setattr(job_list, "job_view", planted)
    status, page = await server.call("GET", "/v1/jobs")

    assert status == 200
    assert [job["name"] for job in page["items"]] == ["good", "odd", "fine"]
    assert [job["reason"] for job in page["items"]][1] == "platform_error"
    assert "IndexError: which rank?" in page["items"][1]["message"]


async def test_a_cluster_that_raises_for_logs_is_told_with_its_error(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    await server.call("POST", "/v1/jobs", native("train"))
    await server.settled()

    async def planted(job: Job, rank: int, lines_max: int) -> list[str]:
        raise KeyError("pod")

    monkeypatch.setattr(server.cluster, "logs", planted)
    status, problem = await server.call("GET", "/v1/jobs/default/train/logs")

    assert (status, problem["code"]) == (500, "platform_error")
    assert "KeyError" in problem["detail"]


async def test_a_listener_that_raises_keeps_no_other_from_hearing(server: Server) -> None:
    heard: list[int] = []

    def raises(batch: Any, world: Any) -> None:
        raise RuntimeError("I cannot listen")

    server.control.listen(raises)
    server.control.listen(lambda batch, world: heard.append(len(batch)))
    status, _ = await server.call("POST", "/v1/jobs", native("train"))

    assert status == 201
    assert heard
