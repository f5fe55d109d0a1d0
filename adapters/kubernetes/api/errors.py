"""The errors of requests to an API server, classified by what the caller can do about them.

Exceptions of libraries stop here: `connection.py` converts each of them to one of these classes.
"""

from collections.abc import Mapping
from typing import Any

import msgspec


class ApiError(Exception):
    """A request that failed, or whose result is unknown."""

    # Whether the error is transient: the same request may succeed later.
    passes = False

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        reason: str = "",
        object_name: str = "",
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        # The reason in the server's Status document, such as AlreadyExists.
        self.reason = reason
        # The object that the Status document is about; empty if it names none.
        self.object_name = object_name
        self.retry_after_s = retry_after_s


class Unreachable(ApiError):
    """No connection, a cut connection or a timeout. The server may have carried out the request."""

    passes = True


class Silent(Unreachable):
    """A stream without data for longer than its `quiet_s_max`."""


class ServerError(ApiError):
    """5xx: the server failed. It may have carried out the request."""

    passes = True


class Throttled(ApiError):
    """429: the server asks the client to slow down."""

    passes = True


class Conflict(ApiError):
    """409: the object has changed since it was read, or exists already."""


class AlreadyExists(Conflict):
    """409: an object with this name exists."""


class Expired(ApiError):
    """410: the server no longer has the requested resource version; list again."""


class NotFound(ApiError):
    """404: there is no such object, or, without an `object_name`, no such kind."""


class Refused(ApiError):
    """The request is invalid or not allowed; a retry will not help."""


class NotAllowed(Refused):
    """401 or 403: the client is unknown, lacks the permission, or has exhausted a quota."""


class BadAccess(ApiError):
    """The credentials are unusable: no such file, context or token."""


BY_STATUS: Mapping[int, type[ApiError]] = {
    401: NotAllowed,
    403: NotAllowed,
    404: NotFound,
    408: Unreachable,
    409: Conflict,
    410: Expired,
    429: Throttled,
}


class _Details(msgspec.Struct):
    name: str = ""
    retryAfterSeconds: float | None = None  # noqa: N815 - as Kubernetes writes it


class _Status(msgspec.Struct):
    """The Status document with which an API server refuses a request."""

    message: str = ""
    reason: str = ""
    code: int = 0
    details: _Details | None = None


_STATUS = msgspec.json.Decoder(_Status)


def error_of(status: int, body: bytes, headers: Mapping[str, str], *, asked: str = "") -> ApiError:
    """Return the error for an answer other than 2xx; `asked` is the request, for the message."""
    answer = _status_of(body)
    after = headers.get("Retry-After", "")
    retry_after_s = float(after) if after.isdigit() else None
    if retry_after_s is None and answer.details is not None:
        retry_after_s = answer.details.retryAfterSeconds
    return _error(status, answer, retry_after_s, asked)


def error_in_watch(document: Mapping[str, Any]) -> ApiError:
    """Return the error for an ERROR event of a watch."""
    answer = msgspec.convert(document, _Status, strict=False)
    return _error(answer.code, answer, None, "watch")


def _status_of(body: bytes) -> _Status:
    try:
        return _STATUS.decode(body)
    except msgspec.DecodeError:
        # A proxy between client and server does not answer with a Status document.
        return _Status(message=body[:200].decode("utf-8", "replace").strip())


def _error(status: int, answer: _Status, retry_after_s: float | None, asked: str) -> ApiError:
    kind = BY_STATUS.get(status, ServerError if status >= 500 else Refused)
    if kind is Conflict and answer.reason == "AlreadyExists":
        kind = AlreadyExists
    message = answer.message or f"the API server answered {status}"
    return kind(
        f"{asked}: {message}" if asked else message,
        status=status,
        reason=answer.reason,
        object_name="" if answer.details is None else answer.details.name,
        retry_after_s=retry_after_s,
    )
