"""Asked twice, done once: command ids from Idempotency-Key, and what a repeated request gets.

The key becomes part of the command's id, so the log itself remembers it. The receipt of a command
leads to its events, and those tell whether a key was used before for something else.
"""

import secrets
import string
from collections.abc import Sequence

from aiohttp import web
from msgspec import UNSET

from api.access import ACTOR
from controlplane import commands as c
from controlplane import events as e
from controlplane.codec import from_row
from controlplane.errors import Rejected
from controlplane.image import Receipt
from controlplane.job import Job
from controlplane.job_life import begin, evolve
from controlplane.ports import EventLog

HEADER = "Idempotency-Key"
KEY_LENGTH_MAX = 200
_PRINTABLE = frozenset(string.ascii_letters + string.digits + string.punctuation + " ")
# A command's events stand together; so many rows before the last one hold them all.
EVENTS_PER_COMMAND_MAX = 16


def command_id(request: web.Request) -> str:
    """The id of the command that this request asks for; the same key gives the same id."""
    keys = request.headers.getall(HEADER, [])
    if not keys:
        return secrets.token_hex(16)
    key = keys[0]
    if len(keys) > 1 or not 1 <= len(key) <= KEY_LENGTH_MAX or not _PRINTABLE.issuperset(key):
        told = f"{HEADER}: 1 to {KEY_LENGTH_MAX} printable ASCII characters, once"
        raise Rejected("invalid_parameter", told, field=HEADER)
    # Actors have no colon in their names and minted ids have none at all, so nobody can guess
    # himself into the answer to somebody else's command.
    return f"{request[ACTOR]}:{key}"


def new_job_id() -> str:
    """An id that may be part of a Kubernetes name."""
    return "j" + secrets.token_hex(10)


async def events_of(log: EventLog, command: c.Request, receipt: Receipt) -> list[e.Recorded]:
    """The command's events; raises Rejected if they come from another request with its key."""
    after = max(0, receipt.position - EVENTS_PER_COMMAND_MAX)
    rows = await log.read(after, receipt.position - after)
    recorded = [from_row(row) for row in rows if row[6] == command.id]
    if not _fits(command, [each.event for each in recorded]):
        raise key_reused()
    return recorded


def key_reused() -> Rejected:
    told = "an earlier request with this key asked for something else; use a new key"
    return Rejected("idempotency_key_reused", told, field=HEADER)


async def check_key(
    request: web.Request, log: EventLog, command: c.Request, receipt: Receipt
) -> None:
    """Raises Rejected if the request's key was used before for something else."""
    if HEADER in request.headers and receipt.stream:
        await events_of(log, command, receipt)


def first_answer(recorded: Sequence[e.Recorded]) -> Job:
    """The job as it was right after its submission."""
    first = recorded[0]
    assert isinstance(first.event, e.JobSubmitted)
    job = begin(first, first.event)
    for later in recorded[1:]:
        job = evolve(job, later)
    return job


def _amends(command: c.AmendJob, event: e.JobAmended) -> bool:
    names = ("ttl_s", "active_deadline_s", "restart_limit", "clean")
    asked = {name: getattr(command, name) for name in names}
    return all(getattr(event, name) == x for name, x in asked.items() if x is not UNSET)


def _fits(command: c.Request, events: Sequence[e.Event]) -> bool:
    """Whether these are events that the command would have led to."""
    match command:
        case c.SubmitJob():
            return _submits(command, events)
        case c.ScaleJob():
            wanted = (command.role, command.replicas)
            scaled = [(x.role, x.replicas) for x in events if isinstance(x, e.JobScaled)]
            return wanted in scaled
        case c.AmendJob():
            return any(isinstance(x, e.JobAmended) and _amends(command, x) for x in events)
        case c.DefineQueue():
            return e.QueueDefined(command.queue) in events
        case c.RemoveQueue():
            return e.QueueRemoved(command.name) in events
        case c.SetPolicy():
            return e.PolicySet(command.policy) in events
        case c.DrainNode() | c.ForgetNode() | c.CordonNode() | c.UncordonNode():
            return _marks(command, events)
        case c.SuspendJob():
            return _has(e.JobSuspended, events[:1])
        case c.ResumeJob():
            return _has(e.JobResumed, events)
        case c.DeleteJob():
            return _has(e.JobDeleteRequested, events)
        case c.CancelJob():
            return _has(e.JobCancelled, events) and not _has(e.JobDeleteRequested, events)


def _marks(
    command: c.DrainNode | c.ForgetNode | c.CordonNode | c.UncordonNode, events: Sequence[e.Event]
) -> bool:
    node = command.node
    match command:
        case c.DrainNode():
            gave_way = _has(e.JobRestarting, events) or _has(e.JobFailed, events)
            return gave_way or e.NodeCordoned(node, e.DRAINED) in events
        case c.ForgetNode():
            return e.NodeRemoved(node, e.FORGOTTEN) in events
        case c.CordonNode():
            return e.NodeCordoned(node) in events
        case c.UncordonNode():
            return e.NodeUncordoned(node) in events


def _has(kind: type[e.Event], events: Sequence[e.Event]) -> bool:
    return any(isinstance(event, kind) for event in events)


def _submits(command: c.SubmitJob, events: Sequence[e.Event]) -> bool:
    if not events or not isinstance(events[0], e.JobSubmitted):
        return False
    first = events[0]
    same = (first.namespace, first.name, first.spec)
    suspended = _has(e.JobSuspended, events)
    return same == (command.namespace, command.name, command.spec) and (
        suspended == command.suspended
    )
