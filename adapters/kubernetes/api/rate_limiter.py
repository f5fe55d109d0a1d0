"""The rate limit of requests, as a token bucket.

The limiter stores one number, the time at which the next token is due. This form of the token
bucket is known as the generic cell rate algorithm (GCRA).
"""

from collections.abc import Callable


class RateLimiter:
    """Allow `qps` requests per second on average, and `burst` at once; `qps` 0 means no limit."""

    def __init__(self, qps: float, burst: int, now: Callable[[], float]) -> None:
        self._every_s = 1.0 / qps if qps > 0 else 0.0
        self._ahead_s = self._every_s * max(burst - 1, 0)
        self._now = now
        # When the next token is due. `take` raises it to `_ahead_s` ago, which is a full bucket.
        self._due = float("-inf")

    def take(self) -> float:
        """Take a token, and return the seconds to wait before sending the request."""
        if not self._every_s:
            return 0.0
        now = self._now()
        due = max(self._due, now - self._ahead_s)
        self._due = due + self._every_s
        return max(0.0, due - now)
