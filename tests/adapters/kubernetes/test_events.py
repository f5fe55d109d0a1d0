"""What people read in `kubectl describe`."""

from adapters.kubernetes.operator.event_reasons import notices_of, notices_of_plan
from adapters.kubernetes.reconcile.plan import ObjectConflict, Plan, Ref
from controlplane.model import events as e
from controlplane.model.failures import Cause, Exit, Restart
from controlplane.model.reasons import FailureReason
from controlplane.model.spec import JobSpec
from tests.adapters.kubernetes.jobs import job, spec
from tests.gangs import running, then


def reasons(job_: object, *events: e.JobEvent, at: float = 5.0) -> list[str]:
    recorded = [e.Recorded(i, at, event) for i, event in enumerate(events)]
    return [notice.reason for notice in notices_of(job_, recorded)]  # type: ignore[arg-type]


def of_kind(kind: str, **more: str) -> JobSpec:
    plain = spec()
    return JobSpec(roles=plain.roles, done_when=plain.done_when, kind=kind, **more)


def why(cause: Cause) -> Restart:
    return Restart(5.0, 1, cause, True, rank=0, rank_name="worker-0")


def test_each_event_is_emitted_once_with_the_operators_reason() -> None:
    up = running(job(of_kind("TFJob")), 1.0)
    emitted = reasons(
        up,
        e.RanksExited("job-1", 1, (Exit(0, 137), Exit(1, None, Cause.EVICTION))),
        e.RankRestarting("job-1", 1, 0, why(Cause.EXIT), 1, 15.0),
        e.JobSuspended("job-1"),
        e.JobResumed("job-1"),
        e.JobFailed("job-1", FailureReason.PERMANENT_EXIT_CODE),
    )
    assert emitted == [
        "ExitedWithCode",
        "TFJobRestarting",
        "TFJobSuspended",
        "TFJobResumed",
        "TFJobFailed",
    ]


def test_a_pod_that_vanished_and_a_job_that_was_scaled_are_no_failures() -> None:
    up = running(job(of_kind("TFJob")), 1.0)
    for cause in (Cause.VANISHED, Cause.SCALED):
        assert reasons(up, e.RankRestarting("job-1", 1, 0, why(cause), 1, 5.0)) == []


def test_how_ranks_end_after_the_verdict_is_no_news() -> None:
    done = then(running(job(of_kind("TFJob")), 1.0), 5.0, e.JobSucceeded("job-1"))
    exited = e.RanksExited("job-1", 1, (Exit(1, 143),))
    assert reasons(done, exited, at=6.0) == []
    assert reasons(done, exited, at=5.0) == ["ExitedWithCode"]


def test_a_job_that_is_left_to_another_controller_is_not_spoken_of() -> None:
    theirs = job(of_kind("TFJob", managed_by="kueue.x-k8s.io/multikueue"))
    assert reasons(theirs, e.JobSuspended("job-1")) == []


def test_only_mpi_reports_that_it_runs() -> None:
    assert reasons(job(of_kind("MPIJob")), e.GangStarted("job-1", 1)) == ["MPIJobRunning"]
    assert reasons(job(of_kind("TFJob")), e.GangStarted("job-1", 1)) == []


def test_what_a_plan_did_is_reported_by_kind_of_object() -> None:
    pod = {"kind": "Pod", "metadata": {"name": "p"}}
    config = {"kind": "ConfigMap", "metadata": {"name": "c"}}
    conflict = ObjectConflict("Secret", "s", "belongs to another controller")
    plan = Plan([pod, config], [Ref("Service", "s"), Ref("PodGroup", "g")], [], [conflict])
    assert [(each.reason, each.type) for each in notices_of_plan(plan)] == [
        ("SuccessfulCreatePod", "Normal"),
        ("SuccessfulDeleteService", "Normal"),
        ("SuccessfulDeletePodGroup", "Normal"),
        ("ErrResourceExists", "Warning"),
    ]
