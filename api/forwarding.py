"""What only the leader can answer, handed on to it by a standby.

A client need not know who leads: whatever changes something, or asks for what only the leader has,
is sent on as it came, and the leader's answer is given back as it came. It is sent on once: who
gets such a request and does not lead either says so, so that it never goes round in circles.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
from aiohttp import hdrs, web
from yarl import URL

from api.control import CONTROL, Control
from api.wire import BODIES
from controlplane.errors import LogUnavailable, Rejected

FORWARDED = "Muster-Forwarded"
CONNECT_S_MAX = 2.0
ANSWER_S_MAX = 60.0
# How long an answer is held back so that whoever asks here next sees what was changed.
CATCH_UP_S_MAX = 2.0
LOOK_EVERY_S = 0.02

# They belong to one connection, or were about the page that asked here and were checked here.
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
    """`session` is made when it is needed first, and closed with the server."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    async def forward(self, request: web.Request) -> web.StreamResponse:
        control = request.app[CONTROL]
        leader = control.leader
        if FORWARDED in request.headers:
            raise Rejected("standby", "this one does not lead either; ask again in a moment")
        if not leader:
            raise Rejected("standby", "nobody is known to lead at the moment; nothing was done")
        body = await request.app[BODIES].raw(request) if request.can_read_body else None
        async with self._asked(request, leader, body) as answer:
            if request.method not in ("GET", "HEAD") and answer.status < 300:
                await _catch_up(control)
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
                    # As it came: what was escaped stays so.
                    URL(url, encoded=True),
                    headers=[*headers, (FORWARDED, "1")],
                    data=body,
                    allow_redirects=False,
                )
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError):
            told = f"the leader at {leader} cannot be reached; nothing was done"
            raise Rejected("standby", told) from None
        except (aiohttp.ClientError, OSError, TimeoutError):
            raise Rejected("standby", _cut(request, leader)) from None
        async with answer:
            yield answer

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            # An answer may be long in coming to its end: lines that are followed are.
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S_MAX)
            self._session = aiohttp.ClientSession(timeout=timeout, auto_decompress=False)
        return self._session

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()


def _cut(request: web.Request, leader: str) -> str:
    told = f"the leader at {leader} went away before it answered"
    if request.method in ("GET", "HEAD"):
        return told
    return (
        f"{told}: it may or may not have happened; "
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
        # Half an answer must not look like a whole one.
        if request.transport is not None:
            request.transport.abort()
    return response


async def _catch_up(control: Control) -> None:
    """Waits until the change that was just made is seen here too, if that does not take long."""
    try:
        async with asyncio.timeout(CATCH_UP_S_MAX):
            position = (await control.log.head()).position
            while control.followed is not None and control.followed.position < position:  # noqa: ASYNC110 - what is waited for tells nobody
                await asyncio.sleep(LOOK_EVERY_S)
    except (TimeoutError, LogUnavailable):
        # The change is made all the same; the next answers here may be a little old.
        return


FORWARDER = web.AppKey("forwarder", Forwarder)
