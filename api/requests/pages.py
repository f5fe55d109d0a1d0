"""Pagination by key: a cursor names the last item of a page, not the number of items to skip.

So pages stay right while items come and go: an item that exists all the time is neither missed nor
returned twice.
"""

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from controlplane.model.errors import Rejected

Limit = Annotated[int, Meta(ge=1, le=1000, description="At most how many items to return.")]
Cursor = Annotated[
    str, Meta(max_length=256, description="Go on after this: the `next` of the page before.")
]

T = TypeVar("T")


def write_cursor(key: object) -> str:
    return urlsafe_b64encode(msgspec.json.encode(key)).decode().rstrip("=")


def read_cursor(cursor: str, decode: Callable[[bytes], T]) -> T:
    """Return the key that `cursor` encodes; raise Rejected if it is not a cursor of this server."""
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        return decode(urlsafe_b64decode(padded))
    except (UnicodeEncodeError, binascii.Error, msgspec.MsgspecError, UnicodeDecodeError):
        message = "leave `after` out to begin at the first page"
        raise Rejected("bad_cursor", message, field="after") from None
