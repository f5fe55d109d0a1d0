"""The dashboard: one page, its style sheets and its modules, as stored in `static/dashboard`.

The files are read once and load nothing from other hosts. They are served without a token; the data
that they show is requested with the user's own token.
"""

from collections.abc import Mapping
from pathlib import Path

from aiohttp import web

from api.requests.headers import HEADERS
from api.routes import NoQuery, Route, route

_FOLDER = Path(__file__).parent / "static" / "dashboard"
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
# The page may load scripts from this server only, and send requests to it only.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def _read() -> Mapping[str, tuple[bytes, str]]:
    """Return every file by its path below the folder, with its content and its media type."""
    files = sorted(path for path in _FOLDER.rglob("*") if path.suffix in _TYPES)
    return {
        path.relative_to(_FOLDER).as_posix(): (path.read_bytes(), _TYPES[path.suffix])
        for path in files
    }


FILES = _read()


async def get_page(request: web.Request, query: NoQuery) -> web.Response:
    return _answer("index.html")


async def get_file(request: web.Request, query: NoQuery) -> web.Response:
    name = "/".join(request.match_info.values())
    if name not in FILES:
        raise web.HTTPNotFound
    return _answer(name)


def _answer(name: str) -> web.Response:
    body, kind = FILES[name]
    more = {
        "Content-Type": f"{kind}; charset=utf-8",
        "Content-Security-Policy": _POLICY,
        "Referrer-Policy": "no-referrer",
    }
    return web.Response(body=body, headers={**HEADERS, **more})


ROUTES: tuple[Route, ...] = (
    route(
        "GET", "/", get_page, "The dashboard",
        query=NoQuery, answers={200: str}, is_open=True, is_shown=False,
    ),
    *(
        route(
            "GET", path, get_file, "What the dashboard is made of",
            query=NoQuery, answers={200: str}, is_open=True, is_shown=False,
        )
        for path in ("/static/{file}", "/static/{folder}/{file}")
    ),
)  # fmt: skip
