"""The HTTP API as the command line uses it: typed answers, and CliError in place of exceptions.

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

from api.requests.headers import TIME_HEADER
from api.requests.notices import read_notices
from cli.errors import CliError, exit_code_of
from cli.settings import read_settings, reason, token_for

CONNECT_S_MAX = 5.0
ANSWER_S_MAX = 60.0
TRIES = 4
# The first wait, in seconds; each further one is twice as long.
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
# No server listens: an immediate retry would not help.
_CANNOT_CONNECT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)

T = TypeVar("T")


class FieldProblem(msgspec.Struct):
    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


class Problem(msgspec.Struct):
    """The fields of an RFC 9457 problem document that are shown."""

    title: str = ""
    detail: str = ""
    code: str = ""
    field: str | None = None
    errors: list[FieldProblem] = []


class Page(msgspec.Struct, Generic[T]):
    items: list[T]
    next: str | int | None = None


class Refused(Exception):
    """Raised when the server answered with a problem document."""

    def __init__(self, status: int, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.status = status
        self.problem = problem

    def cli_error(self, where: str = "") -> CliError:
        problem = self.problem
        if self.status == 401:
            return CliError(
                f"the server did not take the token: {problem.detail}",
                hint="Set MUSTER_TOKEN, or MUSTER_TOKEN_FILE to the server's token file.",
            )
        message = problem.detail or problem.title or f"the server answered {self.status}"
        code = exit_code_of(problem.code, self.status)
        hint = HINTS.get(problem.code, "")
        return CliError(f"{where}: {message}" if where else message, hint=hint, exit_code=code)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run `work`, a command's requests to the server; a refusal becomes a CliError."""
    try:
        return asyncio.run(work)
    except Refused as refused:
        raise refused.cli_error() from None


@asynccontextmanager
async def connect(url: str | None = None) -> AsyncIterator["Client"]:
    """Connect to the server at `url`, or at the URL of the settings."""
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
        # The server's clock at its latest answer; a simulated one may run fast.
        self.now = time.time()
        # Warnings that the server sent with its answers.
        self.warnings: list[str] = []
        self._session = session
        self._token = token
        self._spare_token = spare_token

    async def get(self, path: str, type: type[T], **query: object) -> T:
        return self._decode(await self._send("GET", path, query=query), type)

    async def change(
        self, method: str, path: str, type: type[T], body: object = None, **query: object
    ) -> T:
        """Send a POST or PUT, and return the answer as a value of `type`."""
        key = {"Idempotency-Key": str(uuid.uuid4())}
        data = None if body is None else msgspec.json.encode(body)
        return self._decode(await self._send(method, path, data, key, query), type)

    async def delete(self, path: str) -> None:
        key = {"Idempotency-Key": str(uuid.uuid4())}
        await self._send("DELETE", path, headers=key)

    async def all_pages(self, path: str, type: type[T], **query: object) -> list[T]:
        """Return every item of a list, page after page."""
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
        """Open a stream of Server-Sent Events, to be read line by line."""
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
                if tries == TRIES or isinstance(error, _CANNOT_CONNECT):
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
            raise CliError(
                f"{self.url} answered in a form that this release does not know: {error}",
                hint="Use the release of `muster` that the server runs, and check MUSTER_URL.",
            ) from None


def job_path(namespace: str, name: str, rest: str = "") -> str:
    return f"/v1/jobs/{quote(namespace, safe='')}/{quote(name, safe='')}{rest}"


def unreachable(url: str, error: Exception) -> CliError:
    why = "it does not answer" if isinstance(error, TimeoutError) else str(error)
    if isinstance(error, aiohttp.ClientConnectorError):
        why = reason(error.os_error)
    return CliError(
        f"cannot reach the server at {url}: {why}",
        hint="Start one with `muster up`, or set its address with MUSTER_URL or --url.",
    )


def _is_http(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _bad_url(url: str) -> CliError:
    return CliError(
        f"{url!r} is not a URL", hint="Write it like http://127.0.0.1:8642.", exit_code=2
    )


def _refused(status: int, body: bytes) -> Refused:
    try:
        return Refused(status, msgspec.json.decode(body, type=Problem))
    except msgspec.MsgspecError:
        return Refused(status, Problem(detail=f"the server answered {status}"))


def _text(query: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return query parameters as text; None omits a parameter, and a tuple repeats it."""
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
