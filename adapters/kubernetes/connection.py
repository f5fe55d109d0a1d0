"""Requests to one API server: documents as plain dicts, bounded, paced, and tried again.

kubernetes-asyncio brings the credentials and the TLS session; its models are left out, because
making objects of a thousand pods costs more than everything else that we do with them.
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

from adapters.kubernetes.access import Access, Renew, configuration
from adapters.kubernetes.errors import ApiError, Silent, Unreachable, error_of
from adapters.kubernetes.rate import Rate

MERGE_PATCH = "application/merge-patch+json"
JSON = "application/json"
Query = Mapping[str, str | int | list[str]]

_log = logging.getLogger("muster.kubernetes")


class Limits(NamedTuple):
    """How hard we lean on the API server."""

    # Requests a second, and how many of them at once after a pause; 0 means no limit of ours.
    qps: float = 100.0
    burst: int = 200
    # Requests under way at one time. Open watches and streams are not counted.
    in_flight: int = 32
    timeout_s: float = 30.0
    # How often a request that may do better is tried in all, and how long after the first time.
    tries: int = 6
    backoff_s_first: float = 0.2
    backoff_s_max: float = 10.0


class Connection:
    """Open one with `await Connection.open(...)`, and close it."""

    def __init__(self, client: Any, renew: Renew, limits: Limits) -> None:
        self._client = client
        self._session: aiohttp.ClientSession = client.rest_client.pool_manager
        self._renew = renew
        self.limits = limits
        self._turns = asyncio.Semaphore(limits.in_flight)
        self._rate = Rate(limits.qps, limits.burst, asyncio.get_running_loop().time)
        self._dice = Random()
        # How often each verb was sent, and of those how often once more.
        self.requests: Counter[str] = Counter()
        self.again = 0
        # How many wait for an answer now, at most `limits.in_flight`.
        self.under_way = 0

    @classmethod
    async def open(
        cls, access: Access, limits: Limits | None = None, *, agent: str = "muster"
    ) -> "Connection":
        found, renew = await configuration(access)
        from kubernetes_asyncio import client

        # Ours is the only limit: a watch must not take a place from the requests.
        found.connection_pool_maxsize = 0
        made = client.ApiClient(found)
        made.user_agent = agent
        return cls(made, renew, limits or Limits())

    async def close(self) -> None:
        await self._client.close()

    @property
    def host(self) -> str:
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
        """With the `resourceVersion` that was read, it is refused (`Conflict`) if that is old."""
        return _document(await self.request("PUT", path, body=document, **options))

    async def patch(self, path: str, body: Mapping[str, Any], **options: Any) -> dict[str, Any]:
        """A merge patch."""
        found = await self.request("PATCH", path, body=body, content_type=MERGE_PATCH, **options)
        return _document(found)

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
        """The answer's body. What may do better is tried again, after what the server asks for.

        Doing it again must be harmless: objects have names, and patches say what should be. What is
        `urgent` (a lease that must not run out) does not wait for its turn.
        """
        data = None if body is None else msgspec.json.encode(body)
        left = (tries or self.limits.tries) - 1
        backoff_s, is_renewed = self.limits.backoff_s_first, False
        while True:
            try:
                return await self._turn(method, path, query, data, content_type, urgent, timeout_s)
            except ApiError as error:
                if error.status == 401 and not is_renewed:
                    # A token may have run out; the file or program it came from may have a new one.
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
        """What the server asks for, or else a part by chance, so that not all come back at once."""
        if error.retry_after_s is not None:
            wait_s = min(error.retry_after_s, self.limits.backoff_s_max)
            return wait_s * (1.0 + 0.1 * self._dice.random())
        return backoff_s * (0.5 + self._dice.random())

    async def _renew_access(self) -> None:
        try:
            await self._renew()
        except Exception as error:  # noqa: BLE001 - whatever a credential program does wrong
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
        found: dict[str, Any] = {"headers": headers}
        if query:
            found["params"] = _pairs(query)
        rest = client.rest_client
        if rest.proxy:
            found["proxy"] = rest.proxy
        if rest.proxy_headers:
            found["proxy_headers"] = rest.proxy_headers
        if rest.server_hostname:
            found["server_hostname"] = rest.server_hostname
        return found

    # ------------------------------------------------------------------ streams

    @asynccontextmanager
    async def stream(
        self, path: str, query: Query | None = None, *, quiet_s_max: float | None = None
    ) -> AsyncIterator[aiohttp.StreamReader]:
        """The body as it comes: a watch, or a log that is followed. It is not tried again.

        `quiet_s_max` is how long nothing may come before the connection counts as cut. Errors while
        reading must be turned by the reader too: see `cut`.
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
        """Both ways at once: what runs a command in a pod."""
        arguments = await self._arguments(None, "")
        arguments.pop("server_hostname", None)
        # It answers with frames, and would not with JSON.
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


class cut:  # noqa: N801 - reads as what it does: `with cut(...)`
    """Makes `Unreachable` of whatever a cut connection raises."""

    def __init__(self, asked: str) -> None:
        self._asked = asked

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, aiohttp.WSServerHandshakeError):
            told = f"the API server answered {error.status}"
            raise error_of(error.status, told.encode(), error.headers or {}, asked=self._asked)
        if isinstance(error, aiohttp.ClientError | TimeoutError | OSError):
            raise _unreachable(self._asked, error) from None


def _unreachable(asked: str, error: BaseException) -> Unreachable:
    told = str(error) or type(error).__name__
    if isinstance(error, aiohttp.SocketTimeoutError):
        return Silent(f"{asked}: {told}", reason=type(error).__name__)
    return Unreachable(f"{asked}: {told}", reason=type(error).__name__)


def _document(body: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise Unreachable(f"the answer is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise Unreachable("the answer is no object")
    return found


def _pairs(query: Query) -> list[tuple[str, str]]:
    return [
        (name, str(value))
        for name, values in query.items()
        for value in (values if isinstance(values, list) else [values])
    ]
