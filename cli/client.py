"""The HTTP API as the command line uses it: typed answers, and complaints in place of exceptions.

A change carries an Idempotency-Key, so it may be sent again when the connection broke before the
answer came; it still happens once.
"""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlsplit

import aiohttp
import msgspec

from api.headers import TIME_HEADER
from api.notices import read_notices
from cli.complaints import Complaint, exit_code_of
from cli.settings import read_settings, reason, token_for

CONNECT_S_MAX = 5.0
ANSWER_S_MAX = 60.0
TRIES = 4
# The first wait; each further one is twice as long.
RETRY_AFTER_S = 0.2
PAGE = 500
# A line of the event stream may hold a whole manifest.
LINE_BYTES_MAX = 4 * 2**20

HINTS = {
    "no_such_route": "Is this the address of a Muster server? See MUSTER_URL and --url.",
    "host_not_allowed": "Ask for it as http://127.0.0.1 or http://localhost.",
    "no_such_job": "`muster list -A` shows all jobs.",
    "no_such_node": "`muster node list` shows the nodes.",
    "no_such_queue": "`muster queue list` shows the queues.",
    "unknown_queue": "`muster queue list` shows them; `muster queue set NAME` makes one.",
    "name_taken": "Choose another name, or `muster delete` the job that has it.",
}
# Asking again at once would not help.
_NOBODY_THERE = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)

T = TypeVar("T")


class FieldProblem(msgspec.Struct):
    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


class Problem(msgspec.Struct):
    """An RFC 9457 problem document, as far as it is shown."""

    title: str = ""
    detail: str = ""
    code: str = ""
    field: str | None = None
    errors: list[FieldProblem] = []


class Page(msgspec.Struct, Generic[T]):
    items: list[T]
    next: str | int | None = None


class Refused(Exception):
    """The server answered with a problem document."""

    def __init__(self, status: int, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.status = status
        self.problem = problem

    def complaint(self, where: str = "") -> Complaint:
        problem = self.problem
        if self.status == 401:
            return Complaint(
                f"the server did not take the token: {problem.detail}",
                hint="Set MUSTER_TOKEN, or MUSTER_TOKEN_FILE to the server's token file.",
            )
        told = problem.detail or problem.title or f"the server answered {self.status}"
        code = exit_code_of(problem.code, self.status)
        hint = HINTS.get(problem.code, "")
        return Complaint(f"{where}: {told}" if where else told, hint=hint, exit_code=code)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Runs a command's conversation with the server; what the server refuses is complained of."""
    try:
        return asyncio.run(work)
    except Refused as refused:
        raise refused.complaint() from None


@asynccontextmanager
async def connect(url: str | None = None) -> AsyncIterator["Client"]:
    """The server at `url`, or where the settings say."""
    settings = read_settings()
    base = (url or settings.url).rstrip("/")
    if not _is_http(base):
        raise _bad_url(base)
    token, spare_token = token_for(settings, base)
    timeout = aiohttp.ClientTimeout(total=ANSWER_S_MAX, connect=CONNECT_S_MAX)
    async with aiohttp.ClientSession(timeout=timeout, read_bufsize=LINE_BYTES_MAX) as session:
        yield Client(session, base, token, spare_token)


class Client:
    def __init__(
        self, session: aiohttp.ClientSession, url: str, token: str = "", spare_token: str = ""
    ) -> None:
        self.url = url
        # What the server's clock showed at its latest answer; a simulated one may run fast.
        self.now = time.time()
        # What the server said about what it took.
        self.warnings: list[str] = []
        self._session = session
        self._token = token
        self._spare_token = spare_token

    async def get(self, path: str, type: type[T], **query: object) -> T:
        return self._decode(await self._send("GET", path, query=query), type)

    async def change(
        self, method: str, path: str, type: type[T], body: object = None, **query: object
    ) -> T:
        """A POST or PUT."""
        key = {"Idempotency-Key": str(uuid.uuid4())}
        data = None if body is None else msgspec.json.encode(body)
        return self._decode(await self._send(method, path, data, key, query), type)

    async def delete(self, path: str) -> None:
        key = {"Idempotency-Key": str(uuid.uuid4())}
        await self._send("DELETE", path, headers=key)

    async def all_pages(self, path: str, type: type[T], **query: object) -> list[T]:
        """Every item of a listing, page after page."""
        items: list[T] = []
        after = query.pop("after", None)
        while True:
            page = await self.get(path, Page[type], **query, limit=PAGE, after=after)  # type: ignore[valid-type]
            items += page.items
            if page.next is None:
                return items
            after = page.next

    @asynccontextmanager
    async def stream(self, path: str, **query: object) -> AsyncIterator[aiohttp.StreamReader]:
        """Server-Sent Events, to be read piece by piece."""
        timeout = aiohttp.ClientTimeout(total=None, connect=CONNECT_S_MAX)
        headers = {"Accept": "text/event-stream", **self._authorization()}
        async with self._session.get(
            self.url + path, params=_text(query), headers=headers, timeout=timeout
        ) as answer:
            if answer.status >= 400:
                raise _refused(answer.status, await answer.read())
            yield answer.content

    async def _send(
        self,
        method: str,
        path: str,
        data: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, object] | None = None,
    ) -> bytes:
        headers = {**(headers or {}), **({"Content-Type": "application/json"} if data else {})}
        tries = 0
        while True:
            tries += 1
            try:
                return await self._try(method, path, data, headers, query or {})
            except Refused as refused:
                if refused.status == 401 and self._spare_token:
                    self._token, self._spare_token = self._spare_token, ""
                    continue
                if refused.status != 503 or tries == TRIES:
                    raise
            except (aiohttp.ClientError, TimeoutError) as error:
                if tries == TRIES or isinstance(error, _NOBODY_THERE):
                    raise unreachable(self.url, error) from None
            await asyncio.sleep(RETRY_AFTER_S * 2 ** (tries - 1))

    async def _try(
        self,
        method: str,
        path: str,
        data: bytes | None,
        headers: Mapping[str, str],
        query: Mapping[str, object],
    ) -> bytes:
        async with self._session.request(
            method,
            self.url + path,
            data=data,
            headers={**headers, **self._authorization()},
            params=_text(query),
        ) as answer:
            body = await answer.read()
            self._set_clock(answer)
            if answer.status >= 400:
                raise _refused(answer.status, body)
            self.warnings += read_notices(answer.headers)
            return body

    def _set_clock(self, answer: aiohttp.ClientResponse) -> None:
        shown = answer.headers.get(TIME_HEADER, "")
        try:
            self.now = float(shown)
        except ValueError:
            self.now = time.time()

    def _authorization(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}

    def _decode(self, body: bytes, type: type[T]) -> T:
        try:
            return msgspec.json.decode(body, type=type)
        except msgspec.MsgspecError as error:
            raise Complaint(
                f"{self.url} answered in a form that this release does not know: {error}",
                hint="Use the release of `muster` that the server runs, and check MUSTER_URL.",
            ) from None


def job_path(namespace: str, name: str, rest: str = "") -> str:
    return f"/v1/jobs/{quote(namespace, safe='')}/{quote(name, safe='')}{rest}"


def unreachable(url: str, error: Exception) -> Complaint:
    why = "it does not answer" if isinstance(error, TimeoutError) else str(error)
    if isinstance(error, aiohttp.ClientConnectorError):
        why = reason(error.os_error)
    return Complaint(
        f"cannot reach the server at {url}: {why}",
        hint="Start one with `muster up`, or say where it is with MUSTER_URL or --url.",
    )


def _is_http(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _bad_url(url: str) -> Complaint:
    return Complaint(f"{url!r} is no URL", hint="Write it like http://127.0.0.1:8642.", exit_code=2)


def _refused(status: int, body: bytes) -> Refused:
    try:
        return Refused(status, msgspec.json.decode(body, type=Problem))
    except msgspec.MsgspecError:
        return Refused(status, Problem(detail=f"the server answered {status}"))


def _text(query: Mapping[str, object]) -> list[tuple[str, str]]:
    """Query parameters; None leaves one out, and a tuple repeats it."""
    each = [
        (name, value)
        for name, given in query.items()
        for value in (given if isinstance(given, tuple) else (given,))
    ]
    return [
        (name, str(value).lower() if isinstance(value, bool) else str(value))
        for name, value in each
        if value is not None
    ]
