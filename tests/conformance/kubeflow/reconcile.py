"""'one reconcile': a job, a snapshot of its pods, and what one look at them must lead to.

The job's manifest is submitted to the real engine at its start time, and the engine is brought to
the given status by reports of its ranks. Then the control plane is down until the
scenario's clock; meanwhile the pods became the given ones. It comes up again, looks, and does what
is to do at that one instant.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from adapters.kubernetes.operator.event_reasons import notices_of
from controlplane.kinds.kind import Submission
from controlplane.kinds.registry import form_of
from controlplane.lifecycle.job import Job
from controlplane.model import commands as c
from controlplane.model.failures import Exit
from controlplane.model.spec import RestartRule
from tests.conformance.kubeflow import manifests
from tests.conformance.kubeflow.cluster import JOB, Bench, Done
from tests.conformance.kubeflow.expecting import require_known

# The scenarios' pods may have been waiting for longer than a job is usually given to start.
PATIENCE_S = 1_000_000
# Our reasons for a failure, by the operators' name for its cause.
FAILURE_CAUSES = {
    "activeDeadline": ("deadline_exceeded",),
    "backoffLimit": ("retries_exhausted",),
}


class Outcome:
    """Everything there is to compare after one look."""

    def __init__(self, bench: Bench, given: Mapping[str, Any], position: int, done: Done) -> None:
        job = bench.job
        assert job is not None
        self.bench = bench
        self.given = given
        self.job: Job = job
        self.removed = bench.look() is None
        self.created = done.created_names("Pod")
        self.deleted = done.deleted_names("Pod")
        self.services_created = done.created_names("Service")
        self.services_deleted = done.deleted_names("Service")
        self.status = status_of(job)
        self.reasons = sorted(
            {each.reason for each in notices_of(job, of_job(bench.recorded(position)))}
        )


def of_job(recorded: Iterable[Any]) -> list[Any]:
    return [each for each in recorded if each.event.stream == JOB]


def status_of(job: Job) -> dict[str, Any]:
    """The status as the operator of the job's kind and version would write it."""
    return form_of(job.spec).status(job)


def run(given: Mapping[str, Any], kind: str, version: str) -> Outcome:
    submission = submission_of(given, kind, version)
    bench = begun(given, submission)
    bring_to_status(bench, given)
    # Without a history, the submission itself belongs to what is looked at.
    position = bench.engine.world.position if true_conditions(given) else 0
    bench.restart_at(float(given["clock_s"]))
    put_pods(bench, given)
    done = bench.reconcile()
    change_mind(bench, given, submission)
    done = bench.reconcile()
    return Outcome(bench, given, position, done)


def submission_of(given: Mapping[str, Any], kind: str, version: str) -> Submission:
    spec = dict(given["spec"])
    roles = {
        name: manifests.replica(kind, replica) for name, replica in spec.pop("replicas").items()
    }
    policy = dict(spec.pop("runPolicy", {}))
    scheduling = {"scheduleTimeoutSeconds": PATIENCE_S, **(policy.get("schedulingPolicy") or {})}
    document = manifests.job(
        kind,
        roles,
        version=version,
        name=given["job_name"],
        namespace=given["namespace"],
        runPolicy={**policy, "schedulingPolicy": scheduling},
        **spec,
    )
    return manifests.understood(document)


# ---------------------------------------------------------------------- history


def true_conditions(given: Mapping[str, Any]) -> set[str]:
    conditions = given.get("status", {}).get("conditions", [])
    return {each["type"] for each in conditions if each["status"] == "True"}


def given_conditions(given: Mapping[str, Any]) -> set[str]:
    """Conditions that the job has or had."""
    return {each["type"] for each in given.get("status", {}).get("conditions", [])}


def begun(given: Mapping[str, Any], submission: Submission) -> Bench:
    """A control plane that was given the job at its start time."""
    status, holds = given.get("status", {}), true_conditions(given)
    ended = status.get("completionTime", given["clock_s"])
    bench = Bench(float(status.get("startTime", ended)))
    # A job that is to be suspended now, and has been started before, was not submitted suspended.
    began = bool(holds - {"Created", "Suspended"}) or bool(given["pods"])
    was_suspended = "Suspended" in given_conditions(given)
    about = {"namespace": submission.namespace, "name": submission.name}
    if was_suspended and "Running" in given_conditions(given) - holds:
        # It ran, was suspended, and has perhaps been resumed.
        bench.submit(Submission(*_fields(submission)[:3], suspended=False))
        start_all(bench)
        bench.ask(c.SuspendJob(**about))
        job = bench.look()
        assert job is not None
        assert job.attempt is not None
        bench.report(gone=list(range(len(job.attempt.ranks))))
        if "Suspended" not in holds:
            bench.ask(c.ResumeJob(**about))
        return bench
    suspended = (submission.suspended and not began) or was_suspended
    bench.submit(Submission(*_fields(submission)[:3], suspended))
    if was_suspended and "Suspended" not in holds:
        bench.ask(c.ResumeJob(namespace=submission.namespace, name=submission.name))
    return bench


def bring_to_status(bench: Bench, given: Mapping[str, Any]) -> None:
    """Reports lead the job to the state of the given status."""
    holds = true_conditions(given)
    suspended_before = "Suspended" in given_conditions(given) and "Running" not in holds
    if given_conditions(given) & {"Running", "Restarting"} and not suspended_before:
        start_all(bench)
    if "Restarting" in holds:
        fail_once(bench)
    if holds & {"Succeeded", "Failed"}:
        ended = given["status"].get("completionTime", bench.now)
        if ended > bench.now:
            bench.env.run(until=ended)
        (succeed if "Succeeded" in holds else fail)(bench)


def _fields(submission: Submission) -> tuple[Any, ...]:
    return submission.namespace, submission.name, submission.spec, submission.suspended


def start_all(bench: Bench) -> None:
    job = bench.look()
    assert job is not None
    if job.attempt is not None:
        bench.report(started=list(range(len(job.attempt.ranks))))


def fail_once(bench: Bench) -> None:
    """One rank that may start again exits by a signal."""
    job = bench.look()
    assert job is not None
    may = [
        rank
        for rank in range(job.spec.size)
        if job.spec.role_of(rank)[0].restart is not RestartRule.NEVER
    ]
    bench.report(exited=[Exit(rank, 137) for rank in may[:1]])


def succeed(bench: Bench) -> None:
    job = bench.look()
    assert job is not None
    rule = job.spec.done_when
    deciders = list(job.spec.ranks_of(rule.role))[: 1 if rule.first or rule.any else None]
    bench.report(started=deciders, exited=[Exit(rank, 0) for rank in deciders])
    assert bench.job is not None
    assert bench.job.finished, bench.job


def fail(bench: Bench) -> None:
    """The first rank fails until the job is given up."""
    for _ in range(100):
        job = bench.look()
        assert job is not None
        if job.finished:
            return
        bench.report(started=[0], exited=[Exit(0, 1)])
        bench.env.run(until=bench.env.now + 0.001)
        deadline = bench.engine.world.next_deadline()
        if not bench.job.finished and deadline is not None:  # type: ignore[union-attr]
            bench.env.run(until=deadline + 0.001)
    raise AssertionError("the job would not fail")


# ---------------------------------------------------------------------- now


def put_pods(bench: Bench, given: Mapping[str, Any]) -> None:
    """The given pods, as they were made for the job's current attempt, and their services."""
    job = bench.look()
    if job is None or job.attempt is None:
        return
    rendering = bench.rendering()
    names = []
    for entry in given["pods"]:
        document = _document(rendering, job, entry)
        bench.store.put({**document, "status": pod_status(entry, _container(job, entry))})
        names.append(document["metadata"]["name"])
        if entry.get("terminating"):
            document["metadata"]["deletionTimestamp"] = "1970-01-01T00:16:40Z"
    listed = given.get("services")
    wanted = set(listed) if isinstance(listed, list) else set(names)
    labels = {"muster.dev/job-id": JOB}
    made = {each["metadata"]["name"]: each for each in rendering.services()}
    for name in sorted(wanted):
        stray = {"kind": "Service", "metadata": {"name": name, "labels": labels}, "spec": {}}
        bench.store.put(made.get(name, stray))


def _document(rendering: Any, job: Job, entry: Mapping[str, Any]) -> dict[str, Any]:
    ranks = job.spec.ranks_of(entry["type"])
    if entry["index"] < len(ranks):
        return rendering.pod(ranks[entry["index"]])
    # A pod of a replica that the job has no more.
    like = rendering.pod(ranks[0])
    name = like["metadata"]["name"].rpartition("-")[0] + f"-{entry['index']}"
    return {**like, "metadata": {**like["metadata"], "name": name}}


def _container(job: Job, entry: Mapping[str, Any]) -> str:
    role = job.spec.role(entry["type"])
    assert role is not None
    return role.container


def pod_status(entry: Mapping[str, Any], container: str) -> dict[str, Any]:
    """A pod's status as a kubelet writes it."""
    status: dict[str, Any] = {"phase": entry["phase"]}
    if "podReason" in entry:
        status["reason"] = entry["podReason"]
    state: dict[str, Any] = {"running": {}} if entry["phase"] == "Running" else {}
    if "exitCode" in entry:
        state = {"terminated": {"exitCode": entry["exitCode"]}}
    if state or "restartCount" in entry:
        container_status = {
            "name": container,
            "state": state,
            "restartCount": entry.get("restartCount", 0),
        }
        status["containerStatuses"] = [container_status]
    return status


def change_mind(bench: Bench, given: Mapping[str, Any], submission: Submission) -> None:
    """What the spec asks for now and did not ask for before: to suspend, or to go on."""
    job = bench.look()
    if job is None or job.finished:
        return
    about = {"namespace": job.namespace, "name": job.name}
    was_suspended = job.phase.value == "Suspended"
    if submission.suspended and not was_suspended:
        bench.ask(c.SuspendJob(**about))
    elif was_suspended and not submission.suspended:
        bench.ask(c.ResumeJob(**about))


# ---------------------------------------------------------------------- comparing


KNOWN = (
    "pods_created",
    "pods_deleted",
    "services_created",
    "services_deleted",
    "job_deleted",
    "event_reasons",
    "conditions",
    "replicaStatuses",
    "startTime_set",
    "completionTime_set",
    "failure_cause",
    "requeue_after_seconds",
    "skipped",
)


def differences(outcome: Outcome, expect: Mapping[str, Any]) -> list[str]:
    """Where what came out is not what was expected."""
    lines: list[str] = []
    require_known(expect, KNOWN)

    def same(what: str, ours: object, theirs: object) -> None:
        if ours != theirs:
            lines.append(f"{what}: ours {ours}, theirs {theirs}")

    same("pods created", outcome.created, sorted(expect["pods_created"]))
    same("services created", outcome.services_created, sorted(expect["services_created"]))
    # What hangs on a job that was removed goes with it, upstream a little later.
    if not outcome.removed:
        same("pods deleted", outcome.deleted, sorted(expect["pods_deleted"]))
        same("services deleted", outcome.services_deleted, sorted(expect["services_deleted"]))
    same("job deleted", outcome.removed, expect["job_deleted"])
    same("event reasons", reasons(outcome, expect), sorted(expect["event_reasons"]))
    same(
        "conditions",
        conditions(outcome.status, expect["conditions"]),
        [tuple(each) for each in expect["conditions"]],
    )
    if expect["replicaStatuses"]:
        same("replicas", counts(outcome.status), plain_counts(expect["replicaStatuses"]))
    same("completion time", "completionTime" in outcome.status, expect["completionTime_set"])
    # A job that has pods has started; the operators set the time only at the end of a pass, to
    # which one that finds the job over its limits does not come: there it is as it was given.
    has_time = "startTime" in outcome.status
    if "failure_cause" in expect and outcome.given["pods"]:
        has_time = "startTime" in outcome.given.get("status", {})
    same("start time", has_time, expect["startTime_set"])
    if "skipped" in expect:
        same("skipped", outcome.status == {}, expect["skipped"])
    if "failure_cause" in expect:
        same("failed by", outcome.job.reason in FAILURE_CAUSES[expect["failure_cause"]], True)
    if "requeue_after_seconds" in expect:
        due = outcome.bench.engine.world.next_deadline()
        wait_s = None if due is None else due - outcome.bench.now
        same("wakes after", wait_s, expect["requeue_after_seconds"])
    return lines


def reasons(outcome: Outcome, expect: Mapping[str, Any]) -> list[str]:
    """A pass that finds the job over its limits ends before it looks at pods; ours has seen them."""
    unsaid = {"ExitedWithCode"} if "failure_cause" in expect else set()
    return [reason for reason in outcome.reasons if reason not in unsaid]


def conditions(
    status: Mapping[str, Any], expected: Sequence[Sequence[str]] = ()
) -> list[tuple[str, str, str]]:
    """Our conditions as (type, status, reason).

    The operators put Created on a job when they first hear of it, which a scenario leaves out
    unless its given status has it.
    """
    ours = [(each["type"], each["status"], each["reason"]) for each in status.get("conditions", [])]
    expected_types = {each[0] for each in expected}
    return [each for each in ours if each[0] != "Created" or "Created" in expected_types]


def counts(status: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    return plain_counts(status.get("replicaStatuses", {}))


def plain_counts(statuses: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    names = ("active", "succeeded", "failed")
    return {
        role: {name: counts.get(name, 0) for name in names} for role, counts in statuses.items()
    }
