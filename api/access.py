"""Authentication: which requests the server accepts, and in whose name.

A server without tokens must listen on a loopback address, and accepts requests without a token. Any
page in a browser on that machine could then reach it. Two checks prevent this: the Host header must
name the machine itself (against DNS names that an attacker points at 127.0.0.1), and a request that
a page of another site sends must not change anything. A server with tokens requires one in every
request, on loopback too. Only the SHA-256 of a token is kept, which suffices for secrets that are
as random as keys.
"""

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import urlsplit

from aiohttp import hdrs, web

from controlplane.model.errors import Rejected

LOCAL_ACTOR = "local"
_ACTOR = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True, slots=True)
class Token:
    """A token's actor, and the SHA-256 of the token itself."""

    actor: str
    sha256: bytes

    def __post_init__(self) -> None:
        if not _ACTOR.fullmatch(self.actor):
            raise ValueError(
                f"{self.actor!r} cannot be an actor: letters, digits and . _ @ -, at most 64"
            )
        if len(self.sha256) != hashlib.sha256().digest_size:
            raise ValueError(f"the token of {self.actor} is not given as its SHA-256")


def token_hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


class Access:
    def __init__(self, tokens: Iterable[Token] = (), *, bound_to: str = "127.0.0.1") -> None:
        """Accept `tokens`; `bound_to` is the address that the server listens on."""
        self._tokens = tuple(tokens)
        self._is_local = is_loopback(bound_to)
        if not self._is_local and not self._tokens:
            raise ValueError(f"a server on {bound_to} needs a token for those who may ask")

    def actor(self, request: web.Request) -> str:
        """Return the actor of `request`; raise Rejected if it may not ask."""
        if self._is_local and not _names_loopback(request.headers.get(hdrs.HOST, "")):
            raise Rejected("host_not_allowed", "ask for localhost or a loopback address")
        if request.method not in _SAFE_METHODS:
            _refuse_other_sites(request)
        given = request.headers.get(hdrs.AUTHORIZATION)
        if given is None:
            if not self._tokens:
                return LOCAL_ACTOR
            raise Rejected("token_needed", "send `Authorization: Bearer TOKEN`")
        return self._holder(given)

    def _holder(self, authorization: str) -> str:
        scheme, _, secret = authorization.partition(" ")
        given = token_hash(secret.strip())
        # Compare with every token, so that the time taken reveals nothing.
        holders = [t.actor for t in self._tokens if hmac.compare_digest(t.sha256, given)]
        if scheme.lower() != "bearer" or not holders:
            raise Rejected("token_needed", "the token is not valid")
        return holders[0]


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a server that listens on `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


@lru_cache(maxsize=256)
def _names_loopback(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    return name.endswith(".localhost") or is_loopback(name)


def _refuse_other_sites(request: web.Request) -> None:
    """Raise Rejected for a change that a page of another site requests.

    Browsers name the page behind such a request in its headers; other programs do not.
    """
    origin = request.headers.get(hdrs.ORIGIN)
    if origin is not None and origin.partition("://")[2] != request.headers.get(hdrs.HOST):
        raise Rejected("cross_origin", "the Origin header names another site")
    if request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
        raise Rejected("cross_origin", "the Sec-Fetch-Site header names another site")


ACCESS = web.AppKey("access", Access)
ACTOR = web.RequestKey("actor", str)
