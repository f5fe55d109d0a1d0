"""Strict parsing of bodies: a document that two parsers could understand differently is refused.

Content types other than JSON and YAML are refused too, which also stops forms that a page of
another site posts.
"""

import asyncio
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable
from typing import NoReturn, TypeVar

import msgspec
from aiohttp import hdrs, web

from api.requests.validation_errors import validation_error
from api.requests.yaml_document import DEPTH_MAX, parse_yaml
from controlplane.model.errors import Rejected

BODY_BYTES_MAX = 1 << 20
BODY_S_MAX = 10.0
# Larger bodies are parsed in a thread, so as not to block the event loop: 16 KiB of YAML take 10
# ms, and so do 256 KiB of JSON.
YAML_BYTES_INLINE_MAX = 16 << 10
JSON_BYTES_INLINE_MAX = 256 << 10
PARSERS_MAX = 2
# JSON is parsed in one call, which blocks all other tasks: each list or map costs up to 1 us.
PARTS_MAX = 20_000

# The problems that any body may have.
BODY_PROBLEMS = (
    "invalid_json",
    "invalid_yaml",
    "invalid_utf8",
    "duplicate_key",
    "not_finite",
    "too_deep",
    "too_complex",
    "yaml_alias",
    "yaml_tag",
    "several_documents",
    "body_too_slow",
    "body_too_large",
    "unsupported_media_type",
)

T = TypeVar("T")

_NESTING = (dict, list)


def parse_json(text: str) -> object:
    nested = text.count("{") + text.count("[")
    if nested > PARTS_MAX:
        raise Rejected("too_complex", f"more than {PARTS_MAX} lists and maps")
    try:
        document: object = _decoder.decode(text)
    except RecursionError:
        raise _too_deep() from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise Rejected("invalid_json", f"{where}: {error.msg}", line=error.lineno) from None
    except ValueError:
        # Python parses no integer of more than 4,300 digits.
        raise Rejected("not_finite", "a number has too many digits") from None
    if nested > DEPTH_MAX:
        _check_depth(document)
    return document


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    unique = dict(pairs)
    if len(unique) < len(pairs):
        ((twice, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise Rejected("duplicate_key", f"{twice!r} is given twice")
    return unique


def _not_finite(word: str) -> NoReturn:
    raise Rejected("not_finite", f"{word} is not a number that JSON has")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise Rejected("not_finite", f"{text} is too large a number")
    return number


_decoder = json.JSONDecoder(
    object_pairs_hook=_unique, parse_constant=_not_finite, parse_float=_finite
)


def _check_depth(document: object) -> None:
    level = [document]
    for _ in range(DEPTH_MAX):
        level = [inner for outer in level for inner in _inside(outer) if type(inner) in _NESTING]
        if not level:
            return
    raise _too_deep()


def _inside(outer: object) -> Iterable[object]:
    if isinstance(outer, dict):
        return outer.values()
    return outer if isinstance(outer, list) else ()


def _too_deep() -> Rejected:
    return Rejected("too_deep", f"nested deeper than {DEPTH_MAX} levels")


_FORMATS: dict[str, tuple[Callable[[str], object], int]] = {
    "application/json": (parse_json, JSON_BYTES_INLINE_MAX),
    "application/yaml": (parse_yaml, YAML_BYTES_INLINE_MAX),
    "application/x-yaml": (parse_yaml, YAML_BYTES_INLINE_MAX),
    "text/yaml": (parse_yaml, YAML_BYTES_INLINE_MAX),
}
MEDIA_TYPES = tuple(_FORMATS)

# The strictest format in which an event is ever written: the snapshot's.
_write = msgspec.msgpack.Encoder().encode


def parse_document(body: bytes, parse: Callable[[str], object]) -> object:
    """Parse `body` with `parse`; raise Rejected."""
    try:
        document = parse(body.decode())
    except UnicodeDecodeError as error:
        raise Rejected("invalid_utf8", f"byte {error.start} is not UTF-8") from None
    check_writable(document)
    return document


def check_writable(value: object) -> None:
    """Raise Rejected for values that cannot be stored later: huge integers, lone surrogates."""
    try:
        _write(value)
    except OverflowError:
        raise Rejected("not_finite", "a whole number has more than 64 bits") from None
    except UnicodeEncodeError:
        raise Rejected("invalid_utf8", "an escape stands for half a character") from None


def convert(document: object, type: type[T]) -> T:
    """Return `document` as a value of `type`; raise Rejected with the path of what does not fit."""
    try:
        return msgspec.convert(document, type)
    except msgspec.ValidationError as error:
        raise validation_error("invalid_body", error, type) from None


class Bodies:
    """Reads and parses request bodies, large ones a few at a time."""

    def __init__(self, *, wait_s_max: float = BODY_S_MAX, parsers_max: int = PARSERS_MAX) -> None:
        self._wait_s_max = wait_s_max
        self._parsers = asyncio.Semaphore(parsers_max)

    async def document(self, request: web.Request) -> object:
        parse, inline_max = _format(request)
        body = await self.raw(request)
        if len(body) <= inline_max:
            return parse_document(body, parse)
        async with self._parsers:
            return await asyncio.to_thread(parse_document, body, parse)

    async def raw(self, request: web.Request) -> bytes:
        """Return the whole body; raise Rejected if it is too large, too slow or incomplete."""
        if request.content.is_eof():
            return await request.read()
        if (request.content_length or 0) > request.client_max_size:
            message = f"it may have {request.client_max_size} bytes, not {request.content_length}"
            raise Rejected("body_too_large", message)
        try:
            async with asyncio.timeout(self._wait_s_max):
                return await request.read()
        except TimeoutError:
            message = f"the whole body must arrive within {self._wait_s_max:g} s"
            raise Rejected("body_too_slow", message) from None
        except ConnectionError:
            # The client is gone and gets no answer; it is not an error of the server either.
            raise Rejected("bad_request", "the connection ended before the whole body") from None


def _format(request: web.Request) -> tuple[Callable[[str], object], int]:
    headers = request.headers
    media = _FORMATS.get(headers.get(hdrs.CONTENT_TYPE, "")) or _FORMATS.get(request.content_type)
    if media is None:
        message = f"set Content-Type to one of {', '.join(MEDIA_TYPES)}"
        raise Rejected("unsupported_media_type", message)
    if (request.charset or "utf-8").lower() not in ("utf-8", "utf8"):
        raise Rejected("unsupported_media_type", f"send UTF-8, not {request.charset}")
    if hdrs.CONTENT_ENCODING in headers:
        raise Rejected("unsupported_media_type", "send the body without a Content-Encoding")
    return media


BODIES = web.AppKey("bodies", Bodies)
