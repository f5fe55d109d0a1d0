"""Notices about a job with the reasons of the Kubeflow operators, for `kubectl describe`. Pure.

Each notice comes from one recorded event or one plan, so none is repeated. The operators repeat
some of them in every reconciliation, which does not help the reader.
"""

from collections.abc import Iterable, Iterator, Sequence

from adapters.kubernetes.reconcile.plan import Plan
from adapters.kubernetes.render.pods import Notice
from controlplane.kinds.registry import form_of
from controlplane.lifecycle.job import Job
from controlplane.messages import failure_text, restart_text
from controlplane.model import events as e
from controlplane.model.failures import Cause

# Causes of restarts that are no failure, or need no attention: the pod was gone and is created
# again.
QUIET_CAUSES = frozenset({Cause.SCALED, Cause.VANISHED})
# Kinds whose operator also emits an event when a job is created, or when it runs.
EMITS_CREATED = frozenset({("MPIJob", "kubeflow.org/v2beta1")})
EMITS_RUNNING = frozenset({"MPIJob"})
# Kinds whose operator reports a failure with the reason of the condition.
EMITS_REASON = frozenset({"MPIJob"})
# Kinds whose operator emits an event when a job is deleted at the end of its time to live.
EMITS_DELETED = frozenset({"TFJob", "XGBoostJob", "MPIJob"})
# Muster's failure reasons that are shown as warnings.
WARNED_FAILURES = frozenset({"permanent_exit_code"})


def notices_of(job: Job, recorded: Iterable[e.Recorded]) -> list[Notice]:
    """Return the notices for recorded events of a job; empty for a job of another controller."""
    if job.spec.is_external:
        return []
    # Exits of ranks that are stopped because the job is over are no news.
    ended = job.finished_at
    return [
        notice
        for each in recorded
        if ended is None or each.at <= ended or not isinstance(each.event, e.RanksExited)
        for notice in _notices(job, each.event)
    ]


def _notices(job: Job, event: e.Event) -> Iterator[Notice]:
    kind = job.spec.kind
    match event:
        case e.JobSubmitted() if (kind, job.spec.version) in EMITS_CREATED:
            yield Notice(f"{kind}Created", f"{kind} {job.namespace}/{job.name} is created.")
        case e.GangStarted() if kind in EMITS_RUNNING:
            yield Notice(f"{kind}Running", f"{kind} {job.namespace}/{job.name} is running.")
        case e.RanksExited():
            for end in event.exits:
                if end.code is not None:
                    text = f"{_name(job, end.rank)} exited with code {end.code}"
                    yield Notice("ExitedWithCode", text)
        case e.RankRestarting() | e.JobRestarting() if event.restart.cause not in QUIET_CAUSES:
            yield Notice(f"{kind}Restarting", restart_text(event.restart), "Warning")
        case e.JobSucceeded():
            yield Notice(f"{kind}Succeeded", f"{kind} {job.namespace}/{job.name} is done.")
        case e.JobFailed():
            reason, message = _failure(job, event)
            warned = event.reason in WARNED_FAILURES or kind in EMITS_REASON
            yield Notice(reason, message, "Warning" if warned else "Normal")
        case e.JobCancelled():
            yield Notice(f"{kind}Cancelled", f"{kind} {job.namespace}/{job.name} was cancelled.")
        case e.JobRemoved() if kind in EMITS_DELETED:
            yield Notice("SuccessfulDeleteJob", f"{kind} {job.namespace}/{job.name} is deleted.")
        case e.JobSuspended():
            yield Notice(f"{kind}Suspended", f"{kind} {job.namespace}/{job.name} is suspended.")
        case e.JobResumed():
            yield Notice(f"{kind}Resumed", f"{kind} {job.namespace}/{job.name} is resumed.")
        case _:
            # All other events are only in Muster's own log.
            pass


def _failure(job: Job, event: e.JobFailed) -> tuple[str, str]:
    """Return reason and message of a failure; for kinds in EMITS_REASON those of the job's status."""
    usual = f"{job.spec.kind}Failed", failure_text(event.failure)
    if job.spec.kind not in EMITS_REASON:
        return usual
    try:
        for each in form_of(job.spec).status(job).get("conditions", ()):
            if each["type"] == "Failed" and each["status"] == "True":
                return each["reason"], each["message"]
    except Exception:  # noqa: BLE001 - if the kind raises, the default reason and message are used
        return usual
    return usual


def _name(job: Job, rank: int) -> str:
    return job.spec.rank_name(rank) if rank < job.spec.size else f"rank {rank}"


# The operators emit events about these kinds of objects only.
REPORTED_KINDS = ("Pod", "Service", "PodGroup")


# More objects of one kind than this are reported in one event: a gang of a thousand would otherwise
# cost as many events as pods.
SINGLE_MAX = 16


def notices_of_plan(plan: Plan) -> list[Notice]:
    """Return notices about a plan: its objects, its conflicts, and unused fields of templates."""
    made: Sequence[tuple[str, str]] = [(d["kind"], d["metadata"]["name"]) for d in plan.create]
    notices = [*_of_objects("Create", made), *_of_objects("Delete", plan.delete)]
    conflicts = [Notice(each.reason, each.message, "Warning") for each in plan.conflicts]
    return [*plan.notices, *notices, *conflicts]


def _of_objects(verb: str, objects: Sequence[tuple[str, str]]) -> Iterator[Notice]:
    for kind in REPORTED_KINDS:
        names = [name for each, name in objects if each == kind]
        reason, done = f"Successful{verb}{kind}", f"{verb.lower()}d"
        if len(names) > SINGLE_MAX:
            yield Notice(reason, f"{done} {len(names)} {kind}s, {names[0]} to {names[-1]}")
        else:
            yield from (Notice(reason, f"{done} {kind} {name}") for name in names)
