"""Requests to one API server: time-limited, rate-limited and retried; documents are plain dicts.

kubernetes-asyncio supplies the credentials and the TLS session. Its models are not used, because
building model objects for a thousand pods costs more than all other work on them.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import Any, NamedTuple

import aiohttp
import msgspec

from adapters.kubernetes.api.errors import ApiError, Silent, Unreachable, error_of
from adapters.kubernetes.api.kubeconfig import Access, Renew, configuration
from adapters.kubernetes.api.rate_limiter import RateLimiter

MERGE_PATCH = "application/merge-patch+json"
JSON = "application/json"
Query = Mapping[str, str | int | list[str]]

_log = logging.getLogger("muster.kubernetes")


class Limits(NamedTuple):
    """The limits on requests to the API server."""

    # Requests per second, and how many may be sent at once after a pause; qps 0 means no limit.
    qps: float = 100.0
    burst: int = 200
    # Requests in flight at one time. Open watches and streams do not count.
    in_flight: int = 32
    timeout_s: float = 30.0
    # Attempts per request in total if its errors are transient, and the back-off between them.
    tries: int = 6
    backoff_s_first: float = 0.2
    backoff_s_max: float = 10.0


class Connection:
    """A session with one API server: open it with `await Connection.open(...)`, then `close` it.

    Requests raise ApiError; its subclasses in `errors.py` differ in what the caller can do.
    """

    def __init__(self, client: Any, renew: Renew, limits: Limits) -> None:
        self._client = client
        self._session: aiohttp.ClientSession = client.rest_client.pool_manager
        self._renew = renew
        self.limits = limits
        self._turns = asyncio.Semaphore(limits.in_flight)
        self._rate = RateLimiter(limits.qps, limits.burst, asyncio.get_running_loop().time)
        self._dice = Random()
        # The number of requests sent per verb, and how many of all requests were retries.
        self.requests: Counter[str] = Counter()
        self.again = 0
        # The number of requests that wait for an answer now, at most `limits.in_flight`.
        self.under_way = 0

    @classmethod
    async def open(
        cls, access: Access, limits: Limits | None = None, *, agent: str = "muster"
    ) -> "Connection":
        """Open a session; raise BadAccess if the credentials are unusable.

        `agent` is the User-Agent header.
        """
        config, renew = await configuration(access)
        from kubernetes_asyncio import client

        # `limits.in_flight` is the only limit: a watch must not take a request's connection.
        config.connection_pool_maxsize = 0
        made = client.ApiClient(config)
        made.user_agent = agent
        return cls(made, renew, limits or Limits())

    async def close(self) -> None:
        await self._client.close()

    @property
    def host(self) -> str:
        """The URL of the API server."""
        return str(self._client.configuration.host)

    # ------------------------------------------------------------------ documents

    async def get(self, path: str, query: Query | None = None, **options: Any) -> dict[str, Any]:
        return _document(await self.request("GET", path, query=query, **options))

    async def create(
        self, path: str, document: Mapping[str, Any], **options: Any
    ) -> dict[str, Any]:
        return _document(await self.request("POST", path, body=document, **options))

    async def replace(
        self, path: str, document: Mapping[str, Any], **options: Any
    ) -> dict[str, Any]:
        """Replace an object; raise Conflict if `document` has an outdated `resourceVersion`."""
        return _document(await self.request("PUT", path, body=document, **options))

    async def patch(self, path: str, body: Mapping[str, Any], **options: Any) -> dict[str, Any]:
        """Send `body` as a merge patch, and return the patched object."""
        answer = await self.request("PATCH", path, body=body, content_type=MERGE_PATCH, **options)
        return _document(answer)

    async def delete(
        self, path: str, body: Mapping[str, Any] | None = None, query: Query | None = None
    ) -> dict[str, Any]:
        return _document(await self.request("DELETE", path, body=body, query=query))

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: Mapping[str, Any] | None = None,
        content_type: str = JSON,
        urgent: bool = False,
        tries: int | None = None,
        timeout_s: float | None = None,
    ) -> bytes:
        """Send a request and return the body of the answer.

        Transient errors are retried up to `tries` times in total, after the server's Retry-After or
        a back-off. Repeating a request must be harmless: objects have fixed names, and patches
        describe the desired state. A request that is `urgent` (a lease that must not expire) waits
        neither for the rate limit nor for a free place in flight.
        """
        data = None if body is None else msgspec.json.encode(body)
        left = (tries or self.limits.tries) - 1
        backoff_s, is_renewed = self.limits.backoff_s_first, False
        while True:
            try:
                return await self._turn(method, path, query, data, content_type, urgent, timeout_s)
            except ApiError as error:
                if error.status == 401 and not is_renewed:
                    # The token may have expired; its file or program may have a new one.
                    is_renewed = True
                    await self._renew_access()
                    continue
                if not error.passes or left <= 0:
                    raise
                wait_s = self._patience(error, backoff_s)
                _log.debug("%s %s: %s; again in %.1f s", method, path, error, wait_s)
            left -= 1
            self.again += 1
            backoff_s = min(2 * backoff_s, self.limits.backoff_s_max)
            await asyncio.sleep(wait_s)

    def _patience(self, error: ApiError, backoff_s: float) -> float:
        """Return the seconds to wait: the server's Retry-After if it sent one, else the back-off.

        Both get random jitter, so that clients do not return at the same time.
        """
        if error.retry_after_s is not None:
            wait_s = min(error.retry_after_s, self.limits.backoff_s_max)
            return wait_s * (1.0 + 0.1 * self._dice.random())
        return backoff_s * (0.5 + self._dice.random())

    async def _renew_access(self) -> None:
        try:
            await self._renew()
        except Exception as error:  # noqa: BLE001 - a credential program may fail in any way
            _log.warning("the credentials could not be renewed: %s", error)

    async def _turn(
        self,
        method: str,
        path: str,
        query: Query | None,
        data: bytes | None,
        content_type: str,
        urgent: bool,
        timeout_s: float | None,
    ) -> bytes:
        timeout = aiohttp.ClientTimeout(total=timeout_s or self.limits.timeout_s)
        if urgent:
            return await self._send(method, path, query, data, content_type, timeout)
        wait_s = self._rate.take()
        if wait_s:
            await asyncio.sleep(wait_s)
        async with self._turns:
            self.under_way += 1
            try:
                return await self._send(method, path, query, data, content_type, timeout)
            finally:
                self.under_way -= 1

    async def _send(
        self,
        method: str,
        path: str,
        query: Query | None,
        data: bytes | None,
        content_type: str,
        timeout: aiohttp.ClientTimeout,
    ) -> bytes:
        asked = f"{method} {path}"
        arguments = await self._arguments(query, content_type if data is not None else "")
        self.requests[method] += 1
        try:
            async with self._session.request(
                method, self.host + path, data=data, timeout=timeout, **arguments
            ) as response:
                body = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _unreachable(asked, error) from None
        if response.status >= 300:
            raise error_of(response.status, body, response.headers, asked=asked)
        return body

    async def _arguments(self, query: Query | None, content_type: str) -> dict[str, Any]:
        client = self._client
        headers = dict(client.default_headers)
        headers["Accept"] = JSON
        if content_type:
            headers["Content-Type"] = content_type
        await client.update_params_for_auth(headers, [], ["BearerToken"])
        arguments: dict[str, Any] = {"headers": headers}
        if query:
            arguments["params"] = _pairs(query)
        rest = client.rest_client
        if rest.proxy:
            arguments["proxy"] = rest.proxy
        if rest.proxy_headers:
            arguments["proxy_headers"] = rest.proxy_headers
        if rest.server_hostname:
            arguments["server_hostname"] = rest.server_hostname
        return arguments

    # ------------------------------------------------------------------ streams

    @asynccontextmanager
    async def stream(
        self, path: str, query: Query | None = None, *, quiet_s_max: float | None = None
    ) -> AsyncIterator[aiohttp.StreamReader]:
        """Yield the body as it arrives: a watch, or a log that is followed. It is not retried.

        After `quiet_s_max` seconds without data the connection counts as cut (`Silent`). Errors
        while reading are converted as well: see `cut`.
        """
        wait_s = self._rate.take()
        if wait_s:
            await asyncio.sleep(wait_s)
        arguments = await self._arguments(query, "")
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=self.limits.timeout_s, sock_read=quiet_s_max
        )
        asked = f"GET {path}"
        self.requests["WATCH" if (query or {}).get("watch") else "STREAM"] += 1
        with cut(asked):
            async with self._session.get(
                self.host + path, timeout=timeout, **arguments
            ) as response:
                if response.status >= 300:
                    body = await response.read()
                    raise error_of(response.status, body, response.headers, asked=asked)
                yield response.content

    @asynccontextmanager
    async def websocket(
        self, path: str, query: Query, protocols: tuple[str, ...]
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """Open a WebSocket, as needed to run a command in a pod."""
        arguments = await self._arguments(None, "")
        arguments.pop("server_hostname", None)
        # The server answers with frames and refuses a request that accepts only JSON.
        arguments["headers"]["Accept"] = "*/*"
        asked = f"GET {path}"
        self.requests["WEBSOCKET"] += 1
        with cut(asked):
            async with self._session.ws_connect(
                self.host + path,
                params=_pairs(query),
                protocols=protocols,
                heartbeat=self.limits.timeout_s,
                **arguments,
            ) as socket:
                yield socket


class cut:  # noqa: N801 - a context manager that is used like a function: `with cut(...)`
    """Convert the exceptions of a cut connection to `Unreachable`.

    A refused WebSocket handshake becomes the error of its HTTP status.
    """

    def __init__(self, asked: str) -> None:
        self._asked = asked

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, aiohttp.WSServerHandshakeError):
            message = f"the API server answered {error.status}"
            raise error_of(error.status, message.encode(), error.headers or {}, asked=self._asked)
        if isinstance(error, aiohttp.ClientError | TimeoutError | OSError):
            raise _unreachable(self._asked, error) from None


def _unreachable(asked: str, error: BaseException) -> Unreachable:
    message = str(error) or type(error).__name__
    if isinstance(error, aiohttp.SocketTimeoutError):
        return Silent(f"{asked}: {message}", reason=type(error).__name__)
    return Unreachable(f"{asked}: {message}", reason=type(error).__name__)


def _document(body: bytes) -> dict[str, Any]:
    try:
        document = msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise Unreachable(f"the answer is no JSON: {error}") from None
    if not isinstance(document, dict):
        raise Unreachable("the answer is no object")
    return document


def _pairs(query: Query) -> list[tuple[str, str]]:
    return [
        (name, str(value))
        for name, values in query.items()
        for value in (values if isinstance(values, list) else [values])
    ]
