"""The reports that pods and nodes lead to, in tables."""

from typing import Any

import pytest

from adapters.kubernetes.observe import nodes
from adapters.kubernetes.observe.pod_status import (
    MESSAGE_LENGTH_MAX,
    PodProblem,
    blocked,
    observe,
    reports,
)
from adapters.kubernetes.reconcile.plan import ObjectConflict
from controlplane.kinds.conditions import replica_statuses
from controlplane.model import events as e
from controlplane.model.commands import ReportRanks
from controlplane.model.failures import Cause, Exit, Restart
from tests.adapters.kubernetes.jobs import ended, job, rendering, role, seen, spec
from tests.gangs import once_more, running, then

DISRUPTED = [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]
OOM = ended(137, "OOMKilled")


@pytest.mark.parametrize(
    ("status", "exit"),
    [
        ({"phase": "Pending"}, None),
        ({"phase": "Running"}, None),
        ({"phase": "Unknown"}, None),
        ({"phase": "Succeeded", "containerStatuses": [ended(0)]}, Exit(0, 0)),
        ({"phase": "Succeeded"}, Exit(0, None, Cause.COMPLETED)),
        ({"phase": "Failed", "containerStatuses": [ended(3)]}, Exit(0, 3)),
        (
            {"phase": "Failed", "containerStatuses": [ended(3, "Error", message="no data")]},
            Exit(0, 3, Cause.EXIT, "no data", reason="Error"),
        ),
        (
            {"phase": "Failed", "containerStatuses": [OOM]},
            Exit(0, 137, Cause.OOM, reason="OOMKilled"),
        ),
        (
            {"phase": "Failed", "reason": "Evicted", "message": "low on memory"},
            Exit(0, None, Cause.EVICTION, "low on memory", reason="Evicted"),
        ),
        (
            {"phase": "Failed", "reason": "Evicted", "containerStatuses": [ended(137)]},
            Exit(0, 137, Cause.EVICTION, reason="Evicted"),
        ),
        (
            {"phase": "Failed", "reason": "NodeLost"},
            Exit(0, None, Cause.NODE_LOST, reason="NodeLost"),
        ),
        (
            {"phase": "Failed", "reason": "Terminated", "message": "shutting down"},
            Exit(0, None, Cause.NODE_LOST, "shutting down", reason="Terminated"),
        ),
        (
            {"phase": "Failed", "conditions": DISRUPTED, "containerStatuses": [ended(143)]},
            Exit(0, 143, Cause.PREEMPTION),
        ),
        # Another container failed the pod: the main container's exit is not a success.
        (
            {"phase": "Failed", "containerStatuses": [ended(0), ended(1, name="sidecar")]},
            Exit(0, None),
        ),
        # Only a sidecar ended, and the end of the main container is unknown.
        ({"phase": "Failed", "containerStatuses": [ended(1, name="sidecar")]}, Exit(0, None)),
        (
            {"phase": "Failed", "initContainerStatuses": [ended(7, name="fetch")]},
            Exit(0, None, Cause.EXIT, "init container fetch exited with code 7"),
        ),
        (
            {"phase": "Failed", "reason": "OutOfnvidia.com/gpu"},
            Exit(0, None, Cause.REFUSED, reason="OutOfnvidia.com/gpu"),
        ),
    ],
)
def test_how_a_rank_ended(status: dict[str, Any], exit: Exit | None) -> None:
    assert observe({"status": status}, 0, "main").exit == exit


@pytest.mark.parametrize(
    ("status", "started"),
    [
        ({"phase": "Pending"}, False),
        ({"phase": "Running"}, True),
        ({"phase": "Succeeded"}, True),
        ({"phase": "Failed"}, True),
        ({"phase": "Failed", "reason": "Evicted"}, True),
        # The kubelet refused it, or an init container failed: nothing of the person's ever ran.
        ({"phase": "Failed", "reason": "UnexpectedAdmissionError"}, False),
        ({"phase": "Failed", "reason": "OutOfcpu"}, False),
        ({"phase": "Failed", "initContainerStatuses": [ended(1)]}, False),
        (
            {"phase": "Failed", "containerStatuses": [{"name": "main", "state": {"waiting": {}}}]},
            False,
        ),
    ],
)
def test_whether_a_rank_ever_ran(status: dict[str, Any], started: bool) -> None:
    assert observe({"status": status}, 0, "main").started is started


def waiting(reason: str) -> dict[str, Any]:
    state = {"waiting": {"reason": reason, "message": "detail"}}
    return {"phase": "Pending", "containerStatuses": [{"name": "main", "state": state}]}


UNSCHEDULABLE = {
    "phase": "Pending",
    "conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3"}
    ],
}


@pytest.mark.parametrize(
    ("status", "trouble"),
    [
        ({"phase": "Pending"}, None),
        (waiting("ContainerCreating"), None),
        (waiting("PodInitializing"), None),
        (waiting("ErrImagePull"), PodProblem("ErrImagePull", "main: detail")),
        (
            waiting("CreateContainerConfigError"),
            PodProblem("CreateContainerConfigError", "main: detail"),
        ),
        (UNSCHEDULABLE, PodProblem("Unschedulable", "0/3")),
    ],
)
def test_why_a_pod_does_not_get_on(status: dict[str, Any], trouble: PodProblem | None) -> None:
    assert observe({"status": status}, 0, "main").trouble == trouble


def test_a_running_pod_that_is_being_deleted_is_leaving_and_has_not_ended() -> None:
    pod = {"metadata": {"deletionTimestamp": "now"}, "status": {"phase": "Running"}}
    observation = observe(pod, 0, "main")
    assert observation.exit is None
    assert observation.started
    assert observation.leaving is not None
    assert observation.leaving.cause is Cause.EVICTION


def test_a_pod_that_ended_while_being_deleted_has_ended() -> None:
    status = {"phase": "Failed", "containerStatuses": [ended(143)]}
    observation = observe({"metadata": {"deletionTimestamp": "now"}, "status": status}, 0, "main")
    assert observation.leaving is None
    assert observation.exit == Exit(0, 143)


def test_restarts_in_place_are_counted_over_all_containers() -> None:
    counted = [{"name": "main", "restartCount": 2}, {"name": "sidecar", "restartCount": 1}]
    init = [{"name": "fetch", "restartCount": 3}]
    status = {
        "phase": "Running",
        "containerStatuses": counted,
        "initContainerStatuses": init,
    }
    assert observe({"status": status}, 0, "main").restarts == 6


def test_a_pod_that_must_end_and_has_no_node_is_gone() -> None:
    ending = {"spec": {"activeDeadlineSeconds": 1}, "status": {"phase": "Pending"}}
    assert observe(ending, 0, "main").gone
    bound = {"spec": {"activeDeadlineSeconds": 1, "nodeName": "n"}, "status": {"phase": "Pending"}}
    assert not observe(bound, 0, "main").gone


def test_a_long_message_is_cut() -> None:
    status = {"phase": "Failed", "containerStatuses": [ended(1, message="x" * 10_000)]}
    observation = observe({"status": status}, 0, "main")
    assert observation.exit is not None
    assert len(observation.exit.detail) == MESSAGE_LENGTH_MAX


# ---------------------------------------------------------------------- whole gangs


def pods(job_: Any, *phases: str | None) -> dict[str, Any]:
    rendered = rendering(job_)
    named = zip(rendered.names, phases, strict=True)
    return {
        name: seen(rendered.pod(rank), phase)
        for rank, (name, phase) in enumerate(named)
        if phase is not None
    }


def reports_of(job_: Any, observed: dict[str, Any]) -> list[ReportRanks]:
    return reports(job_, rendering(job_).names, observed)


def test_a_missing_pod_is_news_only_of_a_rank_that_ran() -> None:
    fresh = job()
    assert reports_of(fresh, pods(fresh, None, None)) == []
    up = running(fresh, 1.0)
    (report,) = reports_of(up, pods(up, "Running", None))
    assert report.gone == (1,)


def test_when_the_gang_is_to_stop_every_missing_pod_is_gone() -> None:
    stopping = then(job(), 1.0, e.JobCancelled("job-1"))
    (report,) = reports_of(stopping, pods(stopping, None, "Pending"))
    assert report.gone == (0,)


def test_a_pod_of_an_older_run_reports_nothing_about_this_one() -> None:
    up = running(job(), 1.0)
    old = pods(up, "Failed", "Running")
    again = once_more(up, rank=0, at=5.0)
    assert [report.incarnation for report in reports_of(again, old)] == [0]
    assert reports_of(again, old)[0].exited == ()


def test_each_run_of_a_rank_is_reported_under_its_own_number() -> None:
    again = once_more(running(job(), 1.0), rank=0, at=5.0)
    first, second = reports_of(again, pods(again, "Running", "Running"))
    assert (first.incarnation, first.started) == (0, (1,))
    assert (second.incarnation, second.started) == (1, (0,))


def test_an_attempt_that_is_over_is_not_reported_on() -> None:
    restart = Restart(1.0, 1, Cause.EXIT, True)
    over = then(
        job(),
        1.0,
        e.JobRestarting("job-1", restart, 1, 1.0),
        e.RanksGone("job-1", 1, (0, 1)),
        e.AttemptEnded("job-1", 1),
    )
    assert reports_of(over, pods(over, "Running", "Running")) == []


def test_a_rank_that_others_wait_for_has_started_only_when_it_is_ready() -> None:
    two = job(spec(role("Launcher", 1, starts_after="Worker"), role("Worker", 1)))
    observed = pods(two, None, "Running")
    (report,) = reports_of(two, observed)
    assert report.started == ()
    assert [each.rank for each in report.stuck] == [1]
    stuck = then(
        two, 1.0, e.RanksStuck("job-1", 1, (1,), report.stuck[0].reason, report.stuck[0].detail)
    )
    assert replica_statuses(stuck) == {
        "Launcher": {"active": 0, "succeeded": 0, "failed": 0},
        "Worker": {"active": 1, "succeeded": 0, "failed": 0},
    }
    ready = [{"type": "Ready", "status": "True"}]
    observed["job-1-worker-0"]["status"]["conditions"] = ready
    assert reports_of(two, observed)[0].started == (1,)


def test_a_gang_that_cannot_be_made_is_reported_to_the_core_unless_it_runs() -> None:
    conflict = ObjectConflict("Service", "s", "Service s belongs to another controller")
    fresh = job()
    (report,) = blocked(fresh, [conflict])
    assert [end.rank for end in report.exited] == [0, 1]
    assert report.exited[0].detail == conflict.message
    assert blocked(fresh, []) == []
    assert blocked(running(fresh, 1.0), [conflict]) == []


def test_the_same_pods_give_the_same_reports() -> None:
    up = running(job(), 1.0)
    observed = pods(up, "Failed", "Running")
    assert reports_of(up, observed) == reports_of(up, dict(reversed(observed.items())))


def test_ready_nodes_are_distinguished_from_silent_ones() -> None:
    def node(name: str, ready: str, **labels: str) -> dict[str, Any]:
        status = {
            "conditions": [{"type": "Ready", "status": ready}],
            "allocatable": {"nvidia.com/gpu": "8", "cpu": "64"},
        }
        return {"metadata": {"name": name, "labels": labels}, "status": status}

    product = {"nvidia.com/gpu.product": "A100", "nvidia.com/gpu.memory": "40960"}
    silent, ready = node("b", "Unknown"), node("a", "True", **product)
    assert (nodes.is_ready(silent), nodes.is_ready(ready)) == (False, True)
    info = nodes.info(ready)
    assert (info.gpus, info.gpu_type, info.gpu_memory_mib) == (8, "A100", 40960)
