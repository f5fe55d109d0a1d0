"""The API's description: /docs and /openapi.json. The pages load nothing from other hosts."""

import base64
import hashlib
import re
from pathlib import Path

import msgspec
from aiohttp import web

from api.openapi import make_openapi
from api.requests.headers import HEADERS
from api.routes import NoQuery, Route, answer_bytes, route

_STATIC = Path(__file__).parent / "static"
_INLINE = re.compile(r"<(script|style)>(.*?)</\1>", re.DOTALL)

OPENAPI = web.AppKey("openapi", bytes)


class Page:
    """An HTML file with inline script and style, and the policy that allows only those two."""

    def __init__(self, name: str) -> None:
        text = (_STATIC / name).read_text("utf-8")
        hashes: dict[str, list[str]] = {"script": [], "style": []}
        for tag, content in _INLINE.findall(text):
            digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
            hashes[tag].append(f"'sha256-{digest}'")
        self._body = text.encode()
        self._policy = "; ".join(
            [
                "default-src 'none'",
                "connect-src 'self'",
                "img-src data:",
                "base-uri 'none'",
                "form-action 'none'",
                "frame-ancestors 'none'",
                *(f"{tag}-src {' '.join(sources)}" for tag, sources in hashes.items() if sources),
            ]
        )

    async def get(self, request: web.Request, query: NoQuery) -> web.Response:
        return web.Response(
            body=self._body,
            headers={
                **HEADERS,
                "Content-Type": "text/html; charset=utf-8",
                "Content-Security-Policy": self._policy,
                "Referrer-Policy": "no-referrer",
            },
        )


async def get_openapi(request: web.Request, query: NoQuery) -> web.Response:
    return answer_bytes(request.app[OPENAPI])


def write_openapi(routes: tuple[Route, ...], *, release: str) -> bytes:
    return msgspec.json.encode(make_openapi(routes, release=release))


ROUTES: tuple[Route, ...] = (
    route(
        "GET", "/docs", Page("docs.html").get, "This API, to read",
        query=NoQuery, answers={200: str}, is_open=True, is_shown=False,
    ),
    route(
        "GET", "/openapi.json", get_openapi, "This API, for programs",
        query=NoQuery, answers={200: dict}, is_open=True, is_shown=False,
    ),
)  # fmt: skip
