"""The HTTP server around the app: its limits on connections, and errors below the router."""

from typing import Any

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from api.problems import problem, problem_of, respond

# A connection on which no whole request head arrives for this long, in seconds, is closed. This
# also bounds a client that sends its headers byte by byte.
IDLE_S_MAX = 30.0
# After an answer that precedes the end of the body, the rest is read and dropped for this long.
LINGER_S_MAX = 2.0
SHUTDOWN_S_MAX = 5.0
LINE_BYTES_MAX = 8_190
FIELD_BYTES_MAX = 8_190
FIELDS_MAX = 64


class _Connection(RequestHandler):
    """Answers a request that is not valid HTTP with a problem document, too."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if request.writer.output_size > 0:
            raise ConnectionError("an answer has begun, so there cannot be another one")
        if 400 <= status < 500:
            answer = problem("bad_request", (message or "it cannot be read").split("\n")[0])
        else:
            answer = problem_of(exc if isinstance(exc, Exception) else RuntimeError(message))
        response = respond(answer)
        response.force_close()
        return response


class _Server(web.Server):
    def __call__(self) -> RequestHandler:
        return _Connection(self, loop=self._loop, **self._kwargs)


class Runner(web.AppRunner):
    """Runs an app with this server's limits; for use with `TCPSite` and `UnixSite`."""

    def __init__(self, app: web.Application) -> None:
        super().__init__(
            app,
            access_log=None,
            shutdown_timeout=SHUTDOWN_S_MAX,
            keepalive_timeout=IDLE_S_MAX,
            lingering_time=LINGER_S_MAX,
            max_line_size=LINE_BYTES_MAX,
            max_field_size=FIELD_BYTES_MAX,
            max_headers=FIELDS_MAX,
            # A few compressed bytes may expand to gigabytes, so bodies are not decompressed.
            auto_decompress=False,
        )

    async def _make_server(self) -> web.Server:
        made = await super()._make_server()
        options: dict[str, Any] = made._kwargs
        return _Server(
            made.request_handler, request_factory=made.request_factory, loop=made._loop, **options
        )
