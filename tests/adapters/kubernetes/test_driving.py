"""The engine and the adapter together, on an API server that plays its part."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from adapters.database.rank_logs import DatabaseRankLogs
from adapters.kubernetes.observe.labels import run_of
from adapters.logs.memory_log import MemoryLog
from controlplane.model import commands as c
from controlplane.model import events as e
from controlplane.model.errors import Rejected
from controlplane.model.failures import Cause
from controlplane.model.spec import CleanPods, JobSpec, Role
from controlplane.queries.queries import why
from tests.fake_kubernetes import FakeKubernetes, Fate, Faults
from tests.fake_kubernetes.control import cluster_of, control_plane, spec
from tests.fake_kubernetes.store import NODES, PODS, Resource

SERVICES = Resource("", "v1", "services")


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[FakeKubernetes]:
    async with cluster_of(tmp_path) as api:
        yield api


def ends_after(seconds: float, code: int = 0, **more: Any) -> Any:
    return lambda pod: Fate(seconds, code, **more)


def runs(api: FakeKubernetes) -> Counter[Any]:
    """How often each run of each rank was started."""
    return Counter(api.marks[uid] for uid, _ in api.kubelets.started)


# -------------------------------------------------------------------- a job's life


async def test_a_job_runs_where_it_was_placed_and_succeeds(api: FakeKubernetes) -> None:
    api.kubelets.fate = ends_after(0.1)
    async with control_plane(api) as plane:
        await plane.submit("train", spec(workers=4, gpus=2))
        await plane.until_phase("train", "Succeeded")
        job = plane.job("train")
        assert job is not None
        assert job.attempt is not None
        assert [pod["spec"]["nodeName"] for pod in plane.pods] == [
            slot.node for slot in job.attempt.placement
        ]
        notes = [pod["metadata"]["annotations"]["muster.dev/devices"] for pod in plane.pods]
        assert sorted(notes) == ["0,1", "0,1", "2,3", "2,3"]
        assert {pod["spec"]["schedulerName"] for pod in plane.pods} == {"muster"}


async def test_the_nodes_may_be_left_to_the_cluster_s_scheduler(api: FakeKubernetes) -> None:
    async with control_plane(api, binds_itself=False) as plane:
        await plane.submit("train")
        await plane.until(lambda: len(plane.pods) == 2)
        await asyncio.sleep(0.1)
        assert all("nodeName" not in pod["spec"] for pod in plane.pods)
        assert all("schedulerName" not in pod["spec"] for pod in plane.pods)


async def test_a_gang_that_fits_only_in_part_runs_and_grows(api: FakeKubernetes) -> None:
    """With other people's pods there is room for two ranks of four; then those pods leave."""
    for i in range(2):
        asks = {"limits": {"nvidia.com/gpu": "3"}}
        stranger = {"containers": [{"name": "c", "image": "i", "resources": asks}]}
        document = {
            "metadata": {"name": f"other-{i}"},
            "spec": {**stranger, "nodeName": f"node-{i}"},
        }
        api.store.create(PODS, "default", {**document, "status": {"phase": "Running"}})
    async with control_plane(api) as plane:
        await plane.submit("part", spec(workers=4, gpus=1, min_available=2))

        def pods() -> list[dict[str, Any]]:
            return [pod for pod in plane.pods if run_of(pod) is not None]

        await plane.until_phase("part", "Running")
        assert len(pods()) == 2
        for i in range(2):
            api.store.remove(PODS, "default", f"other-{i}")
        await plane.until(lambda: len(pods()) == 4)
        job = plane.job("part")
        assert job is not None
        assert job.attempt is not None
        assert job.attempt.number == 1


GROUPS = Resource("scheduling.x-k8s.io", "v1alpha1", "podgroups")
CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses")


def of_class(name: str, replicas: int, cpu: int, priority: str) -> Role:
    asks = {"requests": {"cpu": str(cpu)}}
    container = {"name": "main", "image": "i", "resources": asks}
    template = {"spec": {"containers": [container], "priorityClassName": priority}}
    return Role(name=name, replicas=replicas, template=template)


@pytest.mark.parametrize(("known", "cpus"), [(True, "2"), (False, "20")])
async def test_a_pod_group_counts_the_roles_of_the_highest_priority_class_first(
    api: FakeKubernetes, known: bool, cpus: str
) -> None:
    for name, value in (("low", 10), ("high", 1000)) if known else ():
        metadata = {"name": name}
        api.store.create(CLASSES, "", {"metadata": metadata, "value": value})
    roles = (of_class("worker", 4, 10, "low"), of_class("ps", 2, 1, "high"))
    async with control_plane(api, gang="scheduler-plugins-scheduler") as plane:
        await plane.submit("train", spec(roles=roles, min_available=2))
        await plane.until(lambda: bool(api.store.all(GROUPS)))
        (group,) = api.store.all(GROUPS)
        assert group["spec"]["minMember"] == 2
        assert group["spec"]["minResources"] == {"cpu": cpus}


@pytest.mark.parametrize(("clean", "left"), [(CleanPods.ALL, 0), (CleanPods.NONE, 2)])
async def test_what_is_kept_of_a_finished_job_is_what_it_asks_for(
    api: FakeKubernetes, clean: CleanPods, left: int
) -> None:
    api.kubelets.fate = ends_after(0.05)
    async with control_plane(api) as plane:
        await plane.submit("train", spec(clean=clean))
        await plane.until_phase("train", "Succeeded")
        await plane.until(lambda: len(plane.pods) == left)
        await plane.ask(c.DeleteJob(namespace="default", name="train"))
        await plane.until(lambda: plane.job("train") is None and not plane.pods)
        await plane.until(lambda: not api.store.all(SERVICES))


async def test_a_time_to_live_takes_the_pods_along(api: FakeKubernetes) -> None:
    api.kubelets.fate = ends_after(0.05)
    async with control_plane(api) as plane:
        await plane.submit("train", spec(ttl_s=0.2))
        await plane.until(lambda: plane.job("train") is not None)
        await plane.until(lambda: plane.job("train") is None and not plane.pods)


async def test_what_was_left_of_a_job_that_is_gone_goes_too(api: FakeKubernetes) -> None:
    labels = {"muster.dev/job-id": "id-old", "muster.dev/instance": "test"}
    other = {"muster.dev/job-id": "id-other", "muster.dev/instance": "another-instance"}
    for name, each in (("old", labels), ("other", other)):
        document = {"kind": "Service", "metadata": {"name": name, "labels": each}}
        api.store.create(SERVICES, "default", document)
    async with control_plane(api) as plane:
        await plane.until(lambda: len(api.store.all(SERVICES)) == 1)
        await asyncio.sleep(0.7)
    assert [each["metadata"]["name"] for each in api.store.all(SERVICES)] == ["other"]


async def test_a_failing_rank_reports_its_exit_code_and_its_last_lines(api: FakeKubernetes) -> None:
    api.kubelets.fate = ends_after(0.05, 3, lines=("step 1", "boom"))
    async with control_plane(api) as plane:
        await plane.submit("train", spec(workers=1))
        await plane.until_phase("train", "Failed")
        exits = [each for r in plane.log.events if isinstance(r.event, e.RanksExited)
                 for each in r.event.exits]  # fmt: skip
        assert {(x.code, x.lines) for x in exits} == {(3, ("step 1", "boom"))}
        assert len(exits) == 4


async def test_a_missing_image_is_reported(api: FakeKubernetes) -> None:
    api.kubelets.fate = lambda pod: Fate(stuck="ImagePullBackOff")
    async with control_plane(api) as plane:
        await plane.submit("train", spec(workers=1))
        await plane.until(
            lambda: "RanksStuck" in {type(r.event).__name__ for r in plane.log.events}
        )
        job = plane.job("train")
        assert job is not None
        assert "ErrImagePull" in why(plane.engine.world, job).reasons[0].message


# -------------------------------------------------------------------- losses


async def test_a_pod_that_a_user_deletes_is_created_again_as_another_attempt(
    api: FakeKubernetes,
) -> None:
    api.kubelets.stop_s = 0.2
    async with control_plane(api) as plane:
        await plane.submit("train")
        await plane.until_phase("train", "Running")
        victim = plane.pods[0]["metadata"]["name"]
        api.delete_pod(victim)
        await plane.until(lambda: bool((job := plane.job("train")) and job.restarts))
        await plane.until_phase("train", "Running")
        job = plane.job("train")
        assert job is not None
        assert job.attempt is not None
        assert job.attempt.number == 2
        assert job.restarts[0].cause is Cause.EVICTION
        assert job.failures == 0
        assert max(runs(api).values()) == 1


async def test_a_rank_on_a_dead_node_never_runs_twice_at_once(
    api: FakeKubernetes,
) -> None:
    async with control_plane(api) as plane:
        await plane.submit("train", spec(workers=2, gpus=4))
        await plane.until_phase("train", "Running")
        api.kubelets.kill("node-1")
        await plane.until_phase("train", "Restarting")
        # The other node has room by now, but the lost rank may still run where it was.
        await plane.until(lambda: len(plane.pods) == 1)
        await asyncio.sleep(1.0)
        assert plane.phase("train") == "Restarting"
        assert len(api.kubelets.started) == 2
        api.kubelets.revive("node-1")
        await plane.until_phase("train", "Running")
        assert len(api.kubelets.started) == 4
        assert max(runs(api).values()) == 1


@pytest.mark.parametrize("how", ["forgotten", "out of service"])
async def test_a_gang_leaves_a_node_that_is_gone_for_good(api: FakeKubernetes, how: str) -> None:
    """No controller deletes the pod there, and its kubelet never reports that it has ended."""
    async with control_plane(api) as plane:
        await plane.submit("train", spec(workers=2, gpus=4))
        await plane.until_phase("train", "Running")
        api.kubelets.add_node("node-2", 4)
        api.kubelets.kill("node-1")
        await plane.until_phase("train", "Restarting")
        if how == "forgotten":
            await plane.ask(c.ForgetNode(node="node-1"))
        else:
            taint = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown"}
            taints = {"spec": {"taints": [{**taint, "effect": "NoExecute"}]}}
            api.store.merge(NODES, "", "node-1", taints)
        await plane.until_phase("train", "Running")
        assert {pod["spec"]["nodeName"] for pod in plane.pods} == {"node-0", "node-2"}
        assert max(runs(api).values()) == 1


async def test_a_node_that_answers_is_not_forgotten(api: FakeKubernetes) -> None:
    async with control_plane(api) as plane:
        await plane.submit("train", spec(workers=2, gpus=4))
        await plane.until_phase("train", "Running")
        answer = await plane.ask(c.ForgetNode(node="node-1"))
        assert isinstance(answer, Rejected)
        assert answer.code == "node_is_up"
        assert plane.phase("train") == "Running"


async def test_what_is_left_of_an_ended_job_on_a_forgotten_node_goes(api: FakeKubernetes) -> None:
    async with control_plane(api) as plane:
        await plane.submit("train", spec(workers=2, gpus=4))
        await plane.until_phase("train", "Running")
        api.kubelets.kill("node-1")
        await plane.until_phase("train", "Restarting")
        await plane.ask(c.CancelJob(namespace="default", name="train"))
        await plane.until(lambda: len(plane.pods) == 1)
        await plane.ask(c.ForgetNode(node="node-1"))
        await plane.until(lambda: not plane.pods)


async def test_a_node_that_answers_again_at_once_loses_nothing(api: FakeKubernetes) -> None:
    async with control_plane(api, lost_after_s=5.0) as plane:
        await plane.submit("train")
        await plane.until_phase("train", "Running")
        api.kubelets.kill("node-0")
        await asyncio.sleep(0.2)
        api.kubelets.revive("node-0")
        await asyncio.sleep(0.2)
        assert plane.phase("train") == "Running"
        assert not any(isinstance(r.event, e.NodeLost) for r in plane.log.events)


async def test_a_node_that_leaves_the_cluster_takes_its_ranks_along(api: FakeKubernetes) -> None:
    async with control_plane(api) as plane:
        await plane.submit("train")
        await plane.until_phase("train", "Running")
        api.kubelets.dead.add("node-0")
        api.store.remove(NODES, "", "node-0")
        await plane.until(lambda: plane.phase("train") in ("Restarting", "Queued"))
        # As the cluster's garbage collector does.
        for pod in plane.pods:
            if pod["spec"].get("nodeName") == "node-0":
                api.store.remove(PODS, "default", pod["metadata"]["name"])
        await plane.until_phase("train", "Running")
        assert {pod["spec"]["nodeName"] for pod in plane.pods} == {"node-1"}


# -------------------------------------------------------------------- other people


async def test_devices_of_other_people_s_pods_and_sick_ones_are_not_given_away(
    api: FakeKubernetes,
) -> None:
    limits = {"resources": {"limits": {"nvidia.com/gpu": "2"}}}
    theirs = {
        "metadata": {"name": "theirs"},
        "spec": {"nodeName": "node-0", "containers": [limits]},
    }
    api.store.create(PODS, "elsewhere", {"kind": "Pod", **theirs})
    api.store.merge(NODES, "", "node-1", {"status": {"allocatable": {"nvidia.com/gpu": "3"}}})
    async with control_plane(api) as plane:
        await plane.until(lambda: plane.engine.world.surveyed)
        assert plane.engine.world.devices.free.total == 2 + 3
        api.store.remove(PODS, "elsewhere", "theirs")
        await plane.until(lambda: plane.engine.world.devices.free.total == 4 + 3)
        api.store.merge(NODES, "", "node-1", {"spec": {"unschedulable": True}})
        await plane.until(lambda: bool(plane.engine.world.nodes["node-1"].info.taints))
        await plane.submit("train", spec(workers=1, gpus=4))
        await plane.until_phase("train", "Running")
        assert plane.pods[0]["spec"]["nodeName"] == "node-0"


def asking(cpu: str, workers: int = 2) -> JobSpec:
    template = {"spec": {"containers": [{"name": "main", "image": "i", "resources": {"requests": {"cpu": cpu}}}]}}  # fmt: skip
    role = Role(name="worker", replicas=workers, template=template)
    return spec(roles=(role,))


def theirs(name: str, node: str, cpu: str) -> dict[str, Any]:
    inits = [{"name": "first", "resources": {"requests": {"cpu": cpu}}}]
    container = {"name": "main", "resources": {"requests": {"cpu": "1"}}}
    pod = {"nodeName": node, "initContainers": inits, "containers": [container]}
    return {"kind": "Pod", "metadata": {"name": name}, "spec": pod}


async def test_cores_that_other_people_s_pods_request_are_not_given_away(
    api: FakeKubernetes,
) -> None:
    """The greediest of their containers counts; what is over or gone requests nothing."""
    for node in ("node-0", "node-1"):
        api.store.create(PODS, "elsewhere", theirs(f"on-{node}", node, "62"))
    api.store.create(PODS, "elsewhere", theirs("short", "node-0", "2"))
    async with control_plane(api) as plane:
        await plane.until(lambda: plane.engine.world.surveyed)
        world = plane.engine.world
        assert world.nodes["node-0"].info.resources == {"cpu": 64_000}
        await plane.until(lambda: world.nodes["node-0"].info.used_by_others == {"cpu": 64_000})
        api.kubelets.end("short", 0, "elsewhere")
        await plane.until(lambda: world.nodes["node-0"].info.used_by_others == {"cpu": 62_000})
        await plane.submit("train", asking("1500m", workers=3))
        await plane.until(lambda: bool((job := plane.job("train")) and job.wait_reason))
        job = plane.job("train")
        assert job is not None
        message = why(plane.engine.world, job).reasons[0].message
        assert "each of 3 ranks needs 1.5 CPUs; node-0 has 2 of 64 CPUs free" in message
        assert not api.kubelets.started[3:]
        api.store.remove(PODS, "elsewhere", "on-node-1")
        await plane.until_phase("train", "Running")
        where = Counter(pod["spec"]["nodeName"] for pod in plane.pods if "rank" in str(pod))
        assert where["node-1"] >= 2
        assert not api.kubelets.refused


async def test_gangs_that_ask_for_cores_never_get_more_than_there_are(api: FakeKubernetes) -> None:
    api.kubelets.fate = ends_after(0.05)
    async with control_plane(api) as plane:
        await plane.until(lambda: plane.engine.world.surveyed)
        names = [f"job-{number}" for number in range(8)]
        for number, name in enumerate(names):
            await plane.submit(name, asking(f"{10 + 5 * number}", workers=2 - number % 2))
        for name in names:
            await plane.until_phase(name, "Succeeded")
            job = plane.job(name)
            assert job is not None
            assert not job.restarts
        assert not api.kubelets.refused
        assert plane.engine.world.devices.free.allocated == {}


async def test_a_name_taken_by_another_object_delays_the_gang_until_it_is_free(
    api: FakeKubernetes,
) -> None:
    api.store.create(
        PODS, "default", {"kind": "Pod", "metadata": {"name": "train-worker-1"}, "spec": {}}
    )
    async with control_plane(api) as plane:
        await plane.submit("train")
        await plane.until(lambda: bool((job := plane.job("train")) and job.restarts))
        job = plane.job("train")
        assert job is not None
        assert "belongs to another controller" in job.restarts[0].detail
        assert not api.kubelets.started
        api.store.remove(PODS, "default", "train-worker-1")
        await plane.until_phase("train", "Running")


async def test_a_stale_control_plane_leaves_newer_pods_alone(api: FakeKubernetes) -> None:
    log = MemoryLog()
    async with control_plane(api, log) as old:
        await old.submit("train")
        await old.until_phase("train", "Running")
        copied = MemoryLog()
        copied.events.extend(log.events)
        async with control_plane(api, copied) as new:
            await new.until(lambda: new.engine.leads)
            api.delete_pod("train-worker-0")
            await new.until(
                lambda: bool((job := new.job("train")) and job.attempt and job.attempt.number == 2)
            )
            await new.until_phase("train", "Running")
            attempts = {m.attempt for pod in new.pods if (m := run_of(pod)) is not None}
            assert attempts == {2}
            assert max(runs(api).values()) == 1


# -------------------------------------------------------------------- control planes that die


async def test_a_new_leader_finishes_a_launch_that_is_under_way(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, nodes=4, gpus=8) as api:
        log = MemoryLog()
        api.kubelets.start_s = 0.05
        async with control_plane(api, log) as first:
            await first.submit("train", spec(workers=32))
            await first.until(lambda: len(first.pods) >= 10)
        assert len(api.store.all(PODS)) < 32 or len(api.kubelets.started) < 32
        async with control_plane(api, log) as second:
            await second.until_phase("train", "Running")
            assert len(second.pods) == 32
            job = second.job("train")
            assert job is not None
            assert job.attempt is not None
            assert job.attempt.number == 1
            assert len(api.kubelets.started) == 32
            assert max(runs(api).values()) == 1


async def test_ranks_that_ended_during_an_outage_are_reported_afterwards(
    api: FakeKubernetes,
) -> None:
    log = MemoryLog()
    async with control_plane(api, log) as first:
        await first.submit("train")
        await first.until_phase("train", "Running")
    for pod in api.store.all(PODS):
        api.kubelets.end(pod["metadata"]["name"], 0)
    async with control_plane(api, log) as second:
        await second.until_phase("train", "Succeeded")


# -------------------------------------------------------------------- faults


async def lives(api: FakeKubernetes, jobs: int, **options: Any) -> int:
    """Runs some jobs to their end and away; returns how many requests that took."""
    api.kubelets.fate = ends_after(0.1)
    before = sum(api.requests.values())
    async with control_plane(api, **options) as plane:
        for i in range(jobs):
            await plane.submit(f"train-{i}", spec(workers=3, clean=CleanPods.ALL))
        for i in range(jobs):
            await plane.until_phase(f"train-{i}", "Succeeded")
            await plane.ask(c.DeleteJob(namespace="default", name=f"train-{i}"))
        await plane.until(lambda: not plane.pods and not api.store.all(SERVICES))
        assert all(job.restarts == () for job in plane.engine.world.jobs.values())
    assert max(runs(api).values()) == 1
    return sum(api.requests.values()) - before


@pytest.mark.parametrize("seed", range(3))
async def test_with_three_requests_of_ten_failing_everything_ends_as_it_should(
    tmp_path: Path, seed: int
) -> None:
    async with cluster_of(tmp_path, nodes=3) as api:
        plain = await lives(api, jobs=12)
    async with cluster_of(tmp_path, nodes=3) as api:
        api.faults = Faults(0.3, seed=seed, delay_s=0.01)
        faulty = await lives(api, jobs=12)
        assert sum(api.faults.met.values()) > 10
    assert faulty <= 2 * plain, (faulty, plain)


async def test_with_events_dropped_everything_ends_as_it_should(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, nodes=3) as api:
        api.faults = Faults(0.0, seed=1, dropped=0.3)
        await lives(api, jobs=5, resync_s=0.4)
        assert api.faults.met["dropped"] > 0


async def test_nothing_is_asked_while_nothing_changes(api: FakeKubernetes) -> None:
    async with control_plane(api) as plane:
        await plane.submit("train", spec(workers=8))
        await plane.until_phase("train", "Running")
        await asyncio.sleep(0.3)
        before = api.requests.copy()
        # Two resyncs of the engine pass, which ask for everything again.
        await asyncio.sleep(1.2)
        assert api.requests == before


# -------------------------------------------------------------------- logs


async def test_what_ranks_wrote_is_kept_after_their_pods_are_gone(
    api: FakeKubernetes, rank_logs: DatabaseRankLogs
) -> None:
    api.kubelets.fate = ends_after(0.1, lines=("one", "two"))
    async with control_plane(api, archive=rank_logs) as plane:
        await plane.submit("train", spec(clean=CleanPods.ALL))
        await plane.until_phase("train", "Succeeded")
        job = plane.job("train")
        assert job is not None
        assert await plane.cluster.logs(job, 0, 10) == ["one", "two"]
        await plane.until(lambda: not plane.pods)
        assert await plane.cluster.logs(job, 1, 10) == ["one", "two"]
        assert await plane.cluster.logs(job, 1, 1) == ["two"]


async def test_a_job_that_is_deleted_leaves_no_lines_behind(
    api: FakeKubernetes, rank_logs: DatabaseRankLogs
) -> None:
    api.kubelets.fate = ends_after(0.1, lines=("one",))
    async with control_plane(api, archive=rank_logs) as plane:
        await plane.submit("train", spec(clean=CleanPods.ALL))
        await plane.until_phase("train", "Succeeded")
        await plane.until(lambda: rank_logs.size_bytes > 0 and not plane.pods)
        await plane.ask(c.DeleteJob(namespace="default", name="train"))
        await plane.until(lambda: rank_logs.size_bytes == 0)


async def test_what_a_rank_wrote_before_it_was_stopped_is_kept(
    api: FakeKubernetes, rank_logs: DatabaseRankLogs
) -> None:
    api.kubelets.fate = lambda pod: Fate(lines=("still running",))
    async with control_plane(api, archive=rank_logs) as plane:
        await plane.submit("train")
        await plane.until_phase("train", "Running")
        await plane.ask(c.SuspendJob(namespace="default", name="train"))
        await plane.until(lambda: not plane.pods)
        job = plane.job("train")
        assert job is not None
        assert await plane.cluster.logs(job, 0, 10) == ["still running"]


async def test_a_deposed_leader_does_nothing_more(api: FakeKubernetes) -> None:
    async with control_plane(api) as plane:
        await plane.submit("train")
        await plane.until_phase("train", "Running")
        plane.running.cancel()
        await asyncio.gather(plane.running, return_exceptions=True)
        await plane.cluster.connect(lambda report: None)
        name = "train-worker-0"
        service = api.store.all(SERVICES)[0]["metadata"]["name"]
        api.store.remove(SERVICES, "default", service)
        api.delete_pod(name)
        before = api.requests["POST"] + api.requests["DELETE"]
        await asyncio.sleep(0.5)
        assert api.requests["POST"] + api.requests["DELETE"] == before
        assert len(plane.pods) == 1
