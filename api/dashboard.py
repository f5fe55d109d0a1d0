"""The dashboard: one page, its style and its modules, as they lie in `static/dashboard`.

They are read once, and fetch nothing from elsewhere. Whoever may see them need not be asked; what
they show they ask for with the person's own token.
"""

from collections.abc import Mapping
from pathlib import Path

from aiohttp import web

from api.headers import HEADERS
from api.routes import NoQuery, Route, route

_FOLDER = Path(__file__).parent / "static" / "dashboard"
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
# Only what this server itself gives may run, and be asked.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def _read() -> Mapping[str, tuple[bytes, str]]:
    """Every file by its name, with what it is."""
    return {path.name: (path.read_bytes(), _TYPES[path.suffix]) for path in _FOLDER.iterdir()}


FILES = _read()


async def get_page(request: web.Request, query: NoQuery) -> web.Response:
    return _answer("index.html")


async def get_file(request: web.Request, query: NoQuery) -> web.Response:
    name = request.match_info["file"]
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
    route(
        "GET", "/static/{file}", get_file, "What the dashboard is made of",
        query=NoQuery, answers={200: str}, is_open=True, is_shown=False,
    ),
)  # fmt: skip
