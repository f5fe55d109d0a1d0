"""The middleware: limit concurrency, authenticate, turn errors into problems, log and measure."""

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from time import perf_counter

from aiohttp import web
from aiohttp.log import access_logger
from aiohttp.typedefs import Handler

from api.access import ACCESS, ACTOR
from api.engine.engine_client import ENGINE, ReplicaRole
from api.engine.leader_proxy import FORWARDER
from api.history.sse_feed import FEED
from api.metrics import METRICS
from api.problems import Problem, problem_of, respond, with_lines
from api.routes import Route
from controlplane.model.errors import Rejected

REQUESTS_MAX = 1_000


class Gatekeeper:
    """The only middleware.

    An open route is answered without a token. On a standby, a route that needs the leader is
    forwarded to it.
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
            if request.app[ENGINE].role is ReplicaRole.STANDBY and self._needs_leader(
                request, path
            ):
                return await request.app[FORWARDER].forward(request)
            return await handler(request)
        except Exception as error:
            if request.writer.output_size > 0:
                # The answer has begun to stream; the connection can only be cut.
                raise
            if isinstance(error, web.HTTPMethodNotAllowed):
                error = self._exact_error(request, error)
                return respond(problem_of(error), {"Allow": error.headers["Allow"]})
            return respond(await _located(request, problem_of(error)))

    def _exact_error(
        self, request: web.Request, error: web.HTTPMethodNotAllowed
    ) -> web.HTTPMethodNotAllowed:
        """Return the error with the methods that this exact path allows.

        A fixed path must not list the methods of a route with a placeholder that also matches it.
        """
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
            # The path as received, still percent-encoded, so that it cannot break the log line.
            path, actor = request.rel_url.raw_path, request.get(ACTOR, "-")
            access_logger.info("%s %s %d %.1f ms %s", method, path, status, seconds * 1e3, actor)


async def _located(request: web.Request, problem: Problem) -> Problem:
    """Return the problem with the lines of its fields, if the body has been read."""
    if not request.body_exists or not request.content.is_eof():
        return problem
    return with_lines(problem, await request.read())


def _methods(routes: Sequence[Route]) -> Mapping[str, set[str]]:
    methods = defaultdict[str, set[str]](set)
    for route in routes:
        methods[route.path] |= {route.method, "HEAD"} if route.method == "GET" else {route.method}
    return dict(methods)


def _route_of(request: web.Request) -> str:
    resource = request.match_info.route.resource
    return "unmatched" if resource is None else resource.canonical
