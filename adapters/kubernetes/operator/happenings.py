"""What happened to a job, as events that `kubectl describe` shows below its resource. Pure.

An event's name says what it is about: the resource, and the place in the log or the generation that
it speaks of. So it can be written again after any doubt, and is there once.
"""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from adapters.kubernetes.kubernetes_events import notices_of, notices_of_plan
from adapters.kubernetes.marks import Document
from adapters.kubernetes.operator.judging import generation_of
from adapters.kubernetes.plan import Plan
from adapters.kubernetes.pods import Notice
from controlplane import events as e
from controlplane.errors import Rejected
from controlplane.faults import bounded_text
from controlplane.job import Job
from controlplane.kinds.conditions import timestamp

COMPONENT = "muster"
MESSAGE_CHARS_MAX = 1_000
# How long an API server keeps events, unless it is told otherwise; older ones are not worth writing.
KEPT_S = 3_600.0
PATHS = ("apiVersion", "kind")


class Happening(NamedTuple):
    """A notice with what makes it one of a kind."""

    key: str
    at: float
    notice: Notice
    # The place in the log, or 0 for what is not in it.
    position: int = 0


def happenings(job: Job, recorded: Sequence[e.Recorded]) -> Iterator[Happening]:
    """What recorded events of a job are worth telling.

    Raises nothing: whoever listens hears of other jobs too.
    """
    for each in recorded:
        try:
            told = [*_held(each.event), *notices_of(job, [each])]
        except Exception as error:  # noqa: BLE001 - a kind may raise anything
            told = [_not_shown(each.event, error)]
        for number, notice in enumerate(told):
            yield Happening(f"{each.position:x}-{number}", each.at, notice, each.position)


def _not_shown(event: e.Event, error: Exception) -> Notice:
    what = f"{type(event).__name__} cannot be shown in the words of this kind"
    told = f"{what}: {type(error).__name__}: {bounded_text(error)}"
    return Notice("NotShown", told, "Warning")


def _held(event: e.Event) -> Iterator[Notice]:
    """Why it waits: the one thing that people who wait want to know."""
    if isinstance(event, e.GangHeld):
        yield Notice("Waiting", event.message)
    elif isinstance(event, e.JobScaled):
        yield Notice("Scaled", f"{event.role} has {event.replicas} replicas now")


def refused(document: Document, refusal: Rejected, now: float) -> Happening:
    kind = document["kind"]
    notice = Notice(f"{kind}FailedValidation", refusal.message, "Warning")
    if refusal.code != "invalid_manifest":
        notice = Notice("Refused", refusal.message, "Warning")
    return about_generation(document, notice, now)


def in_vain(document: Document, told: str, now: float) -> Happening:
    return about_generation(document, Notice("NotApplied", told, "Warning"), now)


def about_generation(document: Document, notice: Notice, now: float) -> Happening:
    """Of something that was said about a resource as it stands; said again, it is the same."""
    return Happening(f"g{generation_of(document)}-{_digest(notice)}", now, notice)


def of_plan(job: Job, plan: Plan, now: float) -> list[Happening]:
    """What was made and deleted for an attempt; planned again, it is the same."""
    number = 0 if job.attempt is None else job.attempt.number
    turns = 0 if job.attempt is None else sum(each.incarnation for each in job.attempt.ranks)
    return [
        Happening(f"a{number}-{turns}-{_digest(notice)}", now, notice)
        for notice in notices_of_plan(plan)
    ]


def _digest(notice: Notice) -> str:
    return hashlib.sha256(f"{notice.reason}\n{notice.message}".encode()).hexdigest()[:12]


def event_document(involved: Document, happening: Happening) -> dict[str, Any]:
    """`involved` is the resource, or as much of it as names it."""
    metadata = involved["metadata"]
    name, namespace, uid = metadata["name"], metadata["namespace"], metadata["uid"]
    notice, at = happening.notice, timestamp(happening.at)
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{name}.{uid}.{happening.key}", "namespace": namespace},
        "involvedObject": {
            **{key: involved[key] for key in PATHS},
            "namespace": namespace,
            "name": name,
            "uid": uid,
        },
        "reason": notice.reason,
        "message": _cut(notice.message),
        "type": notice.type,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": COMPONENT,
    }


def _cut(text: str) -> str:
    return text if len(text) <= MESSAGE_CHARS_MAX else f"{text[:MESSAGE_CHARS_MAX]}..."
