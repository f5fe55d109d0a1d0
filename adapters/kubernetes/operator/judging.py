"""What is to be done about one resource, read off it and off the job that it became. Pure.

Nothing is remembered here: the same resource and the same job lead to the same verdict, so after any
restart, and however often it is asked, nothing is done twice and nothing is missed.
"""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from adapters.kubernetes.marks import Document, is_terminating
from adapters.kubernetes.operator.edits import ACTOR, Edits, edits
from adapters.kubernetes.operator.reading import left_to, read
from adapters.kubernetes.ownership import is_resource
from controlplane import commands as c
from controlplane.errors import Rejected
from controlplane.faults import platform_refusal
from controlplane.job import Job
from controlplane.unheeded_constraints import refusal
from controlplane.world import World

# The states that older statuses have in place of conditions.
_OVER_STATES = ("Succeeded", "Failed")
_OVER_CONDITIONS = ("Succeeded", "Failed", "Complete")
# The state that a resource has while its job was not let in; see `statuses`.
REFUSED = "Refused"


class Seen(NamedTuple):
    """What the control plane knows of a resource."""

    job: Job | None
    # Whether it became a job at some time.
    was_submitted: bool


class LeaveAlone(NamedTuple):
    """It is somebody else's, or over for good."""

    why: str = ""


class Submit(NamedTuple):
    command: c.SubmitJob
    warnings: tuple[str, ...] = ()


class Refuse(NamedTuple):
    """It cannot be a job as it is."""

    refusal: Rejected


class Remove(NamedTuple):
    """Its job is over and forgotten, so it goes too."""


class Delete(NamedTuple):
    """Somebody deletes it, and so its job."""

    command: c.DeleteJob


class Follow(NamedTuple):
    """Its job lives: what was changed is carried over, and its status is kept."""

    job: Job
    edits: Edits = Edits()
    # Why what is written there now makes no job; the one that lives goes on as it was.
    refusal: Rejected | None = None


Verdict = LeaveAlone | Submit | Refuse | Remove | Delete | Follow


def uid_of(document: Document) -> str:
    return str(document["metadata"]["uid"])


def submission_id(uid: str) -> str:
    """The command's id: however often it is sent, the job is submitted once."""
    return f"{uid}/submit"


def look(world: World, uid: str) -> Seen:
    return Seen(world.jobs.get(uid), submission_id(uid) in world.receipts)


def judge(
    document: Document, seen: Seen, leave: Collection[str] = (), *, binds_itself: bool = True
) -> Verdict:
    """What is to be done; `leave` names the schedulers whose queues are left alone.

    `binds_itself` is whether Muster binds pods, and so refuses requirements that it cannot keep to.
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
    except Exception as error:  # noqa: BLE001 - a kind may raise anything; it concerns this resource
        return Refuse(platform_refusal(error, "this resource"))


def _submit(document: Document, *, binds_itself: bool) -> Submit:
    found, uid = read(document), uid_of(document)
    if binds_itself and (refused := refusal(found.spec)) is not None:
        raise refused
    command = c.SubmitJob(
        id=submission_id(uid),
        actor=ACTOR,
        job=uid,
        namespace=found.namespace,
        name=found.name,
        spec=found.spec,
        suspended=found.suspended,
    )
    return Submit(command, found.warnings)


def _follow(document: Document, job: Job) -> Follow:
    """Only what was changed since it was last looked at: what people ask of Muster itself stands."""
    generation = generation_of(document)
    if job.deleting or generation == observed_generation(document):
        return Follow(job)
    try:
        return Follow(job, edits(job, read(document), generation))
    except Rejected as refusal:
        return Follow(job, refusal=refusal)
    except Exception as error:  # noqa: BLE001 - likewise; the job goes on as it was
        return Follow(job, refusal=platform_refusal(error, "this change"))


def delete(job: Job) -> c.DeleteJob:
    return c.DeleteJob(
        id=f"{job.id}/delete", actor=ACTOR, namespace=job.namespace, name=job.name, job=job.id
    )


def generation_of(document: Document) -> int:
    """It counts up with every change of the spec."""
    return int(document["metadata"].get("generation") or 0)


def observed_generation(document: Document) -> int:
    return int(_ours(document).get("observedGeneration") or 0)


def observed_position(document: Document) -> int:
    """Up to where in the log Kubernetes has been told what happened to it."""
    return int(_ours(document).get("position") or 0)


def _ours(document: Document) -> Mapping[str, Any]:
    return (document.get("status") or {}).get("muster") or {}


def _is_over(status: Mapping[str, Any]) -> bool:
    """Whether it was run to its end by whoever had it before; what we refused was not."""
    if (status.get("muster") or {}).get("state") == REFUSED:
        return False
    if status.get("state") in _OVER_STATES:
        return True
    return any(
        each.get("type") in _OVER_CONDITIONS and each.get("status") == "True"
        for each in status.get("conditions") or ()
    )
