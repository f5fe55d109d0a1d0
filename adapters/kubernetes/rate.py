"""How many requests a second: a bucket of tokens that fills steadily."""

from collections.abc import Callable


class Rate:
    """`take` says how long to wait before the next request; `burst` of them may go at once.

    `qps` 0 means no limit.
    """

    def __init__(self, qps: float, burst: int, now: Callable[[], float]) -> None:
        self._every_s = 1.0 / qps if qps > 0 else 0.0
        self._ahead_s = self._every_s * max(burst - 1, 0)
        self._now = now
        # When the bucket would be full again if nobody asked any more, less one bucket.
        self._due = float("-inf")

    def take(self) -> float:
        if not self._every_s:
            return 0.0
        now = self._now()
        due = max(self._due, now - self._ahead_s)
        self._due = due + self._every_s
        return max(0.0, due - now)
