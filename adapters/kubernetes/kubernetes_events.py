"""What `kubectl describe` should say about a job: events with the reasons that the operators use.

Each is read off one recorded event or one thing done, so none is told twice. The operators tell
some of them again in every pass; a person who reads them wants to know what happened.
"""

from collections.abc import Iterable, Iterator, Sequence

from adapters.kubernetes.plan import Plan
from adapters.kubernetes.pods import Notice
from controlplane import events as e
from controlplane.job import Job
from controlplane.kinds.registry import form_of
from controlplane.model import Cause

# Restarts for which nothing went wrong, or nothing that a person need look at: the pod was gone
# and is made again.
QUIET_CAUSES = frozenset({Cause.SCALED, Cause.VANISHED})
# Kinds whose operator also says that a job was created, or that it runs.
SAYS_CREATED = frozenset({("MPIJob", "kubeflow.org/v2beta1")})
SAYS_RUNNING = frozenset({"MPIJob"})
# Kinds whose operator says why a job failed with the reason of its condition.
SAYS_WHY = frozenset({"MPIJob"})
# Kinds whose operator says that a job was deleted when its time to live was over.
SAYS_DELETED = frozenset({"TFJob", "XGBoostJob", "MPIJob"})
# Reasons of ours for a failure that are worth a warning.
WARNED_FAILURES = frozenset({"permanent_exit_code"})


def notices_of(job: Job, recorded: Iterable[e.Recorded]) -> list[Notice]:
    """What happened to a job, in the operators' words."""
    if job.spec.is_external:
        return []
    # How ranks end that are stopped because the job is over is no news.
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
        case e.JobSubmitted() if (kind, job.spec.version) in SAYS_CREATED:
            yield Notice(f"{kind}Created", f"{kind} {job.namespace}/{job.name} is created.")
        case e.GangStarted() if kind in SAYS_RUNNING:
            yield Notice(f"{kind}Running", f"{kind} {job.namespace}/{job.name} is running.")
        case e.RanksExited():
            for end in event.exits:
                if end.code is not None:
                    told = f"{_name(job, end.rank)} exited with code {end.code}"
                    yield Notice("ExitedWithCode", told)
        case e.RankRestarting() | e.JobRestarting() if event.restart.cause not in QUIET_CAUSES:
            yield Notice(f"{kind}Restarting", event.restart.message, "Warning")
        case e.JobSucceeded():
            yield Notice(f"{kind}Succeeded", f"{kind} {job.namespace}/{job.name} is done.")
        case e.JobFailed():
            reason, message = _failure(job, event)
            warned = event.reason in WARNED_FAILURES or kind in SAYS_WHY
            yield Notice(reason, message, "Warning" if warned else "Normal")
        case e.JobCancelled():
            yield Notice(f"{kind}Cancelled", f"{kind} {job.namespace}/{job.name} was cancelled.")
        case e.JobRemoved() if kind in SAYS_DELETED:
            yield Notice("SuccessfulDeleteJob", f"{kind} {job.namespace}/{job.name} is deleted.")
        case e.JobSuspended():
            yield Notice(f"{kind}Suspended", f"{kind} {job.namespace}/{job.name} is suspended.")
        case e.JobResumed():
            yield Notice(f"{kind}Resumed", f"{kind} {job.namespace}/{job.name} is resumed.")
        case _:
            # Everything else is in Muster's own log, and needs no word here.
            pass


def _failure(job: Job, event: e.JobFailed) -> tuple[str, str]:
    """The reason and the message of a failure, for some kinds those of the job's own status."""
    usual = f"{job.spec.kind}Failed", event.message
    if job.spec.kind not in SAYS_WHY:
        return usual
    try:
        for each in form_of(job.spec).status(job).get("conditions", ()):
            if each["type"] == "Failed" and each["status"] == "True":
                return each["reason"], each["message"]
    except Exception:  # noqa: BLE001 - without the kind's words there are still the usual ones
        return usual
    return usual


def _name(job: Job, rank: int) -> str:
    return job.spec.rank_name(rank) if rank < job.spec.size else f"rank {rank}"


# The operators have words for these kinds of objects only.
TOLD_KINDS = ("Pod", "Service", "PodGroup")


# More objects of one kind than this are told of in one line: a gang of a thousand would otherwise
# cost as many events as pods.
SINGLE_MAX = 16


def notices_of_plan(plan: Plan) -> list[Notice]:
    """What was created and deleted, once the plan has been carried out."""
    made: Sequence[tuple[str, str]] = [(d["kind"], d["metadata"]["name"]) for d in plan.create]
    told = [*_of_objects("Create", made), *_of_objects("Delete", plan.delete)]
    return [*told, *(Notice(each.reason, each.message, "Warning") for each in plan.conflicts)]


def _of_objects(verb: str, objects: Sequence[tuple[str, str]]) -> Iterator[Notice]:
    for kind in TOLD_KINDS:
        names = [name for each, name in objects if each == kind]
        reason, done = f"Successful{verb}{kind}", f"{verb.lower()}d"
        if len(names) > SINGLE_MAX:
            yield Notice(reason, f"{done} {len(names)} {kind}s, {names[0]} to {names[-1]}")
        else:
            yield from (Notice(reason, f"{done} {kind} {name}") for name in names)
