"""Manifests in another form over HTTP, and the problems of those that are not right."""

from tests.api.stand_in import Server, native


def elastic() -> dict[str, object]:
    container = {"name": "pytorch", "image": "i"}
    role = {"replicas": 1, "template": {"spec": {"containers": [container]}}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "elastic"},
        "spec": {"pytorchReplicaSpecs": {"Worker": role}, "elasticPolicy": {"nProcPerNode": 2}},
    }


async def test_a_manifest_is_converted_and_nothing_is_stored(server: Server) -> None:
    before = await server.log.head()

    async with server.session.post(f"{server.url}/v1/convert", json=elastic()) as answer:
        status, document, headers = answer.status, await answer.json(), answer.headers

    assert (status, document["kind"]) == (200, "Job")
    assert document["spec"]["framework"]["kind"] == "PyTorchJob"
    assert "deprecated" in headers["Warning"]
    assert await server.log.head() == before


async def test_all_problems_are_listed(server: Server) -> None:
    document = {**native("00", gpu=1)}
    document["spec"]["roles"][0]["replicas"] = "x"

    status, problem = await server.call("POST", "/v1/jobs", document)

    assert status == 422
    listed = {(error["sort"], error["field"]) for error in problem["errors"]}
    assert listed == {
        ("Invalid", "metadata.name"),
        ("TypeInvalid", "spec.roles[0].replicas"),
        ("NotSupported", "spec.gpu"),
    }


async def test_warnings_come_with_a_submission(server: Server) -> None:
    async with server.session.post(f"{server.url}/v1/jobs", json=elastic()) as answer:
        assert answer.status == 201
        assert "spec.elasticPolicy.nProcPerNode is deprecated" in answer.headers["Warning"]
