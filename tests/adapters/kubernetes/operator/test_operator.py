"""What people do with kubectl, and what becomes of it; crashes in between included."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from adapters.kubernetes.operator.client import OperatorOptions
from controlplane.model import commands as c
from controlplane.model import events as e
from controlplane.model.phases import Phase
from tests.adapters.kubernetes.operator.bench import EVENTS, Bench, bench, example
from tests.fake_kubernetes import Faults

KINDS = (
    "tfjob-ps-workers",
    "tfjob-v1beta1",
    "tfjob-v1alpha1",
    "pytorchjob",
    "pytorchjob-elastic",
    "pytorchjob-v1alpha1",
    "mpijob",
    "mpijob-v1",
    "mpijob-v1alpha2-horovod",
    "mpijob-v1alpha1-horovod",
    "mxjob",
    "mxjob-v1alpha1",
    "xgboostjob",
    "xgboostjob-v1alpha1",
    "paddlejob-collective",
    "jaxjob",
    "trainjob-torch",
    "trainjob-mpi",
    "hostfilejob-cntk",
    "native",
)


@pytest.fixture
async def given(tmp_path: Path) -> AsyncIterator[Bench]:
    async with bench(tmp_path) as made:
        await made.start()
        yield made


def pytorch(name: str = "train", workers: int = 2, **policy: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "pytorch", "image": "example/train:1"}]}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name, "labels": {"team": "vision"}},
        "spec": {
            "pytorchReplicaSpecs": {"Worker": {"replicas": workers, "template": template}},
            "runPolicy": policy,
        },
    }


async def test_every_kind_runs_to_its_end_and_goes_with_its_resource(given: Bench) -> None:
    documents = [example(name) for name in KINDS]
    uids = [given.apply(document) for document in documents]
    for document, uid in zip(documents, uids, strict=True):
        await given.until_state(document, "Running")
        job = await given.job(uid)
        assert job is not None
        assert (job.spec.kind, job.spec.version) == (document["kind"], document["apiVersion"])
        given.cluster.finish_job(uid)
    for document in documents:
        await given.until_state(document, "Succeeded")
        assert f"{document['kind']}Succeeded" in given.reasons()
        given.delete(document)
    await given.until(lambda: not _jobs(given))


def _jobs(given: Bench) -> set[str]:
    assert given.control.engine is not None
    return set(given.control.engine.world.jobs)


async def test_the_status_is_what_the_kubeflow_operator_would_have_written(given: Bench) -> None:
    document = pytorch()
    uid = given.apply(document)
    await given.until_state(document, "Running")

    status = given.resource(document)["status"]
    assert [each["type"] for each in status["conditions"]] == ["Created", "Running"]
    worker = status["replicaStatuses"]["Worker"]
    assert (worker["active"], worker["succeeded"], worker["failed"]) == (2, 0, 0)
    assert worker["selector"] == (
        "training.kubeflow.org/job-name=train,"
        "training.kubeflow.org/operator-name=pytorchjob-controller,"
        "training.kubeflow.org/replica-type=worker"
    )
    assert "startTime" in status
    assert "completionTime" not in status
    assert status["muster"]["ready"] == "2/2"

    given.cluster.finish_job(uid)
    await given.until_state(document, "Succeeded")
    assert given.conditions(document) == {
        "Created": "True",
        "Running": "False",
        "Succeeded": "True",
    }
    assert "completionTime" in given.resource(document)["status"]
    job = await given.job(uid)
    assert job is not None
    assert job.spec.labels == {"team": "vision"}


async def test_a_problem_of_a_manifest_is_reported_and_can_be_fixed(given: Bench) -> None:
    document = pytorch()
    del document["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0][
        "image"
    ]
    document["spec"]["runPolicy"] = {"backofLimit": 3}
    uid = given.apply(document)
    await given.until_state(document, "Refused")

    (condition,) = given.resource(document)["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("Failed", "True")
    assert condition["reason"] == "PyTorchJobInvalid"
    for problem in (
        "spec.pytorchReplicaSpecs[Worker].template.spec.containers[0].image: an image is needed",
        "spec.runPolicy.backofLimit: there is no such field; did you mean backoffLimit?",
    ):
        assert problem in condition["message"]
        assert problem in given.messages("PyTorchJobFailedValidation")[0]
    await given.until_idle()
    assert given.reasons().count("PyTorchJobFailedValidation") == 1

    given.edit(document, {**pytorch()["spec"], "runPolicy": {"backofLimit": None}})
    await given.until_state(document, "Running")
    assert given.conditions(document) == {"Created": "True", "Running": "True"}
    assert uid in _jobs(given)


async def test_a_job_that_waits_for_a_name_gets_it_as_soon_as_it_is_free(given: Bench) -> None:
    first, second = pytorch(), {**example("jaxjob"), "metadata": {"name": "train"}}
    given.apply(first)
    await given.until_state(first, "Running")
    given.apply(second)
    await given.until_state(second, "Refused")
    (condition,) = given.resource(second)["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == (
        "Created",
        "False",
        "NameTaken",
    )

    given.delete(first)
    await given.until_state(second, "Running")


async def test_deleted_and_made_again_at_once_it_runs_again(given: Bench) -> None:
    document = pytorch()
    old = given.apply(document)
    await given.until_state(document, "Running")
    given.delete(document)
    new = given.apply(document)
    await given.until(lambda: _jobs(given) == {new})
    await given.until_state(document, "Running")
    assert old != new


async def test_suspension_scale_and_limits_are_carried_over(given: Bench) -> None:
    document = pytorch()
    document["spec"]["elasticPolicy"] = {"minReplicas": 1, "maxReplicas": 4}
    uid = given.apply(document)
    await given.until_state(document, "Running")

    given.edit(document, {"runPolicy": {"suspend": True}})
    await given.until_state(document, "Suspended")
    assert given.conditions(document)["Suspended"] == "True"
    given.edit(document, {"runPolicy": {"suspend": False}})
    await given.until_state(document, "Running")

    given.edit(document, {"pytorchReplicaSpecs": {"Worker": {"replicas": 4}}})
    await given.until(lambda: given.resource(document)["status"]["muster"]["ready"] == "4/4")
    job = await given.job(uid)
    assert job is not None
    assert job.attempt is not None
    assert not job.restarts

    given.edit(document, {"runPolicy": {"ttlSecondsAfterFinished": 3600}})
    await given.until(lambda: _settled(given, document))
    job = await given.job(uid)
    assert job is not None
    assert job.spec.ttl_s == 3600
    assert "notApplied" not in given.resource(document)["status"]["muster"]


def _settled(given: Bench, document: dict[str, Any]) -> bool:
    resource = given.resource(document)
    return bool(
        resource["status"]["muster"]["observedGeneration"] == resource["metadata"]["generation"]
    )


async def test_immutable_fields_are_refused_by_name(given: Bench) -> None:
    document = pytorch()
    uid = given.apply(document)
    await given.until_state(document, "Running")
    template = {"spec": {"containers": [{"name": "pytorch", "image": "example/other:2"}]}}
    given.edit(document, {"pytorchReplicaSpecs": {"Worker": {"template": template}}})

    field = "spec.pytorchReplicaSpecs.Worker.template.spec.containers[0].image"
    await given.until(lambda: bool(given.messages("NotApplied")))
    assert given.messages("NotApplied")[0].startswith(f"{field}: changed in vain")
    await given.until(lambda: _settled(given, document))
    assert field in given.resource(document)["status"]["muster"]["notApplied"]
    job = await given.job(uid)
    assert job is not None
    assert job.spec.roles[0].image == "example/train:1"

    given.edit(document, {"pytorchReplicaSpecs": {"Worker": {"replicas": 20_000}}})
    await given.until(lambda: len(given.messages("NotApplied")) > 1)


async def test_what_people_ask_of_muster_itself_is_not_undone(given: Bench) -> None:
    document = pytorch()
    given.apply(document)
    await given.until_state(document, "Running")
    await given.control.submit(c.SuspendJob(namespace="default", name="train"))
    await given.until_state(document, "Suspended")
    await given.until_idle()
    assert given.state(document) == "Suspended"

    await given.control.submit(c.DeleteJob(namespace="default", name="train"))
    await given.until(lambda: not given.is_there(document))


async def test_a_time_to_live_takes_the_resource_along(given: Bench) -> None:
    document = pytorch(ttlSecondsAfterFinished=0)
    uid = given.apply(document)
    await given.until_state(document, "Running")
    given.cluster.finish_job(uid)
    await given.until(lambda: not given.is_there(document))
    await given.until(lambda: uid not in _jobs(given))


async def test_a_time_to_live_that_ends_after_a_restart_takes_the_resource_along(
    given: Bench,
) -> None:
    document = pytorch(ttlSecondsAfterFinished=4)
    uid = given.apply(document)
    await given.until_state(document, "Running")
    given.cluster.finish_job(uid)
    await given.until_state(document, "Succeeded")
    await given.stop()
    await given.start()
    await given.until_idle()
    assert given.is_there(document)
    await given.until(lambda: not given.is_there(document))


async def test_jobs_of_others_are_left_alone(given: Bench) -> None:
    theirs = pytorch("theirs", managedBy="kueue.x-k8s.io/multikueue")
    unknown = pytorch("unknown", managedBy="example.com/other")
    over = pytorch("over")
    over["status"] = {"conditions": [{"type": "Succeeded", "status": "True"}]}
    for document in (theirs, unknown, over):
        given.apply(document)
    mine = pytorch("mine")
    given.apply(mine)
    await given.until_state(mine, "Running")
    await given.until_idle()
    assert len(_jobs(given)) == 1
    assert [given.resource(each).get("status") for each in (theirs, unknown)] == [None, None]
    assert given.resource(over)["status"] == over["status"]


async def test_queues_of_other_schedulers_are_left_alone_when_asked(tmp_path: Path) -> None:
    async with bench(tmp_path) as given:
        given.options = OperatorOptions(leave=frozenset({"kueue"}))
        await given.start()
        queued, plain = pytorch("queued"), pytorch("plain")
        volcano = pytorch("volcano")
        given.apply(queued, labels={"kueue.x-k8s.io/queue-name": "team"})
        given.apply(volcano, annotations={"scheduling.volcano.sh/queue-name": "team"})
        given.apply(plain)
        await given.until_state(plain, "Running")
        await given.until_state(volcano, "Running")
        await given.until_idle()
        assert "status" not in given.resource(queued)


async def test_missed_events_are_written_after_a_restart_and_none_twice(
    given: Bench,
) -> None:
    kept, deleted, ended, new = (pytorch(name) for name in ("kept", "deleted", "ended", "new"))
    uids = {each["metadata"]["name"]: given.apply(each) for each in (kept, deleted, ended)}
    for each in (kept, deleted, ended):
        await given.until_state(each, "Running")
    await given.until_idle()
    before = given.reasons()
    await given.stop()

    given.delete(deleted)
    given.edit(kept, {"runPolicy": {"suspend": True}})
    given.apply(new)
    # What ended meanwhile is reported to the next engine by the cluster.
    await given.start()
    given.cluster.finish_job(uids["ended"])

    await given.until_state(kept, "Suspended")
    await given.until_state(new, "Running")
    await given.until_state(ended, "Succeeded")
    await given.until(lambda: uids["deleted"] not in _jobs(given))
    await given.until_idle()
    names = [each["metadata"]["name"] for each in given.api.store.all(EVENTS)]
    assert len(names) == len(set(names))
    assert [reason for reason in given.reasons() if reason in before] == before
    submitted = [each for each in given.log.events if isinstance(each.event, e.JobSubmitted)]
    assert len(submitted) == 4


async def test_events_recorded_while_the_api_server_was_away_are_written_later(
    given: Bench,
) -> None:
    document = pytorch()
    uid = given.apply(document)
    await given.until_state(document, "Running")
    await given.until_idle()
    operator = given.operator
    # It crashes after the log has the end of the job and before any event was written.
    operator.recorded = lambda batch, world: None  # type: ignore[method-assign]
    given.control._listeners.clear()
    given.cluster.finish_job(uid)
    await given.until(lambda: _phase(given, uid) is Phase.SUCCEEDED)
    await given.stop()
    assert "PyTorchJobSucceeded" not in given.reasons()

    await given.start()
    await given.until_state(document, "Succeeded")
    await given.until(lambda: "PyTorchJobSucceeded" in given.reasons())
    await given.until_idle()
    assert given.reasons().count("PyTorchJobSucceeded") == 1
    assert given.reasons().count("ExitedWithCode") == 2


async def test_events_exist_once_though_no_record_shows_that_they_were_written(
    given: Bench,
) -> None:
    document = example("mpijob")
    uid = given.apply(document)
    await given.until_state(document, "Running")
    given.cluster.finish_job(uid)
    await given.until_state(document, "Succeeded")
    await given.until_idle()
    before = given.reasons()
    assert {"MPIJobCreated", "MPIJobRunning", "MPIJobSucceeded"} <= set(before)
    await given.stop()

    # It crashed after it had written the events and before it had recorded that.
    lost = {"status": {"muster": {"position": 0}}}
    given.api.store.merge(given._stored(document), "default", document["metadata"]["name"], lost)
    await given.start()
    await given.until(lambda: given.resource(document)["status"]["muster"]["position"] > 0)
    await given.until_idle()
    assert given.reasons() == before


def _phase(given: Bench, uid: str) -> Phase | None:
    assert given.control.engine is not None
    job = given.control.engine.world.jobs.get(uid)
    return None if job is None else job.phase


async def test_a_job_is_not_deleted_because_a_list_lacks_its_resource(given: Bench) -> None:
    """The list may be older than the job: the API server is asked for the very object."""
    document = pytorch()
    uid = given.apply(document)
    await given.until_state(document, "Running")
    given.operator._places.pop(uid)
    given.operator._synced(
        next(
            w.resource for w in given.operator._watches.values() if w.resource.kind == "PyTorchJob"
        )
    )
    await given.until_idle()
    assert uid in _jobs(given)


async def test_a_quiet_operator_writes_nothing(given: Bench) -> None:
    document = pytorch()
    given.apply(document)
    await given.until_state(document, "Running")
    await given.until_idle()
    before = sum(given.api.requests[verb] for verb in ("POST", "PATCH", "PUT", "DELETE"))
    for uid in list(given.operator._places):
        given.operator.work.add(uid)
    await given.until_idle()
    assert sum(given.api.requests[verb] for verb in ("POST", "PATCH", "PUT", "DELETE")) == before


async def test_a_status_written_by_another_client_is_not_fought_over(
    given: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adapters.kubernetes.operator.operator.HEAL_S", 0.5)
    document = pytorch()
    given.apply(document)
    await given.until_state(document, "Running")
    await given.until_idle()
    before = given.api.requests["PATCH"]
    stored = given._stored(document)
    given.api.store.merge(stored, "default", "train", {"status": {"muster": {"state": "Odd"}}})
    await asyncio.sleep(0.2)
    assert given.state(document) == "Odd"
    await given.until_state(document, "Running")
    assert given.api.requests["PATCH"] == before + 1


async def test_a_server_that_does_not_lead_watches_and_writes_nothing(given: Bench) -> None:
    """The log that it follows is another one's: that one acts."""
    await given.until_idle()
    engine, given.control.engine = given.control.engine, None
    document = pytorch()
    given.apply(document)
    began = e.Recorded(99, 0.0, e.EngineStarted(9, "another"))
    assert engine is not None
    given.operator.recorded([began], engine.world)
    await given.until_idle()
    assert "status" not in given.resource(document)

    given.control.engine = engine
    given.operator.recorded([began], engine.world)
    await given.until_state(document, "Running")


@pytest.mark.parametrize("seed", range(2))
async def test_with_faults_in_between_everything_comes_right(tmp_path: Path, seed: int) -> None:
    async with bench(tmp_path) as given:
        given.api.faults = Faults(0.3, seed=seed, dropped=0.1)
        given.resync_s = 1.0
        await given.start()
        documents = [pytorch(f"train-{number}") for number in range(6)]
        uids = [given.apply(each) for each in documents]
        for each in documents:
            await given.until_state(each, "Running")
        for uid in uids[:3]:
            given.cluster.finish_job(uid)
        for each in documents[3:]:
            given.delete(each)
        for each in documents[:3]:
            await given.until_state(each, "Succeeded")
        await given.until(lambda: _jobs(given) == set(uids[:3]))
