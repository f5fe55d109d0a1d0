"""What every request passes: is there room, who asks, what went wrong, how long did it take."""

import logging
from collections.abc import Iterable
from time import perf_counter

from aiohttp import web
from aiohttp.log import access_logger
from aiohttp.typedefs import Handler

from api.access import ACCESS, ACTOR
from api.metrics import METRICS
from api.problems import problem_of, respond
from api.stream import FEED
from controlplane.errors import Rejected

REQUESTS_MAX = 1_000


class Door:
    """The one middleware. What is at `open_paths` is answered whoever asks."""

    def __init__(self, open_paths: Iterable[str], *, requests_max: int = REQUESTS_MAX) -> None:
        self._open_paths = frozenset(open_paths)
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
            if _route_of(request) not in self._open_paths:
                request[ACTOR] = request.app[ACCESS].actor(request)
            return await handler(request)
        except Exception as error:
            if request.writer.output_size > 0:
                # A stream has begun; it can only be cut.
                raise
            headers = error.headers if isinstance(error, web.HTTPMethodNotAllowed) else None
            allow = None if headers is None else {"Allow": headers["Allow"]}
            return respond(problem_of(error), allow)

    def _note(self, request: web.Request, response: web.StreamResponse, seconds: float) -> None:
        method, status = request.method, response.status
        if isinstance(response, web.Response):
            request.app[METRICS].request(method, _route_of(request), status, seconds)
        if access_logger.isEnabledFor(logging.INFO):
            # The path as it came, still percent-encoded, so that it cannot break the line.
            path, actor = request.rel_url.raw_path, request.get(ACTOR, "-")
            access_logger.info("%s %s %d %.1f ms %s", method, path, status, seconds * 1e3, actor)


def _route_of(request: web.Request) -> str:
    resource = request.match_info.route.resource
    return "unmatched" if resource is None else resource.canonical
