"""The table of problem codes: HTTP status and title of each, and problem documents (RFC 9457).

Every answer that is not a success comes from here. A code never changes its meaning, so clients may
branch on it. The detail is for people.
"""

import logging
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import msgspec
from aiohttp import web

from api.requests.body_lines import line_of
from controlplane.decisions.isolation import platform_refusal
from controlplane.model.errors import (
    LogConflict,
    LogCorrupt,
    LogUnavailable,
    PolicyMissing,
    Rejected,
    TelemetryUnavailable,
)

_log = logging.getLogger("muster.api")

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_S = 1
# An error's text may be a megabyte long; a longer detail is of no use.
DETAIL_LENGTH_MAX = 1_000


class Kind(NamedTuple):
    status: int
    title: str


KINDS: dict[str, Kind] = {
    # The requested object does not exist.
    "no_such_route": Kind(404, "There is nothing at this address"),
    "no_such_job": Kind(404, "There is no such job"),
    "no_such_index": Kind(404, "The array has no such index"),
    "no_such_rank": Kind(404, "The job has no such rank"),
    "no_such_container": Kind(404, "The rank has no such container"),
    "no_such_node": Kind(404, "There is no such node"),
    "no_such_queue": Kind(404, "There is no such queue"),
    "no_such_position": Kind(404, "The log has no such position"),
    "no_history": Kind(404, "Nothing keeps what was measured"),
    "no_such_study": Kind(404, "There is no such study"),
    "no_such_annotation": Kind(404, "There is no such annotation"),
    "no_report": Kind(404, "The study has no page of its own"),
    # The request cannot be parsed.
    "bad_request": Kind(400, "The request is not valid HTTP"),
    "invalid_parameter": Kind(400, "A query parameter or header is not valid"),
    "bad_cursor": Kind(400, "The cursor is not one that was given out"),
    "invalid_utf8": Kind(400, "The body is not UTF-8 text"),
    "invalid_json": Kind(400, "The body is not valid JSON"),
    "invalid_yaml": Kind(400, "The body is not valid YAML"),
    "duplicate_key": Kind(400, "A key is given twice"),
    "not_finite": Kind(400, "A number is not finite or too large"),
    "too_deep": Kind(400, "The document is nested too deeply"),
    "too_complex": Kind(400, "The document has too many parts"),
    "yaml_alias": Kind(400, "YAML anchors, aliases and merge keys are not taken"),
    "yaml_tag": Kind(400, "YAML tags are not taken"),
    "several_documents": Kind(400, "One request takes one document"),
    "method_not_allowed": Kind(405, "This address does not take this method"),
    "body_too_slow": Kind(408, "The body did not arrive in time"),
    "body_too_large": Kind(413, "The body is too large"),
    "unsupported_media_type": Kind(415, "The body's content type is not taken"),
    "invalid_body": Kind(422, "The body does not have the form that is needed here"),
    # Authentication, and the origin of the request.
    "token_needed": Kind(401, "A valid bearer token is needed"),
    "too_many_annotations": Kind(409, "There are too many annotations"),
    "read_only": Kind(403, "This server only shows a log"),
    "host_not_allowed": Kind(403, "The Host header names no address of this server"),
    "cross_origin": Kind(403, "A page of another site may not do this"),
    # The manifest is refused.
    "invalid_manifest": Kind(422, "The manifest is not valid"),
    "unknown_kind": Kind(422, "This kind of manifest is not known"),
    "cannot_convert": Kind(422, "The job cannot be written in this form without loss"),
    "invalid_job": Kind(422, "The job is not valid"),
    "unknown_queue": Kind(422, "There is no such queue to wait in"),
    "unknown_role": Kind(422, "The job has no such role"),
    "unknown_topology_level": Kind(422, "The policy has no such topology level"),
    "unknown_flavor": Kind(422, "The cluster has no GPUs of this flavour"),
    "no_such_device": Kind(422, "The node has no such device"),
    "can_never_fit": Kind(422, "The gang can never fit on this cluster"),
    "unknown_dependency": Kind(422, "There is no such job to wait for"),
    "dependency_cycle": Kind(422, "A job cannot wait for itself"),
    "dependency_failed": Kind(422, "What the job would wait for has ended otherwise"),
    "invalid_queue": Kind(422, "The queue is not valid"),
    "invalid_policy": Kind(422, "The policy is not valid"),
    "invalid_study": Kind(422, "The study cannot be conducted"),
    "invalid_fork": Kind(422, "The past cannot be forked like this"),
    # The current state does not allow the request.
    "study_not_done": Kind(409, "The study has no result yet, or never will"),
    "no_pods": Kind(409, "This cluster has no pods"),
    "not_there": Kind(409, "The rank has no pod now"),
    "name_taken": Kind(409, "The name is taken"),
    "id_taken": Kind(409, "The id is taken"),
    "faults_not_possible": Kind(409, "Only a simulated cluster can be made to fail"),
    "node_is_up": Kind(409, "The node answers and is not gone"),
    "already_finished": Kind(409, "The job is already finished"),
    "queue_in_use": Kind(409, "The queue is in use"),
    "cannot_change": Kind(409, "This does not change in the life of a job"),
    "quarantined": Kind(409, "The job is quarantined"),
    "owned_job": Kind(409, "The job belongs to an array"),
    "owner_suspended": Kind(409, "The array of the job is suspended"),
    "is_array": Kind(409, "This is an array, not a job"),
    "not_an_array": Kind(409, "This is a job, not an array"),
    "not_for_arrays": Kind(409, "This is asked of single jobs"),
    "nothing_to_retry": Kind(409, "No such index has failed"),
    "not_suspended": Kind(409, "The job is not suspended"),
    "idempotency_key_reused": Kind(409, "The idempotency key was used for another request"),
    # Errors of the server.
    "internal_error": Kind(500, "Something went wrong in the server"),
    "platform_error": Kind(500, "The platform failed on this job"),
    "log_corrupt": Kind(500, "The event log is damaged"),
    "unavailable": Kind(503, "The control plane cannot answer now"),
    "standby": Kind(503, "This is a standby, and the leader cannot be reached"),
    "not_kept": Kind(503, "What was written could not be kept"),
    "busy": Kind(503, "The server has too much to do"),
    "telemetry_unavailable": Kind(504, "What measures the devices cannot be asked"),
    "cluster_timeout": Kind(504, "The cluster did not answer in time"),
}

_HEADERS: dict[int, dict[str, str]] = {
    401: {"WWW-Authenticate": "Bearer"},
    503: {"Retry-After": str(RETRY_AFTER_S)},
}
# After these, the rest of the body may still be in transit.
_ENDS_CONNECTION = (408, 413)
# Statuses that aiohttp itself raises.
_CODES = {
    400: "bad_request",
    404: "no_such_route",
    405: "method_not_allowed",
    413: "body_too_large",
    415: "unsupported_media_type",
    417: "bad_request",
}


class FieldProblem(msgspec.Struct, frozen=True, kw_only=True):
    """One of several errors in a document.

    The types are those of Kubernetes: Required, Invalid, Forbidden, NotSupported, Duplicate
    and TypeInvalid.
    """

    sort: str
    field: str
    message: str
    line: int | None = None


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A problem document of RFC 9457, with a `code` that programs may rely on.

    `field` is the path of the error in the request and `line` its line in the body; a manifest may
    have several errors, which `errors` lists. `instance` is the id under which the server's log has the details.
    """

    type: str
    title: str
    status: int
    detail: str
    code: str
    field: str | None = None
    line: int | None = None
    errors: list[FieldProblem] = []
    instance: str | None = None


_encode = msgspec.json.Encoder().encode


@contextmanager
def concerning_only(what: str) -> Iterator[None]:
    """Turn an exception of the block into `platform_error`, and log it: it fails this answer alone.

    `what` names the requested object, as the person will read it. Refusals pass unchanged.
    """
    try:
        yield
    except (Rejected, TelemetryUnavailable):
        raise
    except Exception as error:  # noqa: BLE001 - a kind or an adapter may raise anything
        _log.exception("the platform failed on %s", what)
        raise platform_refusal(error, what) from None


def problem_of(error: Exception) -> Problem:
    """Return the problem document for an exception of a handler."""
    match error:
        case Rejected(code=code) if code in KINDS:
            return _refusal(error)
        case web.HTTPException():
            return _of_http(error)
        case LogUnavailable() | LogConflict():
            return problem("unavailable", "the event log cannot be read at the moment")
        case PolicyMissing():
            return problem("log_corrupt", str(error))
        case LogCorrupt(position=position):
            return problem("log_corrupt", f"position {position} is not what was written there")
        case _:
            return _unexpected(error)


def _refusal(error: Rejected) -> Problem:
    refusal = problem(error.code, error.message, field=error.field)
    if error.line is not None:
        refusal = msgspec.structs.replace(refusal, line=error.line)
    errors = [
        FieldProblem(
            sort=each.sort,
            field=each.field[:DETAIL_LENGTH_MAX],
            message=each.message[:DETAIL_LENGTH_MAX],
        )
        for each in error.problems
    ]
    return msgspec.structs.replace(refusal, errors=errors) if errors else refusal


def with_lines(problem: Problem, body: bytes) -> Problem:
    """Return the problem with the lines of its fields in `body`, where they are known."""
    if problem.field is None and not problem.errors:
        return problem
    line = problem.line
    if line is None and problem.field is not None:
        line = line_of(body, problem.field)
    errors = [
        msgspec.structs.replace(each, line=line_of(body, each.field)) for each in problem.errors
    ]
    return msgspec.structs.replace(problem, line=line, errors=errors)


def problem(
    code: str, detail: str, *, field: str | None = None, instance: str | None = None
) -> Problem:
    status, title = KINDS[code]
    return Problem(
        type=f"/docs#{code}",
        title=title,
        status=status,
        detail=detail[:DETAIL_LENGTH_MAX],
        code=code,
        field=None if field is None else field[:DETAIL_LENGTH_MAX],
        instance=instance,
    )


def _of_http(error: web.HTTPException) -> Problem:
    code = _CODES.get(error.status)
    if code is None:
        return _unexpected(error)
    if isinstance(error, web.HTTPMethodNotAllowed):
        allowed = ", ".join(sorted(error.allowed_methods))
        return problem(code, f"{error.method} is not taken here; these are: {allowed}")
    if error.status == 404:
        return problem(code, "see /docs for what there is")
    return problem(code, error.text or error.reason)


def _unexpected(error: Exception) -> Problem:
    """Return a problem that reveals only an id, under which the server's log has the exception."""
    instance = uuid.uuid4().urn
    _log.error("unexpected error %s", instance, exc_info=error)
    return problem(
        "internal_error", "the server's log has the details under this instance", instance=instance
    )


def respond(answer: Problem, headers: Mapping[str, str] | None = None) -> web.Response:
    response = web.Response(
        body=_encode(answer),
        status=answer.status,
        content_type=MEDIA_TYPE,
        headers={"Server": "muster", **_HEADERS.get(answer.status, {}), **(headers or {})},
    )
    if answer.status in _ENDS_CONNECTION:
        response.force_close()
    return response
