"""The labels that identify Muster's own objects, across restarts and changes of leader."""

from collections.abc import Mapping
from typing import Any

from controlplane.lifecycle.job import Job
from controlplane.lifecycle.runs import RankRun, current_run

JOB_ID = "muster.dev/job-id"
ATTEMPT = "muster.dev/attempt"
RANK = "muster.dev/rank"
INCARNATION = "muster.dev/incarnation"
# The control plane that created an object: each log has one instance name.
INSTANCE = "muster.dev/instance"

# A Kubernetes object as decoded JSON. Rendered and read documents are never modified in place.
Document = Mapping[str, Any]


def run_labels(run: RankRun) -> dict[str, str]:
    """Return the labels of the pod of a run."""
    return {
        JOB_ID: run.job,
        ATTEMPT: str(run.attempt),
        RANK: str(run.rank),
        INCARNATION: str(run.incarnation),
    }


def run_of(pod: Document) -> RankRun | None:
    """Return the run of a pod, or None if the labels are missing or not numbers."""
    labels = labels_of(pod)
    if JOB_ID not in labels:
        return None
    try:
        numbers = [int(labels[name]) for name in (ATTEMPT, RANK, INCARNATION)]
    except (KeyError, ValueError):
        return None
    return RankRun(labels[JOB_ID], *numbers)


def is_current(job: Job, rank: int, pod: Document) -> bool:
    """Return whether `pod` belongs to the rank's present run."""
    if job.attempt is None or rank >= len(job.attempt.ranks):
        return False
    return run_of(pod) == current_run(job, rank)


def labels_of(document: Document) -> Mapping[str, str]:
    return document.get("metadata", {}).get("labels") or {}


def name_of(document: Document) -> str:
    return str(document["metadata"]["name"])


def is_terminating(document: Document) -> bool:
    return bool(document.get("metadata", {}).get("deletionTimestamp"))
