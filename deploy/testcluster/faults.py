"""Which requests to an API server fail, and how. Pure.

Each request is decided by the seed, its method and path, and how many equal ones came before it, so
the order in which different requests arrive changes nothing.
"""

import json
import random
from collections import Counter
from enum import StrEnum
from typing import NamedTuple


class Fault(StrEnum):
    DELAY = "delay"
    # The connection ends before the request is carried out, or after, so that its answer is lost.
    CUT_BEFORE = "cut-before"
    CUT_AFTER = "cut-after"
    CONFLICT = "409"
    # A create that the server receives twice, as from a client that retried.
    TWICE = "409-twice"
    GONE = "410"
    TOO_MANY = "429"
    BROKEN = "500"
    # The gateway timed out although the server carried the request out.
    TIMED_OUT = "504"
    # In a stream of changes: one that never arrives, and a stream that ends.
    DROPPED = "dropped"
    STREAM_CUT = "stream-cut"
    STREAM_GONE = "stream-410"


ANYTIME = (
    Fault.DELAY,
    Fault.CUT_BEFORE,
    Fault.CUT_AFTER,
    Fault.TOO_MANY,
    Fault.BROKEN,
    Fault.TIMED_OUT,
)
BY_METHOD = {
    "GET": (*ANYTIME, Fault.GONE),
    "POST": (*ANYTIME, Fault.TWICE),
    "PUT": (*ANYTIME, Fault.CONFLICT),
    "PATCH": (*ANYTIME, Fault.CONFLICT),
    "DELETE": (*ANYTIME, Fault.CONFLICT),
}
STREAM = (Fault.DROPPED, Fault.DROPPED, Fault.DROPPED, Fault.STREAM_CUT, Fault.STREAM_GONE)
# The reason that Kubernetes gives for each refusal.
REASONS = {
    409: (
        "Conflict",
        "the object has been modified; please apply your changes to the latest version",
    ),
    410: ("Expired", "too old resource version"),
    429: ("TooManyRequests", "the server has received too many requests"),
    500: ("InternalError", "an error on the server has prevented the request from succeeding"),
    504: ("Timeout", "the server was unable to return a response in time"),
}
CODES = {
    Fault.CONFLICT: 409,
    Fault.GONE: 410,
    Fault.TOO_MANY: 429,
    Fault.BROKEN: 500,
    Fault.TIMED_OUT: 504,
}


class Settings(NamedTuple):
    seed: int = 0
    # The share of requests, and of changes in a stream, that fail.
    rate: float = 0.0
    delay_s_max: float = 1.0
    only: tuple[Fault, ...] = ()


class Verdict(NamedTuple):
    fault: Fault | None = None
    delay_s: float = 0.0


class Judge:
    """Decides which fault each request gets, and counts requests and faults."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.requests: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self._alike: Counter[str] = Counter()

    def request(self, method: str, path: str, *, is_listing: bool) -> Verdict:
        self.requests[method] += 1
        possible: tuple[Fault, ...] = BY_METHOD.get(method, ANYTIME)
        if not is_listing:
            possible = tuple(each for each in possible if each is not Fault.GONE)
        return self._decide(f"{method} {path}", possible)

    def change(self, path: str) -> Verdict:
        """Return the fault of one change in a stream."""
        return self._decide(f"change {path}", STREAM)

    def _decide(self, what: str, possible: tuple[Fault, ...]) -> Verdict:
        self._alike[what] += 1
        dice = random.Random(f"{self.settings.seed} {what} {self._alike[what]}")
        wanted = [each for each in possible if not self.settings.only or each in self.settings.only]
        if dice.random() >= self.settings.rate or not wanted:
            return Verdict()
        fault = dice.choice(wanted)
        self.faults[fault] += 1
        return Verdict(fault, dice.uniform(0, self.settings.delay_s_max))


def refusal(code: int) -> str:
    """Return a Status as the API server writes it."""
    reason, message = REASONS[code]
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return json.dumps({**status, "reason": reason, "message": message, "code": code})
