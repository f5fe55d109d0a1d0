"""What raises for one job must not hide the others from people."""

from typing import Any

import pytest

from api.app import make_app
from api.jobs import job_list, manifests
from api.jobs import jobs as api_jobs
from cli.server.pod_names import PodNames
from controlplane.kinds import registry
from controlplane.kinds.kind import GangContext
from controlplane.lifecycle.job import Job
from controlplane.model.spec import JobSpec
from tests.adapters.kubernetes.operator.bench import example
from tests.api.http_calls import call, listening
from tests.api.stand_in import ObedientCluster, Server, native


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


async def test_a_cluster_that_raises_for_logs_is_reported_with_its_error(
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

    server.engine_client.listen(raises)
    server.engine_client.listen(lambda batch, world: heard.append(len(batch)))
    status, _ = await server.call("POST", "/v1/jobs", native("train"))

    assert status == 201
    assert heard


def planted_error(*args: Any, **named: Any) -> Any:
    raise IndexError("planted")


async def test_a_submission_that_the_cluster_cannot_vet_is_refused_and_nothing_is_recorded(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def vet(spec: JobSpec) -> None:
        if spec.size == 3:
            raise IndexError("planted")

    monkeypatch.setattr(server.cluster, "vet", vet, raising=False)
    before = (await server.log.head()).position
    for path in ("/v1/jobs", "/v1/jobs?plan=true", "/v1/studies/forecast"):
        status, problem = await server.call("POST", path, native("odd", replicas=3))
        assert (status, problem["code"]) == (500, "platform_error")
        assert "IndexError: planted" in problem["detail"]
    assert (await server.log.head()).position == before
    assert (await server.call("POST", "/v1/jobs", native("good")))[0] == 201


@pytest.mark.parametrize(
    ("owner", "name", "view"),
    [
        (api_jobs, "job_detail", ""),
        (api_jobs, "why", "/why"),
        (manifests, "manifest_of", "/manifest"),
        (manifests, "rank_environment", "/ranks/0"),
    ],
)
async def test_a_view_that_raises_is_an_error_of_that_view_alone(
    server: Server, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, view: str
) -> None:
    for each in ("odd", "good"):
        await server.call("POST", "/v1/jobs", native(each))
    function = getattr(owner, name)

    def planted(*args: Any) -> Any:
        job = next(each for each in args if isinstance(each, Job))
        return planted_error() if job.name == "odd" else function(*args)

    monkeypatch.setattr(owner, name, planted)
    for path in ("", "/why", "/manifest", "/ranks/0"):
        status, shown = await server.call("GET", f"/v1/jobs/default/odd{path}")
        if path == view:
            assert (status, shown["code"]) == (500, "platform_error")
            assert "IndexError: planted" in shown["detail"]
        else:
            assert status == 200
        assert (await server.call("GET", f"/v1/jobs/default/good{path}"))[0] == 200


@pytest.mark.parametrize("method", ["read", "write", "modern"])
async def test_a_conversion_that_raises_is_refused_with_its_error(
    server: Server, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    document = example("pytorchjob-v1alpha1")
    key = (document["apiVersion"], document["kind"])
    form = registry.forms()[key]
    planted = form._replace(**{method: planted_error})
    monkeypatch.setitem(registry._forms, key, planted)
    kind = registry._kinds["PyTorchJob"]
    forms = tuple(planted if each is form else each for each in kind.forms)
    monkeypatch.setitem(registry._kinds, "PyTorchJob", kind._replace(forms=forms))
    to = "PyTorchJob/v1" if method == "modern" else "own"
    status, problem = await server.call("POST", f"/v1/convert?to={to}", document)
    assert (status, problem["code"]) == (500, "platform_error")
    assert (await server.call("POST", "/v1/convert?to=own", example("tfjob-v1beta1")))[0] == 200


class OddTelemetry:
    """A port whose methods raise as no contract allows."""

    devices = links = of_node = of_pods = planted_error


async def test_telemetry_that_raises_is_reported_and_hides_nothing_else(server: Server) -> None:
    await server.call("POST", "/v1/jobs", native("train"))
    source: Any = OddTelemetry()
    app = make_app(server.engine_client, server.cluster, source=source, history=source)
    async with listening(app) as url:
        status, view = await call(url, "GET", "/v1/telemetry")
        assert (status, view["devices"]) == (200, [])
        assert "IndexError: planted" in view["problem"]
        for asked in ("job=default/train", "node=node-0"):
            status, problem = await call(url, "GET", f"/v1/telemetry/history?{asked}")
            assert (status, problem["code"]) == (500, "platform_error")
        assert (await call(url, "GET", "/v1/jobs/default/train"))[0] == 200


async def test_a_job_without_pod_names_takes_no_readings_from_the_others(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("odd", "good"):
        await server.call("POST", "/v1/jobs", native(name))
    await server.settled()
    kind = registry._kinds["Job"]

    def environments(gang: GangContext) -> Any:
        return planted_error() if gang.name == "odd" else kind.environments(gang)

    monkeypatch.setitem(registry._kinds, "Job", kind._replace(environments=environments))
    names = await PodNames(server.engine_client)()
    assert {pod.partition("-")[0] for _, pod in names} == {"good"}


class OddPods(ObedientCluster):
    """A cluster with pods, none of which can be read."""

    console = containers = follow = older_logs = planted_error


async def test_a_missing_pod_is_an_error_of_that_request_only(server: Server) -> None:
    await server.call("POST", "/v1/jobs", native("train"))
    await server.settled()
    pods: Any = OddPods()
    async with listening(make_app(server.engine_client, pods)) as url:
        for path in ("place", "logs/follow", "logs?attempt=1", "logs?container=x"):
            status, problem = await call(url, "GET", f"/v1/jobs/default/train/{path}")
            assert (status, problem["code"]) == (500, "platform_error"), path
        assert (await call(url, "GET", "/v1/jobs/default/train"))[0] == 200
