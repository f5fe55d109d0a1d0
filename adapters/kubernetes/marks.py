"""The labels by which Muster knows its own objects again, whoever holds the watch."""

from collections.abc import Mapping
from typing import Any, NamedTuple

JOB_ID = "muster.dev/job-id"
ATTEMPT = "muster.dev/attempt"
RANK = "muster.dev/rank"
INCARNATION = "muster.dev/incarnation"
# The control plane that made an object: one log, one instance.
INSTANCE = "muster.dev/instance"

# A Kubernetes object as JSON has it. What was rendered or read is never changed in place.
Document = Mapping[str, Any]


class Mark(NamedTuple):
    """Which run of which rank a pod is."""

    job: str
    attempt: int
    rank: int
    incarnation: int

    def labels(self) -> dict[str, str]:
        return {
            JOB_ID: self.job,
            ATTEMPT: str(self.attempt),
            RANK: str(self.rank),
            INCARNATION: str(self.incarnation),
        }


def mark_of(pod: Document) -> Mark | None:
    """The mark of a pod of ours; None for other people's pods, and for labels that make no sense."""
    labels = labels_of(pod)
    if JOB_ID not in labels:
        return None
    try:
        numbers = [int(labels[name]) for name in (ATTEMPT, RANK, INCARNATION)]
    except (KeyError, ValueError):
        return None
    return Mark(labels[JOB_ID], *numbers)


def labels_of(document: Document) -> Mapping[str, str]:
    return document.get("metadata", {}).get("labels") or {}


def name_of(document: Document) -> str:
    return str(document["metadata"]["name"])


def is_terminating(document: Document) -> bool:
    return bool(document.get("metadata", {}).get("deletionTimestamp"))
