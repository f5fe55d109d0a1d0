"""Routes: how a query is parsed and an answer written.

A route declares once what it takes and returns; the router and the OpenAPI document are both made
from it. Query parameters are the fields of a Struct, and an unknown parameter is refused, because
ignoring a misspelt filter would return a wrong answer.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar, get_origin, get_type_hints

import msgspec
from aiohttp import web

from api.requests.headers import HEADERS
from api.requests.validation_errors import validation_error
from controlplane.model.errors import Rejected

Q = TypeVar("Q", bound=msgspec.Struct)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

encode = msgspec.json.Encoder().encode


class NoQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The query of a route without query parameters."""


@dataclass(frozen=True, slots=True)
class Route:
    method: str
    path: str
    handler: Handler
    summary: str
    query: type[msgspec.Struct]
    # Status -> type of the answer's body; None stands for an empty body.
    answers: Mapping[int, Any]
    body: Any = None
    # Problem codes that are specific to this route.
    problems: tuple[str, ...] = ()
    # Media types of the answer.
    media_types: tuple[str, ...] = ("application/json",)
    headers: tuple[str, ...] = ()
    # Whether it is answered without a token.
    is_open: bool = False
    # Whether it is part of the documented API.
    is_shown: bool = True
    # Whether only the leader can answer it, so that a standby forwards it.
    needs_leader: bool = False


def route(
    method: str,
    path: str,
    handler: Callable[[web.Request, Q], Awaitable[web.StreamResponse]],
    summary: str,
    *,
    query: type[Q],
    answers: Mapping[int, Any],
    body: Any = None,
    problems: tuple[str, ...] = (),
    media_types: tuple[str, ...] = ("application/json",),
    headers: tuple[str, ...] = (),
    is_open: bool = False,
    is_shown: bool = True,
    needs_leader: bool | None = None,
) -> Route:
    """Return a route whose handler gets its query parsed.

    A route with a method that may change something needs the leader, unless `needs_leader` is
    given.
    """

    async def handle(request: web.Request) -> web.StreamResponse:
        return await handler(request, read_query(request, query))

    return Route(
        method=method,
        path=path,
        handler=handle,
        summary=summary,
        query=query,
        answers=answers,
        body=body,
        problems=problems,
        media_types=media_types,
        headers=headers,
        is_open=is_open,
        is_shown=is_shown,
        needs_leader=method != "GET" if needs_leader is None else needs_leader,
    )


def read_query(request: web.Request, type: type[Q]) -> Q:
    """Return the query parameters as a value of `type`; raise Rejected."""
    if not request.query_string:
        return type()
    repeatable = _repeatable(type)
    given: dict[str, object] = {}
    for name, value in request.query.items():
        if name in repeatable:
            given[name] = request.query.getall(name)
        elif name in given:
            raise Rejected("invalid_parameter", f"{name}: it is given twice", field=name)
        else:
            given[name] = value
    try:
        return msgspec.convert(given, type, strict=False)
    except msgspec.ValidationError as error:
        raise validation_error("invalid_parameter", error, type) from None


@lru_cache
def _repeatable(type: type[msgspec.Struct]) -> frozenset[str]:
    hints = get_type_hints(type)
    return frozenset(name for name, hint in hints.items() if get_origin(hint) is tuple)


def answer(
    value: object, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    return answer_bytes(encode(value), status=status, headers=headers)


def answer_bytes(
    body: bytes, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    return web.Response(
        body=body,
        status=status,
        headers=HEADERS if headers is None else {**HEADERS, **headers},
        content_type="application/json",
    )
