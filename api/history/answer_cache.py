"""Answers that many clients ask for at once, kept for a moment.

A hundred browsers that show the same view ask the same question every few seconds; it is answered
once a second. The key is the address with its query, so views that follow the present ask for
`last_s`, not for a span between two times.
"""

from collections import OrderedDict
from collections.abc import Callable
from time import perf_counter
from typing import NamedTuple

from aiohttp import web

from api.routes import answer_bytes, encode

FRESH_S = 1.0
ANSWERS_MAX = 64
BYTES_MAX = 64 << 20


class _Kept(NamedTuple):
    made: float
    body: bytes


class AnswerCache:
    """The latest answers by address."""

    def __init__(self, fresh_s: float = FRESH_S, bytes_max: int = BYTES_MAX) -> None:
        self._fresh_s = fresh_s
        self._bytes_max = bytes_max
        self._bytes = 0
        self._answers: OrderedDict[str, _Kept] = OrderedDict()

    def answer(self, request: web.Request, make: Callable[[], object]) -> web.Response:
        """Answer with what `make` returns, or with what it returned a moment ago."""
        response = self.kept(request)
        if response is None:
            body = encode(make())
            self._keep(request.path_qs, _Kept(perf_counter(), body))
            response = answer_bytes(body)
        return response

    def kept(self, request: web.Request) -> web.Response | None:
        """Return the answer of a moment ago; None if there is none."""
        kept = self._answers.get(request.path_qs)
        if kept is None or perf_counter() - kept.made > self._fresh_s:
            return None
        return answer_bytes(kept.body)

    def _keep(self, key: str, kept: _Kept) -> None:
        before = self._answers.pop(key, None)
        self._bytes += len(kept.body) - (0 if before is None else len(before.body))
        self._answers[key] = kept
        while len(self._answers) > ANSWERS_MAX or self._bytes > self._bytes_max:
            _, oldest = self._answers.popitem(last=False)
            self._bytes -= len(oldest.body)


ANSWERS = web.AppKey("answers", AnswerCache)
