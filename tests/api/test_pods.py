"""Pods over HTTP: where they are and what they write; and that a model of a cluster has none."""

from collections.abc import AsyncIterator

import pytest

from api.jobs.jobs import CLUSTER
from controlplane.lifecycle.job import Job
from controlplane.model.addresses import ServiceNames
from controlplane.ports import RankConsole
from tests.api.stand_in import Server, native


class Addresses(ServiceNames):
    def host(self, rank: int, name: str) -> str:
        return f"10.0.0.{rank}"

    def port(self, rank: int, port: int) -> int:
        return 4000 + rank


class WithPods:
    """The server's cluster, of which rank 0 has a pod."""

    def __init__(self, cluster: object) -> None:
        self._cluster = cluster

    def __getattr__(self, name: str) -> object:
        return getattr(self._cluster, name)

    def addresses(self, job: Job) -> "Addresses":
        return Addresses()

    def console(self, job: Job, rank: int) -> RankConsole | None:
        return None if rank else RankConsole("https://k8s", job.namespace, "train-0", "main", "n0")

    async def containers(self, job: Job, rank: int, attempt: int = 0) -> list[str]:
        return ["main", "sidecar"]

    def follow(
        self, job: Job, rank: int, lines_max: int, container: str = ""
    ) -> AsyncIterator[str] | None:
        return None if rank else self._follow(lines_max, container)

    async def _follow(self, lines_max: int, container: str) -> AsyncIterator[str]:
        for n in range(lines_max):
            yield f"{container or 'line'} {n}"

    async def older_logs(
        self,
        job: Job,
        rank: int,
        lines_max: int,
        *,
        attempt: int,
        previous: bool,
        container: str = "",
    ) -> list[str]:
        return [container or f"attempt {attempt} previous {previous}"]


@pytest.fixture
async def with_pods(server: Server) -> Server:
    await server.call("POST", "/v1/jobs", native("train", replicas=2))
    server.app._frozen = False
    server.app[CLUSTER] = WithPods(server.app[CLUSTER])  # type: ignore[misc]
    return server


async def test_the_pod_of_a_rank_is_returned(with_pods: Server) -> None:
    status, place = await with_pods.call("GET", "/v1/jobs/default/train/place?rank=0")
    assert status == 200
    assert place == {
        "cluster": "https://k8s",
        "namespace": "default",
        "pod": "train-0",
        "container": "main",
        "node": "n0",
    }


async def test_a_rank_without_a_pod_is_reported(with_pods: Server) -> None:
    for path in ("place", "logs/follow"):
        status, problem = await with_pods.call("GET", f"/v1/jobs/default/train/{path}?rank=1")
        assert (status, problem["code"]) == (409, "not_there")
        assert "worker-1" in problem["detail"]
        status, problem = await with_pods.call("GET", f"/v1/jobs/default/train/{path}?rank=2")
        assert (status, problem["code"]) == (404, "no_such_rank")


async def test_lines_are_followed(with_pods: Server) -> None:
    url = f"{with_pods.url}/v1/jobs/default/train/logs/follow?rank=0&tail=3"
    async with with_pods.session.get(url) as answer:
        assert answer.content_type == "text/plain"
        assert await answer.text() == "line 0\nline 1\nline 2\n"


async def test_earlier_lines_are_asked_for(with_pods: Server) -> None:
    status, logs = await with_pods.call("GET", "/v1/jobs/default/train/logs?attempt=3")
    assert (status, logs["attempt"], logs["lines"]) == (200, 3, ["attempt 3 previous False"])
    _, logs = await with_pods.call("GET", "/v1/jobs/default/train/logs?previous=true")
    assert logs["lines"] == ["attempt 0 previous True"]


async def test_the_environment_of_a_rank_has_the_addresses_of_the_cluster(
    with_pods: Server,
) -> None:
    _, shown = await with_pods.call("GET", "/v1/jobs/default/train/ranks/1")
    assert shown["environment"]["env_if_unset"]["MASTER_ADDR"] == "10.0.0.0"
    assert shown["environment"]["env_if_unset"]["MASTER_PORT"] == "4000"


@pytest.mark.parametrize(
    "path", ["place", "logs/follow", "logs?attempt=1", "logs?previous=true", "logs?container=a"]
)
async def test_a_simulated_cluster_has_no_pods(server: Server, path: str) -> None:
    await server.call("POST", "/v1/jobs", native("train"))
    status, problem = await server.call("GET", f"/v1/jobs/default/train/{path}")
    assert (status, problem["code"]) == (409, "no_pods")
    assert "this server's cluster" in problem["detail"]


async def test_lines_of_another_container_are_asked_for_by_its_name(with_pods: Server) -> None:
    path = "/v1/jobs/default/train/logs"
    _, logs = await with_pods.call("GET", f"{path}?container=sidecar")
    assert logs["lines"] == ["sidecar"]
    url = f"{with_pods.url}{path}/follow?tail=1&container=sidecar"
    async with with_pods.session.get(url) as answer:
        assert await answer.text() == "sidecar 0\n"
    for each in (path, f"{path}/follow"):
        status, problem = await with_pods.call("GET", f"{each}?container=other")
        assert (status, problem["code"]) == (404, "no_such_container")
        assert "main, sidecar" in problem["detail"]
