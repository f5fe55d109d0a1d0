"""What to do about one custom resource, decided from it and its job. Pure.

Nothing is remembered: the same resource and job give the same verdict, so nothing is done twice or
missed after a restart or a repeated call.
"""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from adapters.kubernetes.observe.labels import Document, is_terminating
from adapters.kubernetes.operator.parse import left_to, read
from adapters.kubernetes.operator.spec_changes import ACTOR, SpecChanges, edits
from adapters.kubernetes.render.ownership import is_resource
from controlplane.decisions.isolation import platform_refusal
from controlplane.lifecycle.job import Job
from controlplane.model import commands as c
from controlplane.model.errors import Rejected
from controlplane.model.unsupported_constraints import refusal
from controlplane.state.world import World

# The final states of older statuses, which have no conditions, and the final conditions.
_OVER_STATES = ("Succeeded", "Failed")
_OVER_CONDITIONS = ("Succeeded", "Failed", "Complete")
# The state in the status of a resource that was not admitted as a job; see `status.py`.
REFUSED = "Refused"


class KnownJob(NamedTuple):
    """What the control plane knows about a resource."""

    job: Job | None
    # Whether it was submitted at any time.
    was_submitted: bool


class LeaveAlone(NamedTuple):
    """Another controller runs the resource, or it is over."""

    why: str = ""


class Submit(NamedTuple):
    """The resource is new: submit it as a job."""

    command: c.SubmitJob
    warnings: tuple[str, ...] = ()


class Refuse(NamedTuple):
    """The resource is not a valid job."""

    refusal: Rejected


class Remove(NamedTuple):
    """The job was removed, so delete the resource too."""


class Delete(NamedTuple):
    """The resource is being deleted, so delete its job."""

    command: c.DeleteJob


class Sync(NamedTuple):
    """The job exists: apply changes of the spec to it, and keep the status up to date."""

    job: Job
    edits: SpecChanges = SpecChanges()
    # Why the changed spec is invalid; the existing job continues unchanged.
    refusal: Rejected | None = None


Verdict = LeaveAlone | Submit | Refuse | Remove | Delete | Sync


def uid_of(document: Document) -> str:
    return str(document["metadata"]["uid"])


def submission_id(uid: str) -> str:
    """Return the id of the submit command; it makes repeated submissions harmless."""
    return f"{uid}/submit"


def look(world: World, uid: str) -> KnownJob:
    """Return what the control plane knows about the resource with `uid`."""
    return KnownJob(world.jobs.get(uid), submission_id(uid) in world.receipts)


def decide(
    document: Document, seen: KnownJob, leave: Collection[str] = (), *, binds_itself: bool = True
) -> Verdict:
    """Return what to do about a resource; an exception of its kind becomes a refusal.

    `leave` names the schedulers whose queued jobs are left alone. `binds_itself` is whether Muster
    binds pods, and so refuses constraints that it does not support.
    """
    job = seen.job
    if is_terminating(document):
        return LeaveAlone() if job is None or job.deleting else Delete(delete(job))
    if job is not None and is_resource(job):
        return _follow(document, job)
    if other := left_to(document, leave):
        return LeaveAlone(f"it is left to {other}")
    if seen.was_submitted:
        return Remove()
    if _is_over(document.get("status") or {}):
        return LeaveAlone("it was over before Muster saw it")
    try:
        return _submit(document, binds_itself=binds_itself)
    except Rejected as refusal:
        return Refuse(refusal)
    except Exception as error:  # noqa: BLE001 - a kind may raise anything; only this resource fails
        return Refuse(platform_refusal(error, "this resource"))


def _submit(document: Document, *, binds_itself: bool) -> Submit:
    submission, uid = read(document), uid_of(document)
    if binds_itself and (refused := refusal(submission.spec)) is not None:
        raise refused
    command = c.SubmitJob(
        id=submission_id(uid),
        actor=ACTOR,
        job=uid,
        namespace=submission.namespace,
        name=submission.name,
        spec=submission.spec,
        suspended=submission.suspended,
    )
    return Submit(command, submission.warnings)


def _follow(document: Document, job: Job) -> Sync:
    """Apply only changes since the observed generation.

    So changes that were requested through Muster's own API are not undone.
    """
    generation = generation_of(document)
    if job.deleting or generation == observed_generation(document):
        return Sync(job)
    try:
        return Sync(job, edits(job, read(document), generation))
    except Rejected as refusal:
        return Sync(job, refusal=refusal)
    except Exception as error:  # noqa: BLE001 - likewise; the job continues unchanged
        return Sync(job, refusal=platform_refusal(error, "this change"))


def delete(job: Job) -> c.DeleteJob:
    """Return the command that deletes a job whose resource is gone."""
    return c.DeleteJob(
        id=f"{job.id}/delete", actor=ACTOR, namespace=job.namespace, name=job.name, job=job.id
    )


def generation_of(document: Document) -> int:
    """Return the generation, which increases with every change of the spec; 0 if missing."""
    return int(document["metadata"].get("generation") or 0)


def observed_generation(document: Document) -> int:
    """Return the generation that the operator handled last; 0 if none."""
    return int(_ours(document).get("observedGeneration") or 0)


def observed_position(document: Document) -> int:
    """Return the log position up to which the resource's events are written; 0 if none."""
    return int(_ours(document).get("position") or 0)


def _ours(document: Document) -> Mapping[str, Any]:
    return (document.get("status") or {}).get("muster") or {}


def _is_over(status: Mapping[str, Any]) -> bool:
    """Return whether another controller has run it to its end; a refused resource has not run."""
    if (status.get("muster") or {}).get("state") == REFUSED:
        return False
    if status.get("state") in _OVER_STATES:
        return True
    return any(
        each.get("type") in _OVER_CONDITIONS and each.get("status") == "True"
        for each in status.get("conditions") or ()
    )
