"""The telemetry port on a Prometheus server.

The latest values are requested at most every `FRESH_S` seconds, and every request has a timeout.
After a failure the server gets no request for `PAUSE_S` seconds, so that callers fail at once
instead of waiting for it again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import aiohttp
import msgspec

from adapters.prometheus.series import (
    Pods,
    device_readings,
    histories,
    instant_query,
    link_readings,
    node_query,
    pods_query,
)
from controlplane.model.errors import TelemetryUnavailable
from controlplane.ports import Clock, DeviceHistory, DeviceReading, LinkReading, Window

# Returns the pods that are ranks of jobs.
PodsOf = Callable[[], Awaitable[Pods]]

ANSWER_S_MAX = 5.0
# Prometheus scrapes exporters every 15 to 30 seconds, so a few seconds more make no difference.
FRESH_S = 3.0
# The pause after a failure of the server.
PAUSE_S = 5.0
ANSWER_BYTES_MAX = 64 << 20
STEP_S_MIN = 1.0


class _Answer(msgspec.Struct):
    class Data(msgspec.Struct):
        result: list[dict[str, Any]] = []

    status: str = ""
    data: Data = msgspec.field(default_factory=Data)
    error: str = ""


_decode = msgspec.json.Decoder(_Answer).decode


class PrometheusTelemetry:
    """The telemetry of the server at `url`.

    `pods` returns the job and rank of each pod; `clock` shows real time; `token` is a bearer token,
    "" for none. Queries raise TelemetryUnavailable if the server does not answer or refuses.
    """

    def __init__(self, url: str, *, pods: PodsOf, clock: Clock, token: str = "") -> None:
        self._url = url.rstrip("/")
        self._pods = pods
        self._clock = clock
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._session: aiohttp.ClientSession | None = None
        self._asking = asyncio.Lock()
        self._fresh: list[dict[str, Any]] = []
        self._fresh_until = float("-inf")
        self._failure = ""
        self._paused_until = float("-inf")

    async def devices(self) -> Sequence[DeviceReading]:
        return device_readings(await self._now(), await self._pods())

    async def links(self) -> Sequence[LinkReading]:
        return link_readings(await self._now())

    async def of_node(self, node: str, window: Window) -> Sequence[DeviceHistory]:
        return histories(await self._past(node_query(node), window), {})

    async def of_pods(
        self, namespace: str, pods: Mapping[str, int], window: Window
    ) -> Sequence[DeviceHistory]:
        """Return the histories of the devices of `pods`, which maps a pod's name to its rank."""
        if not pods:
            return []
        return histories(await self._past(pods_query(namespace, pods), window), pods)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _now(self) -> list[dict[str, Any]]:
        # Concurrent callers share one answer.
        async with self._asking:
            if self._clock.now() >= self._fresh_until:
                self._fresh = await self._ask("query", {"query": instant_query()})
                self._fresh_until = self._clock.now() + FRESH_S
            return self._fresh

    async def _past(self, query: str, window: Window) -> list[dict[str, Any]]:
        end = self._clock.now() if window.until is None else window.until
        step_s = max(STEP_S_MIN, window.last_s / window.points)
        asked = {
            "start": f"{end - window.last_s:.3f}",
            "end": f"{end:.3f}",
            "step": f"{step_s:.3f}",
        }
        return await self._ask("query_range", {"query": query, **asked})

    async def _ask(self, what: str, form: dict[str, str]) -> list[dict[str, Any]]:
        if self._clock.now() < self._paused_until:
            raise TelemetryUnavailable(self._failure)
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                return await self._answered(what, form)
        except TimeoutError:
            raise self._failed(f"it did not answer within {ANSWER_S_MAX:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise self._failed(str(error) or type(error).__name__) from None

    async def _answered(self, what: str, form: dict[str, str]) -> list[dict[str, Any]]:
        if self._session is None:
            self._session = aiohttp.ClientSession(headers=self._headers)
        # POST, because the names of a thousand pods do not fit into a URL.
        async with self._session.post(f"{self._url}/api/v1/{what}", data=form) as response:
            body = await response.content.read(ANSWER_BYTES_MAX)
            if not response.content.at_eof():
                raise self._failed(f"its answer is larger than {ANSWER_BYTES_MAX >> 20} MiB")
        try:
            answer = _decode(body)
        except msgspec.MsgspecError:
            line = f"{response.status} {response.reason}"
            raise self._failed(f"it answered {line}, and not as a Prometheus does") from None
        if answer.status != "success":
            raise self._failed(f"it refused the question: {answer.error or response.status}")
        return answer.data.result

    def _failed(self, why: str) -> TelemetryUnavailable:
        self._failure = f"Prometheus at {self}: {why}"
        self._paused_until = self._clock.now() + PAUSE_S
        return TelemetryUnavailable(self._failure)

    def __str__(self) -> str:
        # Without user name and password.
        parts = urlsplit(self._url)
        return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
