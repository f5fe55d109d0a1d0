"""A small Prometheus: it understands selectors with `=~` and `or`, instant and over a range."""

import json
import math
import re
from typing import Any

from aiohttp import web

_SELECTOR = re.compile(r"\{((?:[^{}\"]|\"(?:\\.|[^\"\\])*\")*)\}")
_MATCHER = re.compile(r"(\w+)=~\"((?:\\.|[^\"\\])*)\"")


def matchers(query: str) -> list[dict[str, re.Pattern[str]]]:
    """The selectors of a query, each as patterns that whole values of labels must match."""
    parts = [part.strip() for part in _SELECTOR.sub("@", query).split(" or ")]
    assert set(parts) == {"@"}, f"this is not understood: {query}"
    parsed = []
    for inside in _SELECTOR.findall(query):
        assert not _MATCHER.sub("", inside).strip(","), f"this is not understood: {inside}"
        # Strings are quoted as in Go and in JSON.
        pairs = [(label, json.loads(f'"{text}"')) for label, text in _MATCHER.findall(inside)]
        # RE2 has no business with an escaped letter or digit that means nothing.
        assert not any(re.search(r"\\[^\W\d_dwsb]", text) for _, text in pairs), pairs
        parsed.append({label: re.compile(text) for label, text in pairs})
    return parsed


class FakePrometheus:
    """`series` are label sets with values; a value may be a function of time."""

    def __init__(self) -> None:
        self.series: list[tuple[dict[str, str], Any]] = []
        self.now = 1_000_000.0
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.fault: Any = None
        self.token = ""

    def add(self, name: str, value: Any, **labels: str) -> None:
        self.series.append(({"__name__": name, **labels}, value))

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_post("/api/v1/query", self._query)
        app.router.add_post("/api/v1/query_range", self._range)
        return app

    async def _form(self, request: web.Request, what: str) -> dict[str, str]:
        form = {name: str(value) for name, value in (await request.post()).items()}
        self.asked.append((what, form))
        if self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
            raise web.HTTPUnauthorized(text="no")
        if self.fault is not None:
            await self.fault()
        return form

    def _selected(self, query: str) -> list[tuple[dict[str, str], Any]]:
        wanted = matchers(query)
        return [
            (labels, value)
            for labels, value in self.series
            if any(
                all(pattern.fullmatch(labels.get(k, "")) for k, pattern in each.items())
                for each in wanted
            )
        ]

    async def _query(self, request: web.Request) -> web.Response:
        form = await self._form(request, "query")
        result = [
            {"metric": labels, "value": [self.now, _text(value, self.now)]}
            for labels, value in self._selected(form["query"])
        ]
        return _success("vector", result)

    async def _range(self, request: web.Request) -> web.Response:
        form = await self._form(request, "query_range")
        start, end, step = (float(form[key]) for key in ("start", "end", "step"))
        count = int((end - start) / step) + 1
        if count > 11_000:
            body = {"status": "error", "errorType": "bad_data", "error": "exceeded 11,000 points"}
            return web.json_response(body, status=400)
        times = [start + step * number for number in range(count)]
        result = [
            {
                "metric": labels,
                "values": [[at, _text(value, at)] for at in times if _text(value, at) != "NaN"],
            }
            for labels, value in self._selected(form["query"])
        ]
        return _success("matrix", result)


def _text(value: Any, at: float) -> str:
    number = value(at) if callable(value) else value
    return "NaN" if isinstance(number, float) and math.isnan(number) else str(number)


def _success(kind: str, result: list[Any]) -> web.Response:
    return web.json_response({"status": "success", "data": {"resultType": kind, "result": result}})
