"""What can go wrong between us and an API server, sorted by what one does about it.

Foreign exceptions do not travel: `connection.py` makes one of these of whatever its libraries raise.
"""

from collections.abc import Mapping
from typing import Any

import msgspec


class ApiError(Exception):
    """A request that was not carried out, or of which that is not known."""

    # Whether the same request may do better in a moment.
    passes = False

    def __init__(
        self, message: str, *, status: int = 0, reason: str = "", retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        # The server's word for it, such as AlreadyExists.
        self.reason = reason
        self.retry_after_s = retry_after_s


class Unreachable(ApiError):
    """No connection, a cut one, or no answer in time. Whether it was carried out is not known."""

    passes = True


class Silent(Unreachable):
    """A stream on which nothing came for longer than it may be quiet."""


class ServerTrouble(ApiError):
    """5xx: the server could not. Whether it was carried out is not known."""

    passes = True


class Throttled(ApiError):
    """429: the server asks for patience."""

    passes = True


class Conflict(ApiError):
    """409: the object has changed since it was read, or is already there."""


class AlreadyExists(Conflict):
    """409: there is an object of this name."""


class Expired(ApiError):
    """410: the server no longer knows the version that was asked for; list again."""


class NotFound(ApiError):
    """404."""


class Refused(ApiError):
    """The request is wrong or not allowed; asking again will not help."""


class NotAllowed(Refused):
    """401 or 403: who asks is unknown, may not, or has used a quota up."""


class BadAccess(ApiError):
    """The cluster cannot be reached with what we were given: no such file, context or token."""


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
    retryAfterSeconds: float | None = None  # noqa: N815 - as Kubernetes writes it


class _Status(msgspec.Struct):
    """The document with which an API server says no."""

    message: str = ""
    reason: str = ""
    code: int = 0
    details: _Details | None = None


_STATUS = msgspec.json.Decoder(_Status)


def error_of(status: int, body: bytes, headers: Mapping[str, str], *, asked: str = "") -> ApiError:
    """What an answer other than 2xx means."""
    told = _told(body)
    after = headers.get("Retry-After", "")
    retry_after_s = float(after) if after.isdigit() else None
    if retry_after_s is None and told.details is not None:
        retry_after_s = told.details.retryAfterSeconds
    return _error(status, told, retry_after_s, asked)


def error_in_watch(document: Mapping[str, Any]) -> ApiError:
    """What an ERROR event of a watch means."""
    told = msgspec.convert(document, _Status, strict=False)
    return _error(told.code, told, None, "watch")


def _told(body: bytes) -> _Status:
    try:
        return _STATUS.decode(body)
    except msgspec.DecodeError:
        # A proxy in between answers in its own words.
        return _Status(message=body[:200].decode("utf-8", "replace").strip())


def _error(status: int, told: _Status, retry_after_s: float | None, asked: str) -> ApiError:
    kind = BY_STATUS.get(status, ServerTrouble if status >= 500 else Refused)
    if kind is Conflict and told.reason == "AlreadyExists":
        kind = AlreadyExists
    message = told.message or f"the API server answered {status}"
    return kind(
        f"{asked}: {message}" if asked else message,
        status=status,
        reason=told.reason,
        retry_after_s=retry_after_s,
    )
