"""Plans: what is done, that doing it twice is doing it once, and what is never touched."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.kubernetes.observe.labels import JOB_ID, run_labels
from adapters.kubernetes.operator.event_reasons import notices_of_plan
from adapters.kubernetes.reconcile.plan import Plan, Ref, plan
from adapters.kubernetes.render.objects import Rendering
from adapters.kubernetes.render.site import Site
from controlplane.kinds.registry import form_of, kind_of, read_manifest
from controlplane.lifecycle.job import Job
from controlplane.lifecycle.runs import RankRun
from controlplane.model import events as e
from controlplane.model.failures import Cause, Exit, Restart
from controlplane.model.reasons import FailureReason
from controlplane.model.spec import CleanPods
from tests.adapters.kubernetes.jobs import by_ref, is_empty, job, rendering, role, seen, spec
from tests.gangs import on, placed, running, then

Objects = dict[Ref, dict[str, Any]]
GOING = "2026-01-01T00:00:00Z"


def planned(job: Job, observed: Objects, site: Site | None = None) -> Plan:
    return plan(rendering(job, site), observed, lambda: ("private", "public"))


def names(plan: Plan, kind: str = "Pod") -> list[str]:
    return [each["metadata"]["name"] for each in plan.create if each["kind"] == kind]


def everything(job: Job, phase: str = "Running") -> Objects:
    rendered = rendering(job)
    pods = [seen(rendered.pod(rank), phase) for rank in range(job.spec.size)]
    return by_ref(*pods, *rendered.services())


def exited(job: Job, *exits: Exit) -> Job:
    return then(job, 5.0, e.RanksExited(job.id, 1, exits))


def restarting(job: Job, rank: int) -> Job:
    why = Restart(at=5.0, attempt=1, cause=Cause.EXIT, spends_budget=True, rank=rank)
    failed = exited(job, Exit(rank, 1))
    return then(failed, 5.0, e.RankRestarting(job.id, 1, rank, why, 1, 15.0))


def test_a_new_gang_gets_services_before_its_pods() -> None:
    made = planned(job(), {}).create
    assert [each["kind"] for each in made] == ["Service"] * 3 + ["Pod"] * 2


def test_unused_fields_of_a_template_are_reported_with_the_pods_that_are_created() -> None:
    template = {"spec": {"containers": [{"name": "main"}], "restartPolicy": "Always"}}
    waiting = job(spec(role(replicas=1, template=template)))
    reasons = [each.reason for each in notices_of_plan(planned(waiting, {}))]
    assert reasons.count("SetPodTemplateRestartPolicy") == 1
    up = running(waiting, 1.0)
    assert notices_of_plan(planned(up, everything(up))) == []


def test_where_everything_is_as_it_should_nothing_is_written() -> None:
    up = running(job(), 1.0)
    assert is_empty(planned(up, everything(up)))


def test_what_the_server_fills_in_is_no_difference() -> None:
    up = running(job(), 1.0)
    objects = everything(up)
    service = objects[Ref("Service", "job-1")]
    filled = {**service["spec"], "clusterIPs": ["None"], "sessionAffinity": "None"}
    objects[Ref("Service", "job-1")] = {**service, "spec": filled}
    assert is_empty(planned(up, objects))


def test_a_failed_rank_in_back_off_loses_its_pod_and_gets_another_when_it_is_gone() -> None:
    waiting = restarting(running(job(), 1.0), 0)
    first = planned(waiting, everything(waiting))
    assert first.delete == [Ref("Pod", "job-1-worker-0")]
    again = then(waiting, 15.0, e.RankRelaunched("job-1", 1, 0))
    old = everything(waiting)
    assert planned(again, old).delete == [Ref("Pod", "job-1-worker-0")]
    del old[Ref("Pod", "job-1-worker-0")]
    (made,) = planned(again, old).create
    assert made["metadata"]["labels"]["muster.dev/incarnation"] == "1"


def test_a_pod_that_is_already_going_is_not_deleted_again() -> None:
    waiting = restarting(running(job(), 1.0), 0)
    objects = everything(waiting)
    ref = Ref("Pod", "job-1-worker-0")
    going = {**objects[ref]["metadata"], "deletionTimestamp": GOING}
    objects[ref] = {**objects[ref], "metadata": going}
    assert is_empty(planned(waiting, objects))


def test_a_running_rank_whose_pod_vanished_is_left_to_the_core() -> None:
    up = running(job(), 1.0)
    objects = everything(up)
    del objects[Ref("Pod", "job-1-worker-1")]
    assert is_empty(planned(up, objects))


@pytest.mark.parametrize(
    ("clean", "deleted", "ended"),
    [
        (CleanPods.NONE, [], ["job-1-worker-1"]),
        (CleanPods.RUNNING, ["job-1-worker-1"], []),
        (CleanPods.ALL, ["job-1-worker-0", "job-1-worker-1"], []),
    ],
)
def test_a_finished_job_holds_nothing_whichever_pods_are_kept(
    clean: CleanPods, deleted: list[str], ended: list[str]
) -> None:
    up = running(job(spec(clean=clean)), 1.0)
    objects = everything(up)
    ref = Ref("Pod", "job-1-worker-0")
    objects[ref] = seen(objects[ref], "Succeeded")
    done = then(exited(up, Exit(0, 0)), 6.0, e.JobSucceeded("job-1"))
    plan = planned(done, objects)
    assert [name for kind, name in plan.delete if kind == "Pod"] == deleted
    assert [name for kind, name in plan.delete if kind == "Service"] == deleted
    assert [each.name for each in plan.patch] == ended
    assert all(each.body == {"spec": {"activeDeadlineSeconds": 1}} for each in plan.patch)
    assert plan.create == []


def test_a_suspended_job_has_neither_pods_nor_services_of_its_own() -> None:
    up = running(job(), 1.0)
    asleep = then(up, 5.0, e.JobSuspended("job-1"))
    plan = planned(asleep, everything(up))
    assert [ref.kind for ref in plan.delete] == ["Pod", "Pod", "Service", "Service"]
    assert Ref("Service", "job-1") not in plan.delete, "what all share stays"


def test_the_pods_of_an_older_attempt_go_before_new_ones_are_made() -> None:
    again = then(
        running(job(), 1.0),
        5.0,
        e.JobRestarting("job-1", Restart(5.0, 1, Cause.EXIT, True), 1, 5.0),
        e.RanksGone("job-1", 1, (0, 1)),
        e.AttemptEnded("job-1", 1),
        e.JobRequeued("job-1"),
    )
    old = everything(running(job(), 1.0))
    assert len([ref for ref in planned(again, old).delete if ref.kind == "Pod"]) == 2
    placed = then(again, 6.0, e.GangPlaced("job-1", 2, job().attempt.placement))  # type: ignore[union-attr]
    assert names(planned(placed, old)) == []
    assert len(names(planned(placed, {}))) == 2


def test_an_object_of_another_owner_is_a_conflict_and_is_not_changed() -> None:
    theirs = {"kind": "Pod", "metadata": {"name": "job-1-worker-0"}}
    other = {"kind": "Service", "metadata": {"name": "job-1", "labels": {JOB_ID: "job-2"}}}
    plan = planned(job(), by_ref(theirs, other))
    conflicts = {(each.kind, each.name): each for each in plan.conflicts}
    assert set(conflicts) == {("Pod", "job-1-worker-0"), ("Service", "job-1")}
    assert {each.reason for each in conflicts.values()} == {"ErrResourceExists"}
    assert "job-2" in conflicts["Service", "job-1"].message
    assert plan.delete == []
    assert plan.patch == []
    assert plan.create == [], "all of a gang or none of it"


def test_a_role_that_waits_for_another_has_no_pods_until_that_runs() -> None:
    two = spec(role("Launcher", 1, starts_after="Worker"), role("Worker", 2))
    fresh = job(two)
    assert names(planned(fresh, {})) == ["job-1-worker-0", "job-1-worker-1"]
    up = then(fresh, 1.0, e.RanksStarted("job-1", 1, (1, 2)))
    assert names(planned(up, {})) == ["job-1-launcher-0"]


def test_volcano_sees_the_group_before_there_are_pods() -> None:
    site = Site(gang="volcano")
    first = planned(job(), {}, site)
    assert names(first) == []
    (group,) = [each for each in first.create if each["kind"] == "PodGroup"]
    ready = {**group, "status": {"phase": "Inqueue"}}
    second = planned(job(), by_ref(ready), site)
    assert len(names(second)) == 2
    (pod, _) = (each for each in second.create if each["kind"] == "Pod")
    assert pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == "job-1"
    assert pod["spec"]["schedulerName"] == "volcano"


# ---------------------------------------------------------------------- properties

PHASES = st.sampled_from(["Pending", "Running", "Succeeded", "Failed"])


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    """A job somewhere in its life."""
    clean = draw(st.sampled_from(list(CleanPods)))
    some = job(spec(role(replicas=3), clean=clean))
    for rank in range(3):
        step = draw(st.integers(0, 4))
        if step >= 1:
            some = then(some, 1.0, e.RanksStarted("job-1", 1, (rank,)))
        if step == 2:
            some = exited(some, Exit(rank, draw(st.sampled_from([0, 1]))))
        if step >= 3:
            some = restarting(some, rank)
        if step == 4:
            some = then(some, 15.0, e.RankRelaunched("job-1", 1, rank))
    ends: list[list[e.JobEvent]] = [
        [],
        [],
        [],
        [e.JobSucceeded("job-1")],
        [e.JobFailed("job-1", FailureReason.CANNOT_RUN)],
        [e.JobSuspended("job-1")],
        [e.JobCancelled("job-1"), e.JobDeleteRequested("job-1")],
    ]
    return then(some, 20.0, *draw(st.sampled_from(ends)))


@st.composite
def objects(draw: st.DrawFn) -> Objects:
    """Objects that may exist, right or wrong: pods of any run, of other jobs, being deleted."""
    rendered = rendering(job(spec(role(replicas=4))))
    result: Objects = {}
    for rank in range(4):
        if draw(st.booleans()):
            pod = rendered.pod(rank)
            owner = draw(st.sampled_from(["job-1", "job-1", "job-1", "job-2"]))
            run = RankRun(owner, draw(st.integers(1, 2)), rank, draw(st.integers(0, 1)))
            metadata = {**pod["metadata"], "labels": run_labels(run)}
            if draw(st.booleans()):
                metadata["deletionTimestamp"] = GOING
            result |= by_ref(seen({**pod, "metadata": metadata}, draw(PHASES)))
    services = [each for each in rendered.services() if draw(st.booleans())]
    return result | by_ref(*services)


def carry_out(plan: Plan, objects: Objects, *, at_once: bool) -> Objects:
    after = dict(objects)
    for ref in plan.delete:
        if at_once:
            del after[ref]
        else:
            going = {**after[ref]["metadata"], "deletionTimestamp": GOING}
            after[ref] = {**after[ref], "metadata": going}
    for patch in plan.patch:
        ref = Ref(patch.kind, patch.name)
        spec_ = {**after[ref].get("spec", {}), **patch.body.get("spec", {})}
        after[ref] = {**after[ref], "spec": spec_}
    for document in plan.create:
        ref = Ref(document["kind"], document["metadata"]["name"])
        assert ref not in after, f"{ref} is there already"
        after[ref] = seen(document, "Pending") if ref.kind == "Pod" else document
    return after


@settings(max_examples=300, deadline=None)
@given(jobs(), objects())
def test_what_was_carried_out_is_not_asked_for_again(job: Job, objects: Objects) -> None:
    after = carry_out(planned(job, objects), objects, at_once=False)
    assert is_empty(planned(job, after))


@settings(max_examples=300, deadline=None)
@given(jobs(), objects())
def test_when_the_old_is_gone_one_more_round_is_enough(job: Job, objects: Objects) -> None:
    for _ in range(2):
        objects = carry_out(planned(job, objects), objects, at_once=True)
    assert is_empty(planned(job, objects))


@settings(max_examples=300, deadline=None)
@given(jobs(), objects())
def test_no_plan_touches_what_is_not_ours(job: Job, objects: Objects) -> None:
    plan = planned(job, objects)
    touched = [*plan.delete, *(Ref(each.kind, each.name) for each in plan.patch)]
    assert all(objects[ref]["metadata"]["labels"][JOB_ID] == "job-1" for ref in touched)
    if job.finished or job.phase.value == "Suspended":
        assert names(plan) == []


@pytest.mark.parametrize(
    ("version", "phase", "kept"),
    [
        ("kubeflow.org/v2beta1", "Succeeded", ["job-1-launcher"]),
        ("kubeflow.org/v2beta1", "Failed", ["job-1-launcher"]),
        ("kubeflow.org/v2beta1", "Running", []),
        ("kubeflow.org/v1", "Succeeded", []),
    ],
)
def test_the_ended_launcher_of_an_mpijob_outlives_the_cleaning(
    version: str, phase: str, kept: list[str]
) -> None:
    pod = {"spec": {"containers": [{"name": "mpi", "image": "i"}]}}
    manifest = {
        "apiVersion": version,
        "kind": "MPIJob",
        "metadata": {"name": "m"},
        "spec": {
            "mpiReplicaSpecs": {
                "Launcher": {"template": pod},
                "Worker": {"replicas": 2, "template": pod},
            },
            "runPolicy": {"cleanPodPolicy": "All"},
        },
    }
    up = running(job(read_manifest(manifest).spec), 1.0)
    rendered = Rendering(up, kind_of(up.spec))
    phases = (phase, "Running", "Succeeded")
    pods = by_ref(*(seen(rendered.pod(rank), each) for rank, each in enumerate(phases)))
    done = then(up, 5.0, e.RanksExited(up.id, 1, (Exit(0, 0),)), e.JobSucceeded(up.id))
    planned = plan(Rendering(done, kind_of(up.spec)), pods, lambda: ("", ""))
    gone = {ref.name for ref in planned.delete if ref.kind == "Pod"}
    assert sorted({"job-1-launcher", "job-1-worker-0", "job-1-worker-1"} - gone) == kept
    deleted = then(done, 6.0, e.JobDeleteRequested(up.id))
    planned = plan(Rendering(deleted, kind_of(up.spec)), pods, lambda: ("", ""))
    assert len([ref for ref in planned.delete if ref.kind == "Pod"]) == 3


def test_a_gang_below_its_full_size_gets_pods_for_the_ranks_that_have_a_place() -> None:
    four = spec(role("Worker", 4), min_available=2)
    some = placed(on("node-0", "node-1"), four)
    first = planned(some, {})
    assert names(first) == ["job-1-worker-0", "job-1-worker-1"]
    up = running(some, 1.0)
    rendered = rendering(up)
    pods = [seen(rendered.pod(rank), "Running") for rank in range(2)]
    assert is_empty(planned(up, by_ref(*pods, *rendered.services())))
    over = then(up, 5.0, e.RanksExited(up.id, 1, (Exit(0, 0), Exit(1, 0))), e.JobSucceeded(up.id))
    assert names(planned(over, by_ref(*pods))) == []


@pytest.mark.parametrize("version", ["kubeflow.org/v2beta1", "kubeflow.org/v1"])
def test_a_hostfile_lists_the_workers_that_have_a_place(version: str) -> None:
    pod = {"spec": {"containers": [{"name": "mpi", "image": "i"}]}}
    roles = {"Launcher": {"template": pod}, "Worker": {"replicas": 3, "template": pod}}
    manifest = {
        "apiVersion": version,
        "kind": "MPIJob",
        "metadata": {"name": "m"},
        "spec": {"mpiReplicaSpecs": roles},
    }
    wanted = read_manifest(manifest).spec
    some = running(placed(on("node-0", "node-0", "node-1"), wanted), 1.0)
    made = plan(Rendering(some, kind_of(wanted)), {}, lambda: ("", "")).create
    assert [each["metadata"]["name"] for each in made if each["kind"] == "Pod"] == []
    (config,) = [each for each in made if each["kind"] == "ConfigMap"]
    hosts = config["data"]["hostfile"].splitlines()
    assert len(hosts) == 2
    assert not any("worker-2" in host for host in hosts)
    whole = job(wanted)
    (config,) = Rendering(whole, kind_of(wanted)).config_maps([])
    assert len(config["data"]["hostfile"].splitlines()) == 3
    assert status_of(some)["replicaStatuses"]["Worker"]["active"] == 2


def status_of(job: Job) -> dict[str, Any]:
    return form_of(job.spec).status(job)
