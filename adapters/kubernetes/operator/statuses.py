"""The status of a resource: what its operator would have written, and Muster's own words. Pure.

It is read off the job alone, so it can be written again at any time; where nothing differs nothing is
written.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from adapters.kubernetes.marks import Document
from adapters.kubernetes.operator.definitions import SCALED, SCALED_ROLE
from adapters.kubernetes.operator.judging import REFUSED, generation_of
from controlplane.attempt import RankState
from controlplane.errors import Rejected
from controlplane.faults import bounded_text
from controlplane.job import Job, Phase
from controlplane.kinds import legacy, trainer
from controlplane.kinds.conditions import timestamp
from controlplane.kinds.kubeflow import JOB_ROLE, REPLICA_INDEX
from controlplane.kinds.registry import form_of, told_of
from controlplane.obstacles import in_words

# What of a status is ours to clear away.
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
# The refusals that will stand until the resource is changed; others may pass.
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
    """The status of a resource whose job lives: `shown` as the kind shows it, and Muster's own part.

    `problem` is why the kind could not show it, if so.
    """
    found = kind_status(job) if shown is None else shown
    muster: dict[str, Any] = {
        "state": job.phase.value,
        "ready": f"{_running(job)}/{job.spec.size}",
        "restarts": len(job.restarts),
        "queue": job.spec.queue,
        "gpus": job.spec.gpus,
        "observedGeneration": generation,
        "position": position,
    }
    told = [problem and f"the rest of this status cannot be shown: {problem}", message_of(job)]
    if any(told):
        muster["message"] = cut("; ".join(filter(None, told)))
    if in_vain:
        muster["notApplied"] = not_applied(in_vain)
    return {**found, "muster": muster}


def unrendered(document: Document) -> dict[str, Any]:
    """What stands in a resource's status already, for one whose kind cannot render it anew."""
    known = document.get("status") or {}
    return {key: value for key, value in known.items() if key in OURS and key != "muster"}


def in_one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {bounded_text(error)}"


def kind_status(job: Job) -> dict[str, Any]:
    """The status as the job's kind shows it; raises whatever the kind raises."""
    found = form_of(job.spec).status(job)
    if "conditions" in found:
        known = [_in_words(job, each) for each in found["conditions"]]
        found = {**found, "conditions": known + _set_aside(job, known)}
    if job.spec.kind in SCALED and isinstance(found.get("replicaStatuses"), dict):
        found = {**found, "replicaStatuses": _with_selector(job, found["replicaStatuses"])}
    return found


def _set_aside(job: Job, others: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """That the job could not start on the cluster as it is; gone as soon as it could."""
    if job.obstacle is None or job.set_aside_at is None:
        return []
    at = timestamp(job.set_aside_at)
    condition = {
        "type": Phase.UNSCHEDULABLE.value,
        "status": "True",
        "reason": _camel(job.obstacle.code),
        "message": cut(in_words(job.obstacle)),
        "lastTransitionTime": at,
    }
    # Not every kind's conditions have this field.
    if any("lastUpdateTime" in each for each in others):
        condition["lastUpdateTime"] = at
    return [condition]


# What the operators say with a condition that needs no reason.
_WORDS = {
    ("Created", "True"): "is created.",
    ("Running", "True"): "is running.",
    ("Running", "False"): "is not running.",
    ("Succeeded", "True"): "is successfully completed.",
    ("Suspended", "True"): "is suspended.",
    ("Suspended", "False"): "is resumed.",
    ("Failed", "True"): "was cancelled.",
}


def _in_words(job: Job, condition: dict[str, Any]) -> dict[str, Any]:
    words = _WORDS.get((condition["type"], condition["status"]), "")
    if condition["message"] or not words:
        return condition
    return {**condition, "message": f"{job.spec.kind} {job.namespace}/{job.name} {words}"}


def _running(job: Job) -> int:
    ranks = () if job.attempt is None else job.attempt.ranks
    return sum(rank.state is RankState.RUNNING for rank in ranks)


def message_of(job: Job) -> str:
    """Why it waits, restarts or ended, as far as the job itself says it."""
    if job.obstacle is not None:
        return f"it is set aside: {in_words(job.obstacle)}"
    if job.phase is Phase.QUEUED and job.held:
        return f"it waits: {job.held.replace('_', ' ')}"
    if job.phase in (Phase.RESTARTING, Phase.FAILED, Phase.SUSPENDED):
        return job.message
    return ""


def _with_selector(job: Job, counts: Mapping[str, Any]) -> dict[str, Any]:
    """With how autoscalers find the pods of the role that they scale."""
    ranks = job.spec.ranks_of(SCALED_ROLE)
    if not ranks or SCALED_ROLE not in counts:
        return dict(counts)
    labels = told_of(job, ranks[0]).labels
    terms = [f"{k}={v}" for k, v in sorted(labels.items()) if k not in (REPLICA_INDEX, JOB_ROLE)]
    return {**counts, SCALED_ROLE: {**counts[SCALED_ROLE], "selector": ",".join(terms)}}


def not_applied(paths: Sequence[str]) -> str:
    return (
        f"{', '.join(paths)}: changed in vain, because the job was submitted without; "
        "delete it and apply it again to run it so"
    )


# ------------------------------------------------------------------ what was not let in


def refused_status(document: Document, refusal: Rejected, now: float) -> dict[str, Any]:
    """The status of a resource that is no job as it stands; what is wrong, and where."""
    told = cut(refusal.message)
    muster = {
        "state": REFUSED,
        "message": told,
        "observedGeneration": generation_of(document),
    }
    version, lasts = document["apiVersion"], refusal.code in LASTING
    if version == legacy.VERSION and lasts:
        # The only thing that the operators of 2018 called a failed phase.
        return {"phase": "Failed", "state": "Failed", "reason": told, "muster": muster}
    kind = document["kind"]
    reason = f"{kind}Invalid" if lasts else _camel(refusal.code)
    # What may still be let in has not failed.
    said = ("Failed", "True") if lasts else ("Created", "False")
    at = timestamp(now)
    condition = {
        "type": said[0],
        "status": said[1],
        "reason": reason,
        "message": told,
        "lastTransitionTime": at,
    }
    if version != trainer.VERSION:
        condition["lastUpdateTime"] = at
    return {"conditions": [_kept(condition, document)], "muster": muster}


def _camel(code: str) -> str:
    return "".join(word.capitalize() for word in code.split("_"))


def _kept(condition: dict[str, Any], document: Document) -> dict[str, Any]:
    """The one that stands there already, if it says the same: then it is not new."""
    for known in (document.get("status") or {}).get("conditions") or ():
        if all(known.get(k) == v for k, v in condition.items() if not k.startswith("last")):
            return dict(known)
    return condition


def cut(text: str) -> str:
    return text if len(text) <= MESSAGE_CHARS_MAX else f"{text[:MESSAGE_CHARS_MAX]}..."


# ------------------------------------------------------------------ what to write


def status_patch(observed: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """A merge patch of the status; empty where nothing differs. What others wrote there stays."""
    found = _merge_patch({k: v for k, v in observed.items() if k in OURS}, wanted)
    return found or {}


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
