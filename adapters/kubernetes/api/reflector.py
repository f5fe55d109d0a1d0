"""A local store of all objects of one kind: listed, then watched, then listed again.

A reflector is the lower half of an informer, as in client-go (`tools/cache/reflector.go`): it lists
the objects, watches from the version of that list, and calls `on_change` for every difference.
Rules:

1. The store holds one list and every later event in order. After a gap (410, a cut connection, an
   event that cannot be decoded) the reflector lists again, and reports differences as if it had
   watched them.
2. Lists are consistent reads, never reads from a server's cache that may lag, so the store does not
   go back in time. A list shows the state at its own version, which the server fixes at the request
   for the first page. An object that a request of Muster created or changed since then is newer
   than the list, and stays; an object that is known to be deleted does not come back.
3. A watch is trusted for `resync_s` at most. Then everything is listed again, which finds what the
   watch has missed.
4. A server sends a bookmark every minute on an idle watch. A watch without data for `QUIET_S_MAX`
   has lost its connection without an error; a new watch continues at the last version.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from random import Random
from typing import Any, NamedTuple

import aiohttp
import msgspec

from adapters.kubernetes.api.connection import Connection
from adapters.kubernetes.api.errors import (
    ApiError,
    Expired,
    NotAllowed,
    Silent,
    Unreachable,
    error_in_watch,
)
from adapters.kubernetes.observe.labels import Document

PAGE = 500
# A server ends a watch after `timeoutSeconds`; a watch still open this much later is dead.
OVERTIME_S = 15.0
# Bookmarks arrive every minute (bookmarkFrequency in the API server's watch cache).
QUIET_S_MAX = 90.0
# The number of deleted objects whose uids are kept, in case an answer about one arrives late.
GONE_KEPT = 10_000

_log = logging.getLogger("muster.kubernetes")


class Key(NamedTuple):
    """The name of an object within its kind; the namespace of a cluster-scoped object is empty."""

    namespace: str
    name: str


class Change(NamedTuple):
    """An object that is new (`before` is None), changed, or deleted (`now` is None)."""

    key: Key
    before: Document | None
    now: Document | None

    @property
    def document(self) -> Document:
        """The last known state of the object."""
        document = self.now if self.now is not None else self.before
        assert document is not None
        return document


class Retry(NamedTuple):
    """The back-off between failed lists, in seconds; it doubles up to `s_max`."""

    s_first: float = 0.2
    s_max: float = 15.0


PLAIN_RETRY = Retry()


class _Event(msgspec.Struct):
    type: str
    object: dict[str, Any]


_EVENT = msgspec.json.Decoder(_Event)


class Reflector:
    """Keep `items` up to date while `run` runs, and call `on_change` with each change.

    `labels` and `fields` are selectors. `keeps` filters the objects, and `trim` reduces each to the
    parts that are kept. `on_synced` is called after each list. Documents in `items` are shared and
    must not be modified.
    """

    def __init__(
        self,
        connection: Connection,
        path: str,
        *,
        labels: str = "",
        fields: str = "",
        on_change: Callable[[Change], None] = lambda change: None,
        on_synced: Callable[[], None] = lambda: None,
        keeps: Callable[[Document], bool] = lambda document: True,
        trim: Callable[[dict[str, Any]], Document] = lambda document: document,
        resync_s: float = 300.0,
        retry: Retry = PLAIN_RETRY,
        quiet_s_max: float = QUIET_S_MAX,
    ) -> None:
        self.items: dict[Key, Document] = {}
        # Set after the first list; before that, the absence of an object means nothing.
        self.synced = asyncio.Event()
        # The number of lists so far, and the error of the last attempt; None if it succeeded.
        self.listings = 0
        self.trouble: ApiError | None = None
        self._connection = connection
        self._path = path
        self._selectors: dict[str, str | int] = {}
        if labels:
            self._selectors["labelSelector"] = labels
        if fields:
            self._selectors["fieldSelector"] = fields
        self._on_change = on_change
        self._on_synced = on_synced
        self._keeps = keeps
        self._trim = trim
        self._resync_s = resync_s
        self._retry = retry
        self._quiet_s_max = quiet_s_max
        self._dice = Random()
        self._version = ""
        self._gone: deque[str] = deque(maxlen=GONE_KEPT)
        # Objects that were put by answers to requests since the last list began.
        self._answered: set[Key] = set()

    def put(self, document: dict[str, Any]) -> None:
        """Store an object from the answer to a request; the watch may deliver it only later."""
        key, known = key_of(document), self.items.get(key_of(document))
        if uid_of(document) in self._gone:
            return
        if known is None or _number(document) > _number(known):
            self._answered.add(key)
            self._put(key, document)

    def forget(self, key: Key, uid: str) -> None:
        """Drop an object that a request could not find any more, unless it has another `uid`."""
        known = self.items.get(key)
        if known is not None and uid_of(known) == uid:
            self._drop(key, known)

    async def run(self) -> None:
        """List and watch until cancelled."""
        wait_s = self._retry.s_first
        while True:
            try:
                await self._list()
                wait_s = self._retry.s_first
                await self._watch_until_resync()
                continue
            except Expired as error:
                _log.info("%s: %s; listing again", self._path, error)
            except ApiError as error:
                self.trouble = error
                level = logging.ERROR if isinstance(error, NotAllowed) else logging.WARNING
                _log.log(level, "%s: %s; listing again", self._path, error)
            except Exception:  # noqa: BLE001 - one bad object must not hide the others
                _log.exception("%s: a change could not be handled; listing again", self._path)
            await asyncio.sleep(wait_s * (0.5 + self._dice.random()))
            wait_s = min(2 * wait_s, self._retry.s_max)

    # ------------------------------------------------------------------ listing

    async def _list(self) -> None:
        self._answered.clear()
        listed: dict[Key, dict[str, Any]] = {}
        query: dict[str, str | int] = {**self._selectors, "limit": PAGE}
        while True:
            page = await self._connection.get(self._path, query)
            kind, version = _kinds(page)
            for document in page.get("items") or ():
                # A list states the kind of its items only once.
                document.setdefault("kind", kind)
                document.setdefault("apiVersion", version)
                listed[key_of(document)] = document
            metadata: Mapping[str, Any] = page.get("metadata") or {}
            if not metadata.get("continue"):
                break
            query["continue"] = metadata["continue"]
        self._version = str(metadata.get("resourceVersion", ""))
        self.listings += 1
        self.trouble = None
        self._replace(listed)
        if not self.synced.is_set():
            self.synced.set()
        self._on_synced()

    def _replace(self, listed: dict[Key, dict[str, Any]]) -> None:
        """Replace the store by a list, and report the differences."""
        newer = {key for key in self._answered if self._is_newer_than_listing(key)}
        for key in [key for key in self.items if key not in listed and key not in newer]:
            self._drop(key, self.items[key])
        for key, document in listed.items():
            known = self.items.get(key)
            is_news = known is None or version_of(known) != version_of(document)
            if is_news and key not in newer and uid_of(document) not in self._gone:
                self._put(key, document)

    def _is_newer_than_listing(self, key: Key) -> bool:
        """Return whether the stored object has a later version than the list.

        Versions of one resource are comparable: a server numbers all its changes in one sequence.
        """
        known = self.items.get(key)
        listed = int(self._version) if self._version.isdigit() else 0
        return known is not None and _number(known) > listed

    def _put(self, key: Key, document: dict[str, Any]) -> None:
        before = self.items.get(key)
        if before is not None and uid_of(before) != uid_of(document):
            # Another object with the same name: the old one was deleted without an event.
            self._drop(key, before)
            before = None
        if not self._keeps(document):
            if before is not None:
                self._drop(key, before)
            return
        now = self._trim(document)
        # Large, and used only by `trim`.
        document["metadata"].pop("managedFields", None)
        self.items[key] = now
        self._on_change(Change(key, before, now))

    def _drop(self, key: Key, last: Document) -> None:
        """Remove a deleted object and report it; `last` is its last known state."""
        del self.items[key]
        self._gone.append(uid_of(last))
        self._on_change(Change(key, last, None))

    # ------------------------------------------------------------------ watching

    async def _watch_until_resync(self) -> None:
        loop = asyncio.get_running_loop()
        # Jitter, so that the reflectors of all kinds do not list at the same instant.
        until = loop.time() + self._resync_s * (0.9 + 0.2 * self._dice.random())
        while (left_s := until - loop.time()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._watch(max(1, int(left_s) + 1))

    async def _watch(self, timeout_s: int) -> None:
        """Watch from the last version until the server ends the watch; raise ApiError if it fails.

        A silent watch ends without an error, and the caller starts a new one.
        """
        query: dict[str, str | int] = {
            **self._selectors,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": timeout_s,
        }
        began = asyncio.get_running_loop().time()
        quiet_s_max = min(timeout_s + OVERTIME_S, self._quiet_s_max)
        try:
            async with self._connection.stream(
                self._path, query, quiet_s_max=quiet_s_max
            ) as content:
                async for line in lines(content):
                    self._take(line)
        except Silent as error:
            _log.info("%s: %s; watching again", self._path, error)
            return
        if asyncio.get_running_loop().time() - began < 1.0:
            # The server ended the watch at once: do not reconnect in a tight loop.
            await asyncio.sleep(self._retry.s_first)

    def _take(self, line: bytes) -> None:
        try:
            event = _EVENT.decode(line)
        except msgspec.DecodeError as error:
            raise Unreachable(f"GET {self._path}: a cut event in the watch: {error}") from None
        document = event.object
        match event.type:
            case "ADDED" | "MODIFIED":
                self._put(key_of(document), document)
            case "DELETED":
                key = key_of(document)
                before = self.items.get(key)
                if before is not None:
                    # The deleted document may be newer than the stored one, and show exit codes.
                    is_same = uid_of(before) == uid_of(document)
                    self._drop(key, self._trim(document) if is_same else before)
                else:
                    self._gone.append(uid_of(document))
            case "ERROR":
                raise error_in_watch(document)
            case _:
                pass
        # A bookmark carries nothing but the version.
        self._version = version_of(document) or self._version


async def lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Yield whole lines; raise Unreachable if the stream ends within a line."""
    rest = b""
    async for chunk in content.iter_any():
        parts = (rest + chunk).split(b"\n") if rest else chunk.split(b"\n")
        rest = parts.pop()
        for line in parts:
            if line:
                yield line
    if rest:
        raise Unreachable("the stream was cut in the middle of a line")


def key_of(document: Document) -> Key:
    metadata = document["metadata"]
    return Key(metadata.get("namespace", ""), metadata["name"])


def uid_of(document: Document) -> str:
    return str(document["metadata"].get("uid", ""))


def version_of(document: Document) -> str:
    return str(document["metadata"].get("resourceVersion", ""))


def _number(document: Document) -> int:
    """Return the version as a number, or 0; comparable only between versions of one resource."""
    version = version_of(document)
    return int(version) if version.isdigit() else 0


def _kinds(page: Mapping[str, Any]) -> tuple[str, str]:
    return str(page.get("kind", "")).removesuffix("List"), str(page.get("apiVersion", ""))
