"""All objects of one kind as an API server has them: listed, then watched, then listed again.

Laws that hold here:

1. The store is what one listing said, and every event after it in order. After a gap (410, a cut
   connection, an event that makes no sense) it is listed again, and what differs is told as if it
   had been watched.
2. Listings are consistent reads, never from a server's cache that may lag behind, so the store does
   not go back in time. A listing says what was there at its own version, which the server fixed
   when the first page was asked for: what a request of ours made or changed since is newer than
   the listing, and stays; an object that is known to be gone does not come back.
3. A watch is believed for `resync_s` at most. Then everything is listed once more, which finds what
   the watch has missed.
4. A server sends a bookmark every minute on a watch that has nothing to say. A watch that is silent
   for `QUIET_S_MAX` has lost its connection without a word; another one goes on where it stopped.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from random import Random
from typing import Any, NamedTuple

import aiohttp
import msgspec

from adapters.kubernetes.connection import Connection
from adapters.kubernetes.errors import (
    ApiError,
    Expired,
    NotAllowed,
    Silent,
    Unreachable,
    error_in_watch,
)
from adapters.kubernetes.marks import Document

PAGE = 500
# A server ends a watch at its time; one that is still open this much later is dead.
OVERTIME_S = 15.0
# Bookmarks come every minute (bookmarkFrequency in the API server's watch cache).
QUIET_S_MAX = 90.0
# So many objects that are gone are remembered, in case an answer about one comes late.
GONE_KEPT = 10_000

_log = logging.getLogger("muster.kubernetes")


class Key(NamedTuple):
    """Names an object within its kind; the namespace of a node is empty."""

    namespace: str
    name: str


class Change(NamedTuple):
    """An object is not as it was: new (`before` is None), changed, or gone (`now` is None)."""

    key: Key
    before: Document | None
    now: Document | None

    @property
    def document(self) -> Document:
        """The last that is known of it."""
        found = self.now if self.now is not None else self.before
        assert found is not None
        return found


class Retry(NamedTuple):
    s_first: float = 0.2
    s_max: float = 15.0


# What is usual.
PLAIN_RETRY = Retry()


class _Event(msgspec.Struct):
    type: str
    object: dict[str, Any]


_EVENT = msgspec.json.Decoder(_Event)


class Reflector:
    """Keeps `items` up to date while `run` runs, and tells each change.

    `keeps` says which objects are worth keeping at all, and `trim` what of them. The documents that
    are handed out are shared; nobody changes them.
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
        # Set once everything has been listed; what is missing means nothing before.
        self.synced = asyncio.Event()
        # How often it was listed, and why the last attempt failed, if it did.
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
        self._list_now = asyncio.Event()
        self._gone: deque[str] = deque(maxlen=GONE_KEPT)
        # What requests of ours were answered since the last listing was asked for.
        self._answered: set[Key] = set()

    def list_soon(self) -> None:
        """Doubts what the watch says: everything is listed again as soon as may be."""
        self._list_now.set()

    def put(self, document: dict[str, Any]) -> None:
        """Takes in what a request of ours was answered, which the watch may tell only later."""
        key, known = key_of(document), self.items.get(key_of(document))
        if uid_of(document) in self._gone:
            return
        if known is None or _number(document) > _number(known):
            self._answered.add(key)
            self._put(key, document)

    def forget(self, key: Key, uid: str) -> None:
        """A request of ours was answered that there is no such object any more."""
        known = self.items.get(key)
        if known is not None and uid_of(known) == uid:
            self._drop(key, known)

    async def run(self) -> None:
        """Lists and watches for ever; only being cancelled ends it."""
        wait_s = self._retry.s_first
        while True:
            try:
                self._list_now.clear()
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
            except Exception:  # noqa: BLE001 - one object that cannot be handled hides no others
                _log.exception("%s: a change could not be handled; listing again", self._path)
            await asyncio.sleep(wait_s * (0.5 + self._dice.random()))
            wait_s = min(2 * wait_s, self._retry.s_max)

    # ------------------------------------------------------------------ listing

    async def _list(self) -> None:
        self._answered.clear()
        found: dict[Key, dict[str, Any]] = {}
        query: dict[str, str | int] = {**self._selectors, "limit": PAGE}
        while True:
            page = await self._connection.get(self._path, query)
            kind, version = _kinds(page)
            for document in page.get("items") or ():
                # A listing names its items' kind only once.
                document.setdefault("kind", kind)
                document.setdefault("apiVersion", version)
                found[key_of(document)] = document
            metadata: Mapping[str, Any] = page.get("metadata") or {}
            if not metadata.get("continue"):
                break
            query["continue"] = metadata["continue"]
        self._version = str(metadata.get("resourceVersion", ""))
        self.listings += 1
        self.trouble = None
        self._replace(found)
        if not self.synced.is_set():
            self.synced.set()
        self._on_synced()

    def _replace(self, found: dict[Key, dict[str, Any]]) -> None:
        """Takes what a listing says instead of what was known, and reports the difference."""
        newer = {key for key in self._answered if self._is_newer_than_listing(key)}
        for key in [key for key in self.items if key not in found and key not in newer]:
            self._drop(key, self.items[key])
        for key, document in found.items():
            known = self.items.get(key)
            is_news = known is None or version_of(known) != version_of(document)
            if is_news and key not in newer and uid_of(document) not in self._gone:
                self._put(key, document)

    def _is_newer_than_listing(self, key: Key) -> bool:
        """Whether an object is of a later version than the one that was listed.

        Versions of one resource are comparable: a server counts all its changes with one number.
        """
        known = self.items.get(key)
        listed = int(self._version) if self._version.isdigit() else 0
        return known is not None and _number(known) > listed

    def _put(self, key: Key, document: dict[str, Any]) -> None:
        before = self.items.get(key)
        if before is not None and uid_of(before) != uid_of(document):
            # Of the same name, but another one: the old one is gone, and nobody told us.
            self._drop(key, before)
            before = None
        if not self._keeps(document):
            if before is not None:
                self._drop(key, before)
            return
        now = self._trim(document)
        # Large, and of no use to anybody but a trim.
        document["metadata"].pop("managedFields", None)
        self.items[key] = now
        self._on_change(Change(key, before, now))

    def _drop(self, key: Key, last: Document) -> None:
        """An object is gone; `last` is the last word on it."""
        del self.items[key]
        self._gone.append(uid_of(last))
        self._on_change(Change(key, last, None))

    # ------------------------------------------------------------------ watching

    async def _watch_until_resync(self) -> None:
        loop = asyncio.get_running_loop()
        # Not all kinds at the same instant.
        until = loop.time() + self._resync_s * (0.9 + 0.2 * self._dice.random())
        while (left_s := until - loop.time()) > 0 and not self._list_now.is_set():
            watching = asyncio.create_task(self._watch(max(1, int(left_s) + 1)))
            doubting = asyncio.create_task(self._list_now.wait())
            try:
                await asyncio.wait(
                    (watching, doubting), timeout=left_s, return_when=asyncio.FIRST_COMPLETED
                )
                if watching.done():
                    watching.result()
            finally:
                for task in (watching, doubting):
                    task.cancel()
                await asyncio.gather(watching, doubting, return_exceptions=True)

    async def _watch(self, timeout_s: int) -> None:
        """One watch from the last version; returns when the server ends it in good order."""
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
            # Ended as soon as it began: not at once again.
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
                    # The last word on it may be newer than what we had: how its containers ended.
                    is_same = uid_of(before) == uid_of(document)
                    self._drop(key, self._trim(document) if is_same else before)
                else:
                    self._gone.append(uid_of(document))
            case "ERROR":
                raise error_in_watch(document)
            case _:
                pass
        # A bookmark says nothing but this.
        self._version = version_of(document) or self._version


async def lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Whole lines; a rest without an end is one that was cut."""
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
    """Versions of one object count up; that of another object says nothing about it."""
    version = version_of(document)
    return int(version) if version.isdigit() else 0


def _kinds(page: Mapping[str, Any]) -> tuple[str, str]:
    return str(page.get("kind", "")).removesuffix("List"), str(page.get("apiVersion", ""))
