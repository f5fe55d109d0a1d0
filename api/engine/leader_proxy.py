"""A standby forwards to the leader what only the leader can answer.

A client need not know which control plane leads: a request that changes something, or asks for what
only the leader has, is forwarded unchanged, and the leader's answer is returned unchanged. A
request is forwarded once: a control plane that receives a forwarded request and does not lead
refuses it, so a request cannot loop.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
from aiohttp import hdrs, web
from yarl import URL

from api.engine.engine_client import ENGINE, EngineClient
from api.requests.bodies import BODIES
from controlplane.model.errors import LogUnavailable, Rejected

FORWARDED = "Muster-Forwarded"
CONNECT_S_MAX = 2.0
ANSWER_S_MAX = 60.0
# How long an answer is held back so that the client's next read here includes the change.
CATCH_UP_S_MAX = 2.0
LOOK_EVERY_S = 0.02

# Headers of one connection, or about the page that sent the request, which was checked here.
_NOT_PASSED_ON = frozenset(
    {
        "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer",
        "transfer-encoding", "upgrade", "host", "content-length", "expect", "origin",
        "sec-fetch-site", "sec-fetch-mode", "sec-fetch-dest", "accept-encoding",
    }
)  # fmt: skip
_NOT_GIVEN_BACK = frozenset(
    {"connection", "keep-alive", "transfer-encoding", "content-length", "date"}
)


class Forwarder:
    """Forwards requests to the leader. `session` is created on first use."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    async def forward(self, request: web.Request) -> web.StreamResponse:
        engine_client = request.app[ENGINE]
        leader = engine_client.leader
        if FORWARDED in request.headers:
            raise Rejected("standby", "this one does not lead either; ask again in a moment")
        if not leader:
            raise Rejected("standby", "there is no known leader at the moment; nothing was done")
        body = await request.app[BODIES].raw(request) if request.can_read_body else None
        async with self._asked(request, leader, body) as answer:
            if request.method not in ("GET", "HEAD") and answer.status < 300:
                await _catch_up(engine_client)
            return await _given_back(request, answer)

    @asynccontextmanager
    async def _asked(
        self, request: web.Request, leader: str, body: bytes | None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        url = leader + request.rel_url.raw_path_qs
        headers = [(k, v) for k, v in request.headers.items() if k.lower() not in _NOT_PASSED_ON]
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                answer = await self._opened().request(
                    request.method,
                    # Unchanged: percent-encoding is kept.
                    URL(url, encoded=True),
                    headers=[*headers, (FORWARDED, "1")],
                    data=body,
                    allow_redirects=False,
                )
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError):
            message = f"the leader at {leader} cannot be reached; nothing was done"
            raise Rejected("standby", message) from None
        except (aiohttp.ClientError, OSError, TimeoutError):
            raise Rejected("standby", _cut(request, leader)) from None
        async with answer:
            yield answer

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            # An answer may take long to end: a followed log does.
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S_MAX)
            self._session = aiohttp.ClientSession(timeout=timeout, auto_decompress=False)
        return self._session

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()


def _cut(request: web.Request, leader: str) -> str:
    message = f"the leader at {leader} went away before it answered"
    if request.method in ("GET", "HEAD"):
        return message
    return (
        f"{message}: it may or may not have happened; "
        "sent again with the same Idempotency-Key, it happens once"
    )


async def _given_back(request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
    response = web.StreamResponse(status=answer.status, reason=answer.reason)
    for name, value in answer.headers.items():
        if name.lower() not in _NOT_GIVEN_BACK:
            response.headers[name] = value
    if request.method != "HEAD" and answer.headers.get(hdrs.CONTENT_LENGTH) is not None:
        response.content_length = int(answer.headers[hdrs.CONTENT_LENGTH])
    await response.prepare(request)
    try:
        if request.method != "HEAD":
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
        await response.write_eof()
    except aiohttp.ClientError:
        # A truncated answer must not look complete.
        if request.transport is not None:
            request.transport.abort()
    return response


async def _catch_up(engine_client: EngineClient) -> None:
    """Wait up to `CATCH_UP_S_MAX` until this replica has followed the log to the change."""
    try:
        async with asyncio.timeout(CATCH_UP_S_MAX):
            position = (await engine_client.log.head()).position
            while engine_client.followed is not None and engine_client.followed.position < position:  # noqa: ASYNC110 - nothing notifies
                await asyncio.sleep(LOOK_EVERY_S)
    except (TimeoutError, LogUnavailable):
        # The change was made in any case; the next answers here may be slightly out of date.
        return


FORWARDER = web.AppKey("forwarder", Forwarder)
