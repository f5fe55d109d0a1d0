"""Annotations: what people write about an instant of the log.

They are kept beside the log in a file of their own, never in the log, so that a log that is only looked
at stays as it is. A server whose log is no file keeps them in memory, and the answer says so.
"""

import asyncio
import contextlib
import os
import tempfile
import time
import uuid
from pathlib import Path
from typing import Annotated

import msgspec
from aiohttp import web
from msgspec import Meta, Struct

from api.access import ACTOR
from api.requests.bodies import BODIES, BODY_PROBLEMS, convert
from api.requests.instants import Instant, seconds
from api.routes import NoQuery, Route, answer, route
from controlplane.model.errors import Rejected

ANNOTATIONS_MAX = 10_000
TEXT_MAX = 10_000
SUFFIX = ".annotations.json"


class Annotation(Struct, frozen=True, kw_only=True):
    """A text about the instant `at` (UTC seconds); `written_at` is real time."""

    id: str
    at: float
    text: str
    author: str
    written_at: float
    # NAMESPACE/NAME of the job or the name of the node that it is about; empty: the whole cluster.
    about: str = ""


class AnnotationList(Struct, frozen=True):
    """All annotations in the order of their instants. `kept_in` is empty if they are in memory."""

    annotations: list[Annotation]
    kept_in: str


class AnnotationWanted(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    at: Instant
    text: Annotated[str, Meta(min_length=1, max_length=TEXT_MAX)]
    about: Annotated[str, Meta(max_length=320)] = ""


class AnnotationBook:
    """The annotations, and the file that keeps them; without a path they are in memory only."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._turn = asyncio.Lock()
        self._known = [] if path is None else _read(path)

    @property
    def kept_in(self) -> str:
        return "" if self._path is None else str(self._path)

    def all(self) -> list[Annotation]:
        return sorted(self._known, key=lambda each: (each.at, each.written_at))

    async def add(self, annotation: Annotation) -> None:
        """Keep an annotation; raise Rejected if it cannot be kept."""
        if len(self._known) >= ANNOTATIONS_MAX:
            raise Rejected("too_many_annotations", f"there are {ANNOTATIONS_MAX} already")
        await self._keep([*self._known, annotation])

    async def remove(self, id: str) -> None:
        """Remove an annotation; raise Rejected if there is none with this id."""
        left = [each for each in self._known if each.id != id]
        if len(left) == len(self._known):
            raise Rejected("no_such_annotation", f"there is no annotation {id!r}")
        await self._keep(left)

    async def _keep(self, wanted: list[Annotation]) -> None:
        async with self._turn:
            if self._path is not None:
                try:
                    await asyncio.to_thread(_write, self._path, wanted)
                except OSError as error:
                    why = (error.strerror or str(error)).lower()
                    message = f"{self._path} cannot be written: {why}; nothing was kept"
                    raise Rejected("not_kept", message) from None
            self._known = wanted


def beside(log: Path) -> Path:
    """Return the file that keeps the annotations of the log in a file."""
    return log.with_name(log.name + SUFFIX)


def _read(path: Path) -> list[Annotation]:
    """Return the annotations in a file; none if there is no file. Raise ValueError."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[Annotation])
    except FileNotFoundError:
        return []
    except (OSError, msgspec.DecodeError) as error:
        raise ValueError(f"{path} has no annotations that can be read: {error}") from None


def _write(path: Path, annotations: list[Annotation]) -> None:
    """Replace the file as a whole, so that a crash leaves the old one or the new one."""
    body = msgspec.json.format(msgspec.json.encode(annotations), indent=1)
    file, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(file, "wb") as opened:
            opened.write(body + b"\n")
            opened.flush()
            os.fsync(opened.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


ANNOTATIONS = web.AppKey("annotations", AnnotationBook)


async def list_annotations(request: web.Request, query: NoQuery) -> web.Response:
    book = request.app[ANNOTATIONS]
    return answer(AnnotationList(book.all(), book.kept_in))


async def add_annotation(request: web.Request, query: NoQuery) -> web.Response:
    wanted = convert(await request.app[BODIES].document(request), AnnotationWanted)
    at = seconds(wanted.at)
    assert at is not None
    annotation = Annotation(
        id=uuid.uuid4().hex,
        at=at,
        text=wanted.text,
        author=request[ACTOR],
        written_at=time.time(),
        about=wanted.about,
    )
    await request.app[ANNOTATIONS].add(annotation)
    return answer(annotation, status=201)


async def remove_annotation(request: web.Request, query: NoQuery) -> web.Response:
    await request.app[ANNOTATIONS].remove(request.match_info["id"])
    return web.Response(status=204)


ROUTES: tuple[Route, ...] = (
    route(
        "GET", "/v1/annotations", list_annotations, "What people wrote about instants of the log",
        query=NoQuery, answers={200: AnnotationList}, needs_leader=True,
    ),
    route(
        "POST", "/v1/annotations", add_annotation, "Write about an instant of the log",
        query=NoQuery, body=AnnotationWanted, answers={201: Annotation},
        problems=("invalid_body", "too_many_annotations", "not_kept", *BODY_PROBLEMS),
    ),
    route(
        "DELETE", "/v1/annotations/{id}", remove_annotation, "Remove an annotation",
        query=NoQuery, answers={204: None}, problems=("no_such_annotation", "not_kept"),
    ),
)  # fmt: skip
