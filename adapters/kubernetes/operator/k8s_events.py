"""A job's history as Kubernetes events, which `kubectl describe` shows below its resource. Pure.

The name of an event contains the resource and the log position, generation or attempt that it is
about. So an event can be written again when in doubt, and exists once.
"""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from adapters.kubernetes.observe.labels import Document
from adapters.kubernetes.operator.event_reasons import notices_of, notices_of_plan
from adapters.kubernetes.operator.reconcile import generation_of
from adapters.kubernetes.reconcile.plan import Plan
from adapters.kubernetes.render.pods import Notice
from controlplane.decisions.isolation import bounded_text
from controlplane.kinds.conditions import timestamp
from controlplane.lifecycle.job import Job
from controlplane.messages import wait_text
from controlplane.model import events as e
from controlplane.model.errors import Rejected

COMPONENT = "muster"
MESSAGE_CHARS_MAX = 1_000
# How long an API server keeps events by default; older ones are not worth writing.
KEPT_S = 3_600.0
PATHS = ("apiVersion", "kind")


class EventToEmit(NamedTuple):
    """A notice with its time and the unique part of its name."""

    key: str
    at: float
    notice: Notice
    # The log position, or 0 for a notice that does not come from the log.
    position: int = 0


def emitted_events(job: Job, recorded: Sequence[e.Recorded]) -> Iterator[EventToEmit]:
    """Yield the Kubernetes events for recorded events of a job; some have none.

    It does not raise, because the caller handles events of other jobs too: an event that cannot be
    rendered gives a NotShown warning.
    """
    for each in recorded:
        try:
            notices = [*_held(each.event), *notices_of(job, [each])]
        except Exception as error:  # noqa: BLE001 - a kind may raise anything
            notices = [_not_shown(each.event, error)]
        for number, notice in enumerate(notices):
            yield EventToEmit(f"{each.position:x}-{number}", each.at, notice, each.position)


def _not_shown(event: e.Event, error: Exception) -> Notice:
    what = f"{type(event).__name__} cannot be shown in the words of this kind"
    message = f"{what}: {type(error).__name__}: {bounded_text(error)}"
    return Notice("NotShown", message, "Warning")


def _held(event: e.Event) -> Iterator[Notice]:
    """Yield Muster's own notices, which the Kubeflow operators do not have: waiting and scaling."""
    if isinstance(event, e.GangWaiting):
        yield Notice("Waiting", wait_text(event.wait))
    elif isinstance(event, e.JobScaled):
        yield Notice("Scaled", f"{event.role} has {event.replicas} replicas now")


def refused(document: Document, refusal: Rejected, now: float) -> EventToEmit:
    """Return the warning that a resource was refused."""
    kind = document["kind"]
    notice = Notice(f"{kind}FailedValidation", refusal.message, "Warning")
    if refusal.code != "invalid_manifest":
        notice = Notice("Refused", refusal.message, "Warning")
    return about_generation(document, notice, now)


def in_vain(document: Document, message: str, now: float) -> EventToEmit:
    """Return the warning that a change of a resource was not applied; `message` is the reason."""
    return about_generation(document, Notice("NotApplied", message, "Warning"), now)


def about_generation(document: Document, notice: Notice, now: float) -> EventToEmit:
    """Return an event about the present generation of a resource; a repeated one is identical."""
    return EventToEmit(f"g{generation_of(document)}-{_digest(notice)}", now, notice)


def of_plan(job: Job, plan: Plan, now: float) -> list[EventToEmit]:
    """Return the events about a plan's objects; those of a repeated plan are identical."""
    number = 0 if job.attempt is None else job.attempt.number
    turns = 0 if job.attempt is None else sum(each.incarnation for each in job.attempt.ranks)
    return [
        EventToEmit(f"a{number}-{turns}-{_digest(notice)}", now, notice)
        for notice in notices_of_plan(plan)
    ]


def _digest(notice: Notice) -> str:
    return hashlib.sha256(f"{notice.reason}\n{notice.message}".encode()).hexdigest()[:12]


def event_document(involved: Document, emitted: EventToEmit) -> dict[str, Any]:
    """Return the Event object about `involved`, of which only kind and metadata are used."""
    metadata = involved["metadata"]
    name, namespace, uid = metadata["name"], metadata["namespace"], metadata["uid"]
    notice, at = emitted.notice, timestamp(emitted.at)
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{name}.{uid}.{emitted.key}", "namespace": namespace},
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
