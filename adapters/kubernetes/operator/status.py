"""The status of a resource: what its Kubeflow operator would write, and Muster's own part. Pure.

It depends on the job alone, so it can be written again at any time; where nothing differs, nothing
is written.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from adapters.kubernetes.observe.labels import Document
from adapters.kubernetes.operator.crds import SCALED, SCALED_ROLE
from adapters.kubernetes.operator.reconcile import REFUSED, generation_of
from controlplane.decisions.isolation import bounded_text
from controlplane.kinds.conditions import timestamp
from controlplane.kinds.kubeflow import legacy
from controlplane.kinds.kubeflow.kubeflow import JOB_ROLE, REPLICA_INDEX
from controlplane.kinds.registry import form_of, rank_environment
from controlplane.kinds.trainer import trainer
from controlplane.lifecycle.job import Job
from controlplane.messages import job_text, obstacle_text
from controlplane.model.errors import Rejected
from controlplane.model.phases import Phase, RankState

# The fields of a status that Muster may remove.
OURS = (
    "conditions",
    "replicaStatuses",
    "jobsStatus",
    "startTime",
    "completionTime",
    "phase",
    "state",
    "reason",
    "muster",
)
# The codes of refusals that last until the resource is changed; others are transient.
LASTING = frozenset({"invalid_manifest", "invalid_job", "unknown_kind", "cannot_convert"})
MESSAGE_CHARS_MAX = 4_000


def status_of(
    job: Job,
    shown: dict[str, Any] | None = None,
    *,
    generation: int,
    position: int,
    in_vain: Sequence[str] = (),
    problem: str = "",
) -> dict[str, Any]:
    """Return the status of a resource whose job exists.

    `shown` is the part in the form of the kind; None renders it here. `generation` and `position`
    are those that the status covers. `in_vain` are the paths of changes that were not applied.
    `problem` is why the kind could not render its part, "" if it could.
    """
    status = kind_status(job) if shown is None else shown
    muster: dict[str, Any] = {
        "state": job.phase.value,
        "ready": f"{_running(job)}/{job.spec.size}",
        "restarts": len(job.restarts),
        "queue": job.spec.queue,
        "gpus": job.spec.gpus,
        "observedGeneration": generation,
        "position": position,
    }
    messages = [problem and f"the rest of this status cannot be shown: {problem}", message_of(job)]
    if any(messages):
        muster["message"] = cut("; ".join(filter(None, messages)))
    if in_vain:
        muster["notApplied"] = not_applied(in_vain)
    return {**status, "muster": muster}


def unrendered(document: Document) -> dict[str, Any]:
    """Return the existing status without Muster's own part, for a kind that cannot render it."""
    known = document.get("status") or {}
    return {key: value for key, value in known.items() if key in OURS and key != "muster"}


def in_one_line(error: Exception) -> str:
    """Return type and message of an exception, with bounded length."""
    return f"{type(error).__name__}: {bounded_text(error)}"


def kind_status(job: Job) -> dict[str, Any]:
    """Return the status in the form of the job's kind; an exception of the kind is raised."""
    status = form_of(job.spec).status(job)
    if "conditions" in status:
        known = [_obstacle_text(job, each) for each in status["conditions"]]
        status = {**status, "conditions": known + _set_aside(job, known)}
    if job.spec.kind in SCALED and isinstance(status.get("replicaStatuses"), dict):
        status = {**status, "replicaStatuses": _with_selector(job, status["replicaStatuses"])}
    return status


def _set_aside(job: Job, others: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the condition that the job cannot start on the present cluster; empty if it can."""
    if job.obstacle is None or job.set_aside_at is None:
        return []
    at = timestamp(job.set_aside_at)
    condition = {
        "type": Phase.UNSCHEDULABLE.value,
        "status": "True",
        "reason": _camel(job.obstacle.code),
        "message": cut(obstacle_text(job.obstacle)),
        "lastTransitionTime": at,
    }
    # Only the conditions of some kinds have this field.
    if any("lastUpdateTime" in each for each in others):
        condition["lastUpdateTime"] = at
    return [condition]


# The operators' messages for conditions that have no message of their own.
_WORDS = {
    ("Created", "True"): "is created.",
    ("Running", "True"): "is running.",
    ("Running", "False"): "is not running.",
    ("Succeeded", "True"): "is successfully completed.",
    ("Suspended", "True"): "is suspended.",
    ("Suspended", "False"): "is resumed.",
    ("Failed", "True"): "was cancelled.",
}


def _obstacle_text(job: Job, condition: dict[str, Any]) -> dict[str, Any]:
    words = _WORDS.get((condition["type"], condition["status"]), "")
    if condition["message"] or not words:
        return condition
    return {**condition, "message": f"{job.spec.kind} {job.namespace}/{job.name} {words}"}


def _running(job: Job) -> int:
    ranks = () if job.attempt is None else job.attempt.ranks
    return sum(rank.state is RankState.RUNNING for rank in ranks)


def message_of(job: Job) -> str:
    """Return why the job waits, restarts, failed or is suspended; "" in other phases."""
    if job.obstacle is not None:
        return f"it is set aside: {obstacle_text(job.obstacle)}"
    if job.phase is Phase.QUEUED and job.wait_reason:
        return f"it waits: {job.wait_reason.replace('_', ' ')}"
    if job.phase in (Phase.RESTARTING, Phase.FAILED, Phase.SUSPENDED):
        return job_text(job)
    return ""


def _with_selector(job: Job, counts: Mapping[str, Any]) -> dict[str, Any]:
    """Add the label selector by which autoscalers find the pods of the role that they scale."""
    ranks = job.spec.ranks_of(SCALED_ROLE)
    if not ranks or SCALED_ROLE not in counts:
        return dict(counts)
    labels = rank_environment(job, ranks[0]).labels
    terms = [f"{k}={v}" for k, v in sorted(labels.items()) if k not in (REPLICA_INDEX, JOB_ROLE)]
    return {**counts, SCALED_ROLE: {**counts[SCALED_ROLE], "selector": ",".join(terms)}}


def not_applied(paths: Sequence[str]) -> str:
    """Return the message that changes at `paths` were not applied."""
    return (
        f"{', '.join(paths)}: changed in vain, because the job was submitted without; "
        "delete it and apply it again to run it so"
    )


# ------------------------------------------------------------------ refused resources


def refused_status(document: Document, refusal: Rejected, now: float) -> dict[str, Any]:
    """Return the status of a resource that was refused, with the reason."""
    message = cut(refusal.message)
    muster = {
        "state": REFUSED,
        "message": message,
        "observedGeneration": generation_of(document),
    }
    version, lasts = document["apiVersion"], refusal.code in LASTING
    if version == legacy.VERSION and lasts:
        # The operators of 2018 used the phase Failed for invalid resources only.
        return {"phase": "Failed", "state": "Failed", "reason": message, "muster": muster}
    kind = document["kind"]
    reason = f"{kind}Invalid" if lasts else _camel(refusal.code)
    # A resource that may still be admitted has not failed.
    condition_type, is_true = ("Failed", "True") if lasts else ("Created", "False")
    at = timestamp(now)
    condition = {
        "type": condition_type,
        "status": is_true,
        "reason": reason,
        "message": message,
        "lastTransitionTime": at,
    }
    if version != trainer.VERSION:
        condition["lastUpdateTime"] = at
    return {"conditions": [_kept(condition, document)], "muster": muster}


def _camel(code: str) -> str:
    return "".join(word.capitalize() for word in code.split("_"))


def _kept(condition: dict[str, Any], document: Document) -> dict[str, Any]:
    """Return the existing condition if it differs only in its times, else `condition`."""
    for known in (document.get("status") or {}).get("conditions") or ():
        if all(known.get(k) == v for k, v in condition.items() if not k.startswith("last")):
            return dict(known)
    return condition


def cut(text: str) -> str:
    """Shorten a message to `MESSAGE_CHARS_MAX` characters."""
    return text if len(text) <= MESSAGE_CHARS_MAX else f"{text[:MESSAGE_CHARS_MAX]}..."


# ------------------------------------------------------------------ patches


def status_patch(observed: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the merge patch from `observed` to `wanted`; empty if nothing differs.

    Fields of other clients, which are not in `OURS`, stay.
    """
    patch = _merge_patch({k: v for k, v in observed.items() if k in OURS}, wanted)
    return patch or {}


def _merge_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    patch: dict[str, Any] = dict.fromkeys(key for key in before if key not in after)
    for key, value in after.items():
        known = before.get(key)
        if isinstance(known, Mapping) and isinstance(value, Mapping):
            if inner := _merge_patch(known, value):
                patch[key] = inner
        elif known != value:
            patch[key] = value
    return patch
