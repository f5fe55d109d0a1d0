"""What every request passes: is there room, who asks, what went wrong, how long did it take."""

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from time import perf_counter

from aiohttp import web
from aiohttp.log import access_logger
from aiohttp.typedefs import Handler

from api.access import ACCESS, ACTOR
from api.control import CONTROL, Role
from api.forwarding import FORWARDER
from api.metrics import METRICS
from api.problems import problem_of, respond
from api.routes import Route
from api.stream import FEED
from controlplane.errors import Rejected

REQUESTS_MAX = 1_000


class Door:
    """The one middleware. What is at an open route is answered whoever asks; what needs the leader
    is handed on to it where another one leads.
    """

    def __init__(self, routes: Sequence[Route], *, requests_max: int = REQUESTS_MAX) -> None:
        self._open_paths = frozenset(route.path for route in routes if route.is_open)
        self._methods = _methods(routes)
        self._leaders = frozenset((r.method, r.path) for r in routes if r.needs_leader)
        self._requests_max = requests_max
        self._inside = 0

    @web.middleware
    async def enter(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        began = perf_counter()
        self._inside += 1
        try:
            response = await self._answer(request, handler)
        finally:
            self._inside -= 1
        self._note(request, response, perf_counter() - began)
        return response

    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            if self._inside - request.app[FEED].watchers > self._requests_max:
                raise Rejected("busy", f"{self._requests_max} requests are being answered already")
            path = _route_of(request)
            if path not in self._open_paths:
                request[ACTOR] = request.app[ACCESS].actor(request)
            if request.app[CONTROL].role is Role.STANDBY and self._needs_leader(request, path):
                return await request.app[FORWARDER].forward(request)
            return await handler(request)
        except Exception as error:
            if request.writer.output_size > 0:
                # A stream has begun; it can only be cut.
                raise
            if isinstance(error, web.HTTPMethodNotAllowed):
                error = self._told_exactly(request, error)
                return respond(problem_of(error), {"Allow": error.headers["Allow"]})
            return respond(problem_of(error))

    def _told_exactly(
        self, request: web.Request, error: web.HTTPMethodNotAllowed
    ) -> web.HTTPMethodNotAllowed:
        """An address of its own takes only its own methods, not those of a name in its place."""
        methods = self._methods.get(request.path, error.allowed_methods)
        return web.HTTPMethodNotAllowed(error.method, methods)

    def _needs_leader(self, request: web.Request, path: str) -> bool:
        method = "GET" if request.method == "HEAD" else request.method
        return (method, path) in self._leaders

    def _note(self, request: web.Request, response: web.StreamResponse, seconds: float) -> None:
        method, status = request.method, response.status
        if isinstance(response, web.Response):
            request.app[METRICS].request(method, _route_of(request), status, seconds)
        if access_logger.isEnabledFor(logging.INFO):
            # The path as it came, still percent-encoded, so that it cannot break the line.
            path, actor = request.rel_url.raw_path, request.get(ACTOR, "-")
            access_logger.info("%s %s %d %.1f ms %s", method, path, status, seconds * 1e3, actor)


def _methods(routes: Sequence[Route]) -> Mapping[str, set[str]]:
    found = defaultdict[str, set[str]](set)
    for route in routes:
        found[route.path] |= {route.method, "HEAD"} if route.method == "GET" else {route.method}
    return dict(found)


def _route_of(request: web.Request) -> str:
    resource = request.match_info.route.resource
    return "unmatched" if resource is None else resource.canonical
