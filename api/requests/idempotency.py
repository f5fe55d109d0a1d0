"""Idempotency: command ids from Idempotency-Key, and the answer to a repeated request.

The key becomes part of the command's id, so the log itself stores it. The receipt of a command
leads to its events, which record the command: a key that was used for another command is refused.
"""

import secrets
import string
from collections.abc import Sequence

from aiohttp import web
from msgspec.structs import replace

from api.access import ACTOR
from controlplane.audit.recorded_commands import parameters_of
from controlplane.lifecycle.job import Job, begin, evolve
from controlplane.log.codec import from_row
from controlplane.model import commands as c
from controlplane.model import events as e
from controlplane.model.errors import Rejected
from controlplane.ports import EventLog
from controlplane.state.image import Receipt

HEADER = "Idempotency-Key"
KEY_LENGTH_MAX = 200
_PRINTABLE = frozenset(string.ascii_letters + string.digits + string.punctuation + " ")
# The events of a command are consecutive, and the receipt has the position of the last one. They
# are read backwards, this many rows at a time.
PAGE_ROWS = 16


def command_id(request: web.Request) -> str:
    """Return the id of the request's command; the same key and actor give the same id."""
    keys = request.headers.getall(HEADER, [])
    if not keys:
        return secrets.token_hex(16)
    key = keys[0]
    if len(keys) > 1 or not 1 <= len(key) <= KEY_LENGTH_MAX or not _PRINTABLE.issuperset(key):
        message = f"{HEADER}: 1 to {KEY_LENGTH_MAX} printable ASCII characters, once"
        raise Rejected("invalid_parameter", message, field=HEADER)
    # Names of actors have no colon and generated ids have none either, so one actor cannot choose a
    # key that yields the answer to another actor's command.
    return f"{request[ACTOR]}:{key}"


def new_job_id() -> str:
    """Return a new job id that may be part of a Kubernetes name."""
    return "j" + secrets.token_hex(10)


async def events_of(log: EventLog, command: c.Request, receipt: Receipt) -> list[e.Recorded]:
    """Return the command's events; raise Rejected if the key was used for another command."""
    recorded: list[e.Recorded] = []
    end = receipt.position
    while end > 0:
        after = max(0, end - PAGE_ROWS)
        rows = await log.read(after, end - after)
        mine = [from_row(row) for row in rows if row.cause == command.id]
        recorded = mine + recorded
        if len(mine) < len(rows):
            break
        end = after
    if not _fits(command, recorded):
        raise key_reused()
    return recorded


def key_reused() -> Rejected:
    message = "an earlier request with this key asked for something else; use a new key"
    return Rejected("idempotency_key_reused", message, field=HEADER)


async def check_key(
    request: web.Request, log: EventLog, command: c.Request, receipt: Receipt
) -> None:
    """Raise Rejected if the request's key was used before for another command."""
    if HEADER in request.headers and receipt.stream:
        await events_of(log, command, receipt)


def first_answer(recorded: Sequence[e.Recorded]) -> Job:
    """Return the job as it was right after its submission."""
    first = recorded[0]
    assert isinstance(first.event, e.JobSubmitted)
    job = begin(first)
    for later in recorded[1:]:
        job = evolve(job, later)
    return job


def _fits(command: c.Request, recorded: Sequence[e.Recorded]) -> bool:
    """Return whether `recorded` are the events of this command, or of the same one sent before.

    A repeated submission has another job id, and the events of a request about a job do not have
    the job's name.
    """
    if not recorded or recorded[0].command != type(command).__name__:
        return False
    known = parameters_of(recorded)
    known.pop("job", None)
    if isinstance(command, c.RetryMembers) and not command.indices:
        # Without indices the command meant all indices that had failed or were cancelled at that
        # time.
        known.pop("indices")
    return replace(command, **known) == command
